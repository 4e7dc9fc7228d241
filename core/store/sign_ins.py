"""Sign-ins in SQL: what has begun, passkeys, people at identity providers, browsers that are known, and devices.

They belong to users, not to projects: who may read and change them is decided by the services (core/services/access).
"""

from collections.abc import Mapping
from enum import StrEnum

from sqlalchemy import Connection, and_, delete, func, insert, or_, select, update

from core.store.recording import note
from core.store.rows import StoredRow, columns_of, read_row, read_rows
from core.store.tables import device_sign_ins, known_browsers, members, passkeys, provided_users, sign_ins, users


class SignInKind(StrEnum):
    """Kind of a sign-in that has begun."""

    PROVIDER = "provider"
    PASSKEY = "passkey"
    NEW_PASSKEY = "new_passkey"


class PasskeyRow(StoredRow, frozen=True, gc=False):
    """A passkey of a user."""

    id: str
    user: str
    name: str
    public_key: bytes
    sign_count: int
    created_at: float
    used_at: float | None


class ProvidedUserRow(StoredRow, frozen=True, gc=False):
    """Who a user is at an identity provider. ``read_at``: when his groups were read last."""

    provider: str
    subject: str
    user: str
    refresh: str | None
    created_at: float
    read_at: float


class DeviceRow(StoredRow, frozen=True, gc=False):
    """A sign-in of a program, which waits for a person or for being fetched."""

    id: str
    code: str
    client: str
    address: str
    state: str
    user: str | None
    token_id: str | None
    expires_at: float


# -- what has begun


def count_begun(c: Connection, now: float) -> int:
    """Return the number of sign-ins that wait for an answer; those that are too old are deleted first."""
    c.execute(delete(sign_ins).where(sign_ins.c.expires_at <= now))
    return c.scalar(select(func.count()).select_from(sign_ins)) or 0


def begin(c: Connection, id: str, kind: SignInKind, content: str, expires_at: float) -> None:
    """Insert what a sign-in is compared with later, as JSON."""
    c.execute(insert(sign_ins).values(id=id, kind=kind.value, content=content, expires_at=expires_at))


def take(c: Connection, id: str, kind: SignInKind, now: float) -> str | None:
    """Delete a sign-in that has begun and return its content as JSON; None: there is none, or it is too old."""
    this = and_(sign_ins.c.id == id, sign_ins.c.kind == kind.value)
    row = c.execute(delete(sign_ins).where(this).returning(sign_ins.c.content, sign_ins.c.expires_at)).first()
    return None if row is None or row.expires_at <= now else str(row.content)


# -- passwords


def password(c: Connection, user: str) -> str | None:
    """Return the hash of the password of a user who has not left; None: there is no such user, or no password."""
    return c.scalar(select(users.c.password).where(users.c.name == user, users.c.state == "active"))


def set_password(c: Connection, user: str, hashed: str | None) -> None:
    """Replace the password of a user."""
    c.execute(update(users).where(users.c.name == user).values(password=hashed))


def set_invitation(c: Connection, user: str, digest: str, until: float) -> None:
    """Give a user another invitation."""
    c.execute(update(users).where(users.c.name == user).values(invitation=digest, invited_until=until))


def forget_ways(c: Connection, user: str) -> None:
    """Delete the ways in which a user who leaves has signed in; who he is at a provider stays, and is nobody else."""
    set_password(c, user, None)
    c.execute(delete(passkeys).where(passkeys.c.user == user))
    c.execute(delete(known_browsers).where(known_browsers.c.user == user))
    c.execute(update(provided_users).where(provided_users.c.user == user).values(refresh=None))


# -- browsers


def know_browser(c: Connection, digest: str, user: str, now: float) -> None:
    """Remember a browser."""
    c.execute(insert(known_browsers).values(digest=digest, user=user, created_at=now))


def knows_browser(c: Connection, digest: str, user: str) -> bool:
    """Return whether a browser has signed in as a user."""
    known = and_(known_browsers.c.digest == digest, known_browsers.c.user == user)
    return c.execute(select(known_browsers.c.digest).where(known)).first() is not None


