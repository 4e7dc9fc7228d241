"""Accounts of a platform: its projects and users, and the members, service accounts and tokens of a project."""

import builtins
from collections.abc import AsyncIterator, Sequence

import msgspec

from windtunnel._async.pages import pages
from windtunnel._async.transport import AsyncTransport, path
from windtunnel.account_records import AccessToken, AccountProject, ClientIdentity, ProjectMember, User
from windtunnel.contexts import Server
from windtunnel.errors import BadConfiguration, Refused, WindtunnelError
from windtunnel.record import Record, read

#: Seconds that signing in waits for a platform.
SIGN_IN_TIMEOUT = 10.0


class AsyncProjects:
    """Projects of a platform, for its operators."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None) -> AsyncIterator[AccountProject]:
        """Yield all projects, by name."""
        async for document in pages(self._transport, path("projects"), {}, limit):
            yield read(AccountProject, document)

    async def create(self, name: str) -> AccountProject:
        """Create a project; it has no members yet."""
        return read(AccountProject, await self._transport.json("POST", path("projects"), json={"name": name}))

    async def close(self, name: str) -> AccountProject:
        """Accept nothing new in a project, and cancel what it has under way."""
        return read(AccountProject, await self._transport.json("POST", path("projects", name, "close")))

    async def delete(self, name: str) -> None:
        """Delete a project that is closed, with all that it has; its name is never used again."""
        await self._transport.request("DELETE", path("projects", name))


class AsyncUsers:
    """Users of a platform, for its operators."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, limit: int | None = None) -> AsyncIterator[User]:
        """Yield all users, by name; service accounts are among them."""
        async for document in pages(self._transport, path("users"), {}, limit):
            yield read(User, document)

    async def invite(self, name: str, *, operator: bool = False) -> User:
        """Create a user, and return it with the invitation, which is shown this once."""
        body = {"name": name, "operator": operator}
        return read(User, await self._transport.json("POST", path("users"), json=body))

    async def signs_in(self, name: str) -> bool:
        """Return whether a user has a password, a passkey or an identity provider."""
        known = await self._transport.json("GET", path("users", name, "sign-in-methods"))
        methods = msgspec.convert(known, _Methods)
        return bool(methods.password or methods.passkeys or methods.providers)

    async def invite_again(self, name: str) -> str:
        """Return another invitation of a user, which is shown this once; the one before is void."""
        return read(_Invitation, await self._transport.json("POST", path("users", name, "invitation"))).invitation

    async def remove(self, name: str) -> None:
        """Let a user leave: the user's tokens and sessions are refused within two seconds."""
        await self._transport.request("DELETE", path("users", name))


class AsyncMembers:
    """Members of the project that a client acts in."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self) -> builtins.list[ProjectMember]:
        """Return the members, by name; service accounts are among them."""
        address = path("projects", await project_of(self._transport), "members")
        return [read(ProjectMember, item) for item in await _items(self._transport, address)]

    async def set(self, user: str, role: str) -> str:
        """Give a user a role, in place of the one that the user has; return the project."""
        project = await project_of(self._transport)
        await self._transport.request("PUT", path("projects", project, "members", user), json={"role": role})
        return project

    async def remove(self, user: str) -> str:
        """End a membership, and with it what the user's tokens of the project may do; return the project."""
        project = await project_of(self._transport)
        await self._transport.request("DELETE", path("projects", project, "members", user))
        return project


