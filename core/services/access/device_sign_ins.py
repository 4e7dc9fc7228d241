"""Device sign-ins: a program shows a code, and a person who is signed in approves it in a browser (RFC 8628)."""

import secrets
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum

from common.errors import NotPermitted, SignInRefused, UnknownDevice
from common.ids import new_id
from core.domain.access.credentials import DEVICE_PREFIX, digest_of, is_well_formed, new_credential
from core.domain.access.scopes import Caller
from core.services.access.accounts import check_whole
from core.services.access.browser_sessions import lock_token
from core.store import accounts
from core.store import sign_ins as store
from core.store.database import Connection, Database
from core.store.recording import note_sign_in
from core.store.sign_ins import DeviceRow

#: Seconds within which a code is approved and the token fetched, and the most codes at the same time.
CODE_LIFE, MOST_WAITING_DEVICES = 600.0, 5000
#: Seconds between two questions of a device.
INTERVAL = 2
#: Seconds for which the token of a device is valid.
DEVICE_TOKEN_LIFE = 90 * 86_400.0
#: Letters of codes: no vowels, so that they are no words, and none that looks like another (RFC 8628, section 6.1).
LETTERS, CODE_LENGTH = "BCDFGHJKLMNPQRSTVWXZ", 8


class DeviceState(StrEnum):
    """State of the sign-in of a device."""

    WAITING = "waiting"
    APPROVED = "approved"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class NewDeviceCodes:
    """The code by which a device asks, and the one that a person enters."""

    device_code: str
    user_code: str


class DeviceSignIns:
    """Service of sign-ins of devices."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def begin(self, client: str, address: str) -> NewDeviceCodes:
        """Begin a sign-in; ``client``: what the program says of itself. Raise SignInRefused if too many wait."""
        device_code = new_credential(DEVICE_PREFIX)

        def write(c: Connection) -> str:
            now = self._database.now(c)
            if store.forget_devices(c, now) >= MOST_WAITING_DEVICES:
                raise SignInRefused("Too many devices wait for their approval. Try again in a few minutes.")
            code = _new_code()
            while store.has_code(c, code):
                code = _new_code()
            described = {"client": client, "address": address, "state": DeviceState.WAITING.value}
            identity = {"id": digest_of(device_code), "code": code, "expires_at": now + CODE_LIFE}
            store.add_device(c, identity | described)
            return code

        return NewDeviceCodes(device_code, self._database.write(write))

    def waiting_device(self, caller: Caller, code: str) -> DeviceRow:
        """Return the device that waits for an answer with a code. Raise NotPermitted, UnknownDevice."""
        check_whole(caller)
        with self._database.read() as c:
            row = store.device(c, self._database.now(c), code=normal_code(code))
        if row is None or row.state != DeviceState.WAITING or not caller.user:
            raise UnknownDevice
        return row

    def answer(self, caller: Caller, code: str, *, approve: bool) -> None:
        """Approve or refuse a device, which gets a token of the caller's. Raise NotPermitted, UnknownDevice."""
        known = self.waiting_device(caller, code)
        state = DeviceState.APPROVED if approve else DeviceState.REFUSED

        def write(c: Connection) -> None:
            if approve:
                _check_lasting(c, caller, self._database.now(c) + DEVICE_TOKEN_LIFE)
            if not store.answer_device(c, known.code, caller.user, state.value):
                raise UnknownDevice

        self._database.write(write)

    def fetch(self, device_code: str) -> tuple[DeviceState, str, str]:
        """Return the state of a device's sign-in and, once it is approved, the user and his new token, else empty.

        Asked again, because the answer was lost, it returns another token in place of the first. Raise UnknownDevice.
        """
        if not is_well_formed(device_code, DEVICE_PREFIX):
            raise UnknownDevice
        text = new_credential()

        def write(c: Connection) -> tuple[DeviceState, str, str]:
            now = self._database.now(c)
            row = store.device(c, now, id=digest_of(device_code), lock=True)
            if row is None:
                raise UnknownDevice
            if row.state != DeviceState.APPROVED or row.user is None:
                return DeviceState(row.state), "", ""
            if row.token_id is not None:
                accounts.revoke(c, row.token_id, now)
            user = accounts.user(c, row.user)
            if user is None or user.away_since is not None:
                raise UnknownDevice  # who approved it has left, or his provider does not stand for him any more
            described = {"user": row.user, "name": row.client, "created_by": row.user, "created_at": now}
            identity = {"id": new_id(datetime.now(UTC)), "digest": digest_of(text)}
            added = accounts.add_token(c, identity | described | {"expires_at": now + DEVICE_TOKEN_LIFE})
            store.note_device_token(c, row.id, added.id)
            note_sign_in(c, row.user)
            return DeviceState.APPROVED, row.user, text

        with self._database.read() as c:
            known = store.device(c, self._database.now(c), id=digest_of(device_code))
        if known is not None and known.state != DeviceState.APPROVED:
            return DeviceState(known.state), "", ""
        return self._database.write(write)


def _check_lasting(c: Connection, caller: Caller, until: float) -> None:
    """Raise NotPermitted for a token that ends before what it would approve, and for a session that it has begun.

    A session of who has signed in himself ends earlier too: that is how people sign in.
    """
    token = lock_token(c, caller.credential)
    if token.session_of != token.id and token.expires_at is not None and token.expires_at < until:
        raise NotPermitted(
            "This token ends before that of the program would. Sign in on the page, and approve the code there."
        )


def normal_code(typed: str) -> str:
    """Return a code as it is stored, however it was typed."""
    return "".join(letter for letter in typed.upper() if letter in LETTERS)


def shown_code(code: str) -> str:
    """Return a code as people read it."""
    return f"{code[: CODE_LENGTH // 2]}-{code[CODE_LENGTH // 2 :]}"


def _new_code() -> str:
    return "".join(secrets.choice(LETTERS) for _ in range(CODE_LENGTH))