# -- passkeys


def add_passkey(c: Connection, values: Mapping[str, object]) -> PasskeyRow:
    """Insert a passkey."""
    adding = insert(passkeys).values(**values).returning(*columns_of(passkeys, PasskeyRow))
    [added] = read_rows(c.execute(adding), PasskeyRow)
    note(c, f"users/{added.user}/passkeys/{added.id}")
    return added


def passkey(c: Connection, id: str) -> PasskeyRow | None:
    """Return a passkey of a user who has not left."""
    query = select(*columns_of(passkeys, PasskeyRow)).join(users, users.c.name == passkeys.c.user)
    return read_row(c.execute(query.where(passkeys.c.id == id, users.c.state == "active")).first(), PasskeyRow)


def passkeys_of(c: Connection, user: str) -> list[PasskeyRow]:
    """Return the passkeys of a user, oldest first."""
    query = select(*columns_of(passkeys, PasskeyRow)).where(passkeys.c.user == user)
    return read_rows(c.execute(query.order_by(passkeys.c.created_at, passkeys.c.id)), PasskeyRow)


def use_passkey(c: Connection, id: str, before: int, count: int, now: float) -> bool:
    """Record that a passkey was used; False if it was used or deleted at the same time."""
    same = and_(passkeys.c.id == id, passkeys.c.sign_count == before)
    using = update(passkeys).where(same).values(sign_count=count, used_at=now)
    return c.execute(using.returning(passkeys.c.id)).first() is not None


def drop_passkey(c: Connection, user: str, id: str) -> bool:
    """Delete a passkey of a user; False if there is none."""
    this = and_(passkeys.c.user == user, passkeys.c.id == id)
    return c.execute(delete(passkeys).where(this).returning(passkeys.c.id)).first() is not None


# -- people at identity providers


def provided_user(c: Connection, provider: str, subject: str) -> ProvidedUserRow | None:
    """Return who a person of a provider is here, if he has not left."""
    query = select(*columns_of(provided_users, ProvidedUserRow)).join(users, users.c.name == provided_users.c.user)
    this = and_(provided_users.c.provider == provider, provided_users.c.subject == subject)
    return read_row(c.execute(query.where(this, users.c.state == "active")).first(), ProvidedUserRow)


def has_subject(c: Connection, provider: str, subject: str) -> bool:
    """Return whether a person of a provider is or was a user."""
    this = and_(provided_users.c.provider == provider, provided_users.c.subject == subject)
    return c.execute(select(provided_users.c.user).where(this)).first() is not None


def provided_users_of(c: Connection, user: str) -> list[ProvidedUserRow]:
    """Return who a user is at each provider."""
    query = select(*columns_of(provided_users, ProvidedUserRow)).where(provided_users.c.user == user)
    return read_rows(c.execute(query.order_by(provided_users.c.provider)), ProvidedUserRow)


def add_provided_user(c: Connection, provider: str, subject: str, user: str, now: float) -> None:
    """Let a person of a provider be a user."""
    values = {"provider": provider, "subject": subject, "user": user, "created_at": now, "read_at": now}
    c.execute(insert(provided_users).values(**values))
    note(c, f"users/{user}/providers/{provider}")


def note_reading(c: Connection, provider: str, subject: str, refresh: str | None, now: float) -> None:
    """Record that a person was read again; ``refresh`` replaces what is kept of him."""
    this = and_(provided_users.c.provider == provider, provided_users.c.subject == subject)
    c.execute(update(provided_users).where(this).values(refresh=refresh, read_at=now))


def drop_provided_user(c: Connection, user: str, provider: str) -> bool:
    """Let a user be nobody at a provider, whose groups give him nothing any more; False if he was nobody there."""
    this = and_(provided_users.c.user == user, provided_users.c.provider == provider)
    if c.execute(delete(provided_users).where(this).returning(provided_users.c.user)).first() is None:
        return False
    c.execute(delete(members).where(members.c.user == user, members.c.given_by == provider))
    by_it = and_(users.c.name == user, users.c.operator_by == provider)
    c.execute(update(users).where(by_it).values(operator=0, operator_by=None))
    set_away(c, user, None)  # if that provider did not stand for him, nothing would ever bring him back
    return True


