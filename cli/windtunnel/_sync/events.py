# Generated from windtunnel/_async/events.py by scripts/sync_client.py; change that file.
"""Server-sent events of a simulation or a comparison, continued after breaks by the number of the last event."""

import json
import time
from collections.abc import Iterator

import httpx
from httpx_sse import EventSource, SSEError

from windtunnel import retries
from windtunnel._sync.transport import Transport
from windtunnel.errors import Refused
from windtunnel.records import Event, read


def events(transport: Transport, path: str, after: int = 0) -> Iterator[Event]:
    """Yield the events after number ``after``, until the last one; raise Interrupted if the platform stays away."""
    began, attempt = time.monotonic(), 0
    while True:
        attempt += 1
        try:
            headers = {"Accept": "text/event-stream"}
            with transport.stream(path, params={"after": after}, headers=headers) as response:
                if response.status_code == 204:
                    return
                for message in EventSource(response).iter_sse():
                    began, attempt = time.monotonic(), 0
                    if not message.data:
                        continue
                    after = int(message.id or after)
                    yield read(Event, {"number": after, "type": message.event, **json.loads(message.data)})
        except (httpx.TransportError, SSEError) as error:
            broken = error if isinstance(error, httpx.TransportError) else httpx.RemoteProtocolError(str(error))
            transport.wait(max(attempt, 1), began, broken)
        except Refused as error:
            if not retries.after_status(error.status, repeatable=True):
                raise
            transport.wait(max(attempt, 1), began, error, error.retry_after)
