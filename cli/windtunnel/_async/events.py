"""Server-sent events of a simulation or a comparison, continued after breaks by the number of the last event."""

import json
import time
from collections.abc import AsyncIterator

import httpx
from httpx_sse import EventSource, SSEError

from windtunnel._async.transport import AsyncAttempts, AsyncTransport
from windtunnel.errors import Refused
from windtunnel.records import Event, read


async def events(transport: AsyncTransport, path: str, after: int = 0) -> AsyncIterator[Event]:
    """Yield the events after number ``after``, until the last one; raise Interrupted if the platform stays away."""
    attempts = AsyncAttempts(transport)
    while True:
        opened, silent = time.monotonic(), True
        try:
            headers = {"Accept": "text/event-stream"}
            async with transport.stream(path, params={"after": after}, headers=headers) as response:
                if response.status_code == 204:
                    return
                opened = time.monotonic()
                async for message in EventSource(response).aiter_sse():
                    attempts.succeeded()
                    silent = False
                    if not message.data:
                        continue
                    after = int(message.id or after)
                    yield read(Event, {"number": after, "type": message.event, **json.loads(message.data)})
            if silent:  # it ended without an event, and without the last one
                raise httpx.RemoteProtocolError("the stream of events ended early")
        except (httpx.TransportError, SSEError, Refused) as error:
            if time.monotonic() - opened > transport.timeout:
                attempts.succeeded()  # heartbeats have kept it open
            await attempts.failed(httpx.RemoteProtocolError(str(error)) if isinstance(error, SSEError) else error)