def unread_users(c: Connection, before: float, limit: int) -> list[ProvidedUserRow]:
    """Return people whose groups were read before a time, the longest ago first, of whom a token is kept."""
    query = select(*columns_of(provided_users, ProvidedUserRow)).join(users, users.c.name == provided_users.c.user)
    due = query.where(
        provided_users.c.read_at < before,
        provided_users.c.refresh.is_not(None),
        users.c.state == "active",
        users.c.away_since.is_(None),
    )
    return read_rows(c.execute(due.order_by(provided_users.c.read_at).limit(limit)), ProvidedUserRow)


def claim_reading(c: Connection, row: ProvidedUserRow, now: float) -> bool:
    """Take a person for reading, before others do; False if another process has."""
    this = and_(
        provided_users.c.provider == row.provider,
        provided_users.c.subject == row.subject,
        provided_users.c.read_at == row.read_at,
    )
    claiming = update(provided_users).where(this).values(read_at=now).returning(provided_users.c.user)
    return c.execute(claiming).first() is not None


def set_away(c: Connection, user: str, since: float | None) -> None:
    """Record since when a provider does not stand for a user, whose tokens and sessions are refused; None: it does."""
    changed = users.c.away_since.is_not(None) if since is None else users.c.away_since.is_(None)
    c.execute(update(users).where(users.c.name == user, changed).values(away_since=since))


def set_operator_by(c: Connection, user: str, provider: str, *, operator: bool) -> None:
    """Make a user an operator by the groups of a provider, or no longer; whom an operator made one stays one."""
    by_it = or_(and_(users.c.operator == 0), users.c.operator_by == provider)
    values = {"operator": int(operator), "operator_by": provider if operator else None}
    c.execute(update(users).where(users.c.name == user, by_it).values(**values))


def given_roles(c: Connection, user: str) -> dict[str, tuple[str, str | None]]:
    """Return the roles of a user by project, each with the provider that gives it; None: a maintainer did."""
    rows = c.execute(select(members.c.member_of, members.c.role, members.c.given_by).where(members.c.user == user))
    return {project: (role, given_by) for project, role, given_by in rows}


# -- devices


def forget_devices(c: Connection, now: float) -> int:
    """Delete sign-ins of devices that are too old; return how many wait."""
    c.execute(delete(device_sign_ins).where(device_sign_ins.c.expires_at <= now))
    return c.scalar(select(func.count()).select_from(device_sign_ins)) or 0


def add_device(c: Connection, values: Mapping[str, object]) -> None:
    """Insert a sign-in of a device."""
    c.execute(insert(device_sign_ins).values(**values))


def has_code(c: Connection, code: str) -> bool:
    """Return whether a code is in use."""
    return c.execute(select(device_sign_ins.c.id).where(device_sign_ins.c.code == code)).first() is not None


def device(c: Connection, now: float, *, id: str = "", code: str = "", lock: bool = False) -> DeviceRow | None:
    """Return a sign-in of a device that is not too old, by the digest of its own code or by the person's."""
    this = device_sign_ins.c.id == id if id else device_sign_ins.c.code == code
    query = select(*columns_of(device_sign_ins, DeviceRow)).where(this, device_sign_ins.c.expires_at > now)
    return read_row(c.execute(query.with_for_update() if lock else query).first(), DeviceRow)


def answer_device(c: Connection, code: str, user: str, state: str) -> bool:
    """Record a person's answer; False if there is one already."""
    waiting = and_(device_sign_ins.c.code == code, device_sign_ins.c.state == "waiting")
    answering = update(device_sign_ins).where(waiting).values(state=state, user=user)
    return c.execute(answering.returning(device_sign_ins.c.id)).first() is not None


def note_device_token(c: Connection, id: str, token_id: str) -> None:
    """Record which token a device has fetched."""
    c.execute(update(device_sign_ins).where(device_sign_ins.c.id == id).values(token_id=token_id))