class AsyncServices:
    """Service accounts of the project that a client acts in."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def create(self, name: str, role: str) -> User:
        """Create a service account, a member with this role; ``tokens.create(..., service=name)`` makes its tokens."""
        address = path("projects", await project_of(self._transport), "services")
        return read(User, await self._transport.json("POST", address, json={"name": name, "role": role}))


class AsyncTokens:
    """Tokens of the project that a client acts in; with ``user``, the personal tokens of this user."""

    def __init__(self, transport: AsyncTransport) -> None:
        self._transport = transport

    async def list(self, *, user: str | None = None) -> builtins.list[AccessToken]:
        """Return tokens, the newest first; the personal ones of a user with the sessions of browsers."""
        return [read(AccessToken, item) for item in await _items(self._transport, await self._address(user))]

    async def create(
        self,
        name: str,
        *,
        role: str | None = None,
        verbs: Sequence[str] = (),
        expires_in: int | None = None,
        service: str | None = None,
        user: str | None = None,
        models: Sequence[str] = (),
        datasets: Sequence[str] = (),
    ) -> AccessToken:
        """Make a token, and return it with its text, which is shown this once. One of a project needs a ``role``.

        ``verbs``: the only ones that it has, if there are any. ``expires_in``: seconds. ``service``: the service
        account whose token it is. ``models`` and ``datasets``: patterns of the names of the only ones that it is for,
        such as ``brake*`` or ``streets@3``.
        """
        limits = {"verbs": [*verbs], "models": [*models], "datasets": [*datasets]}
        scope = {name: values for name, values in limits.items() if values} or None
        body = {"name": name, "role": role, "expires_in": expires_in, "service": service, "scope": scope}
        body = {key: value for key, value in body.items() if value is not None}
        return read(AccessToken, await self._transport.json("POST", await self._address(user), json=body))

    async def revoke(self, id: str, *, user: str | None = None) -> None:
        """Revoke a token, or end a session: within two seconds it is refused everywhere."""
        address = await self._address(user)
        await self._transport.request("DELETE", address + path(id).removeprefix("/v1"))

    async def _address(self, user: str | None) -> str:
        if user is not None:
            return path("users", user, "tokens")
        return path("projects", await project_of(self._transport), "tokens")


class _Methods(msgspec.Struct):
    """How a user signs in."""

    password: bool
    passkeys: list[object]
    providers: list[object]


class _Invitation(Record, frozen=True):
    """An invitation."""

    invitation: str


class _Items(msgspec.Struct):
    """A list that is not divided into pages."""

    items: list[dict[str, object]]


async def _items(transport: AsyncTransport, address: str) -> list[dict[str, object]]:
    return msgspec.convert(await transport.json("GET", address), _Items).items


async def identity_of(transport: AsyncTransport) -> ClientIdentity:
    """Return who the requests of a transport are."""
    return read(ClientIdentity, await transport.json("GET", path("session")))


async def project_of(transport: AsyncTransport) -> str:
    """Return the project that a transport acts in: the one that it names, or its user's only one.

    Raise WindtunnelError if the user is in several, or in none.
    """
    if transport.server.project:
        return transport.server.project
    who = await identity_of(transport)
    if who.project is None:
        raise WindtunnelError(_choice(who))
    return who.project


def _choice(who: ClientIdentity) -> str:
    """Return how a user names a project who is in several, or in none."""
    if who.projects:
        names = [project.name for project in who.projects]
        step = f"Name one: `--project {names[0]}`, or WINDTUNNEL_PROJECT={names[0]}."
        return f"You are in several projects: {', '.join(names)}. {step}"
    if who.operator:
        return (
            "You are in no project. An operator may name any: `--project NAME`, or WINDTUNNEL_PROJECT."
            " `windtunnel projects` lists them."
        )
    return (
        "You are in no project yet. A maintainer of one adds you:"
        f" `windtunnel members set {who.user} submitter --project NAME`."
    )


async def sign_in(server: Server) -> ClientIdentity:
    """Return who the token of a server's address is; raise Refused for one that it does not accept."""
    transport = AsyncTransport(server, patience=0.0, timeout=SIGN_IN_TIMEOUT)
    try:
        return await identity_of(transport)
    finally:
        await transport.close()


async def needs_token(url: str) -> bool:
    """Return whether a platform asks for a token; raise BadConfiguration if the address is not that of a platform."""
    try:
        await sign_in(Server(url))
    except Refused as refusal:
        if refusal.type == "unauthorized":
            return True
        raise BadConfiguration(
            f"{url} answers, but not as a platform does that one signs in to: {refusal} Is the address right?"
        ) from None
    return False


async def redeem(url: str, user: str, invitation: str, name: str) -> AccessToken:
    """Return the first token of a user, for the invitation, which is used up; ``name``: what the token is for."""
    transport = AsyncTransport(Server(url), patience=0.0, timeout=SIGN_IN_TIMEOUT)  # no token is sent: it has none
    try:
        body = {"name": name, "invitation": invitation}
        return read(AccessToken, await transport.json("POST", path("users", user, "tokens"), json=body))
    except Refused as refusal:
        if refusal.status != 401:
            raise
        raise BadConfiguration(
            f"This invitation is not valid: it was used, is older than a week, or is not that of {user}. An operator"
            f" makes a token in its place: `windtunnel tokens create NAME --user {user}`."
        ) from None
    finally:
        await transport.close()
