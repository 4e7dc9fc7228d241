# Generated from windtunnel/_async/device_sign_in.py by scripts/sync_client.py; change that file.
"""Device sign-in: a program shows a code, which a person approves who is signed in on the page (RFC 8628)."""

import time
from collections.abc import Callable

import msgspec

from windtunnel._sync.accounts import SIGN_IN_TIMEOUT
from windtunnel._sync.transport import Transport, path
from windtunnel.contexts import Server
from windtunnel.errors import BadConfiguration, Refused

#: Seconds for which a platform is asked again that does not answer while a person looks for the page.
PATIENCE = 60.0


class DeviceCodes(msgspec.Struct):
    """Codes of a program that asks to be signed in, as the platform gives them."""

    device_code: str
    user_code: str
    verification_uri: str
    verification_uri_complete: str
    expires_in: int
    interval: float


class _OfferedWays(msgspec.Struct):
    device: bool = False


class _DeviceAnswer(msgspec.Struct):
    state: str
    token: str | None = None


def offers_codes(url: str) -> bool:
    """Return whether a platform signs programs in by a code; one of before does not."""
    transport = Transport(Server(url), patience=0.0, timeout=SIGN_IN_TIMEOUT)
    try:
        return msgspec.convert(transport.json("GET", path("sign-in")), _OfferedWays).device
    except Refused:
        return False
    finally:
        transport.close()


def sign_in_by_code(url: str, client: str, show: Callable[[DeviceCodes], None]) -> str:
    """Return a personal token, once a person has approved the code that ``show`` shows.

    ``client``: what the person reads of this program. Raise BadConfiguration if it is refused, or not answered.
    """
    transport = Transport(Server(url), patience=PATIENCE, timeout=SIGN_IN_TIMEOUT)
    try:
        begun = transport.json("POST", path("sign-in", "devices"), json={"client": client})
        codes = msgspec.convert(begun, DeviceCodes)
        show(codes)
        body = {"device_code": codes.device_code}
        while True:
            document = transport.json("POST", path("sign-in", "devices", "tokens"), json=body)
            answer = msgspec.convert(document, _DeviceAnswer)
            if answer.state == "approved" and answer.token is not None:
                return answer.token
            if answer.state == "refused":
                raise BadConfiguration(f"{url} was told to refuse this program. Nothing was stored.")
            time.sleep(codes.interval)
    except Refused as refusal:
        if refusal.type != "unknown-device":
            raise
        raise BadConfiguration("Nobody has approved the code in time. `windtunnel login` shows another one.") from None
    finally:
        transport.close()
