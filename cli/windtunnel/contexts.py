"""Contexts: named platforms with their addresses, in the user's configuration; tokens in the keyring if there is one.

The address is, in this order: the argument, ``WINDTUNNEL_URL``, the context (argument, ``WINDTUNNEL_CONTEXT``, or the
current one), port ``WINDTUNNEL_PORT`` of this machine, the platform that runs in this user's home folder of the server
(``WINDTUNNEL_HOME``), ``http://localhost:5000``. The token: the argument, ``WINDTUNNEL_TOKEN``, that of the context.
The project: the argument, ``WINDTUNNEL_PROJECT``, that of the context. The token and the project of a context are sent
to the address of this context only.
"""

import os
import re
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec

from windtunnel.errors import BadConfiguration

DEFAULT_URL = "http://localhost:5000"
#: Name under which the keyring stores tokens.
SERVICE = "windtunnel"
#: Backends of `keyring` that store nothing, or in plain text: then the file, which only its owner can read, is as good.
NO_KEYRINGS = frozenset({"keyring.backends.fail", "keyring.backends.null", "keyrings.alt.file"})


PROJECT_NAME = re.compile(r"[a-z0-9-]{1,40}")


@dataclass(frozen=True, slots=True)
class Server:
    """A platform: its address without a slash at the end; the token and the project that its requests name, if any."""

    url: str
    token: str | None = field(default=None, repr=False)
    context: str | None = None
    project: str | None = None


class Context(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """A named platform; ``token`` is in the keyring, in this file, or there is none.

    ``project``: the one that requests act in, unless they name another.
    """

    url: str
    token: str | None = None
    keyring: bool = False
    project: str | None = None

    def acting_in(self, project: str) -> "Context":
        """Return the context with another project."""
        return msgspec.structs.replace(self, project=project)

    def __repr__(self) -> str:
        return f"Context({self.url!r}, keyring={self.keyring})"


@dataclass(frozen=True, slots=True)
class Contexts:
    """All contexts by name, and the name of the current one."""

    current: str | None = None
    contexts: Mapping[str, Context] = field(default_factory=dict)

    def get(self, name: str) -> Context:
        """Return a context; raise BadConfiguration if there is none of this name."""
        if name not in self.contexts:
            known = ", ".join(sorted(self.contexts)) or "none yet"
            raise BadConfiguration(
                f"There is no context {name!r}; there are: {known}. `windtunnel context add {name} URL` adds it."
            )
        return self.contexts[name]

    def with_context(self, name: str, context: Context, *, use: bool) -> "Contexts":
        """Return the contexts with one more, or with another one under this name."""
        return Contexts(name if use or self.current is None else self.current, {**self.contexts, name: context})

    def without(self, name: str) -> "Contexts":
        """Return the contexts without one."""
        self.get(name)
        rest = {key: value for key, value in self.contexts.items() if key != name}
        return Contexts(None if self.current == name else self.current, rest)

    def using(self, name: str) -> "Contexts":
        """Return the contexts with another current one."""
        self.get(name)
        return replace(self, current=name)


def config_path(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the file of the contexts."""
    if folder := environ.get("WINDTUNNEL_CONFIG"):
        return Path(folder)
    return Path(environ.get("XDG_CONFIG_HOME") or Path.home() / ".config") / "windtunnel" / "contexts.json"


def state_folder(environ: Mapping[str, str] = os.environ) -> Path:
    """Return the folder of what the client remembers, such as unfinished uploads."""
    return Path(environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "windtunnel"


def local_url(environ: Mapping[str, str] = os.environ) -> str:
    """Return the address of the platform of this machine: by ``WINDTUNNEL_PORT``, or where it says that it serves."""
    if port := environ.get("WINDTUNNEL_PORT"):
        if not (port.isascii() and port.isdigit() and 0 < int(port) < 1 << 16):
            raise BadConfiguration(f"WINDTUNNEL_PORT is {port!r}, which is not a port; set it to one, or unset it.")
        return f"http://localhost:{port}"
    return next(filter(None, map(_running_at, _server_homes(environ))), DEFAULT_URL)


def _server_homes(environ: Mapping[str, str]) -> list[Path]:
    """Return the folders that a server of this user has its data in: the one that is set, or the defaults."""
    if home := environ.get("WINDTUNNEL_HOME"):
        return [Path(home)]
    from windtunnel.server_command import checkout_of

    checkout = checkout_of(Path(__file__))
    base = Path(environ.get("XDG_DATA_HOME", ""))
    data = base if base.is_absolute() else Path(environ.get("HOME") or Path.home()) / ".local" / "share"
    return [*([checkout / "var"] if checkout else []), data / "windtunnel"]


def _running_at(home: Path) -> str | None:
    """Return the address that the server of a home serves at; None without any.

    It counts only in a folder of this user that no other user can enter, and if it is one of this machine: a token of
    ``WINDTUNNEL_TOKEN`` is sent there.
    """
    try:
        status = (home / "run").stat()
        text = (home / "run" / "address").read_text().strip()
        if status.st_uid != os.getuid() or status.st_mode & 0o077:
            return None
        return text if urlsplit(text).hostname in {"127.0.0.1", "::1"} and checked_url(text) == text else None
    except (OSError, ValueError, BadConfiguration):
        return None


def load(path: Path) -> Contexts:
    """Read the contexts; there are none if there is no file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=Contexts)
    except FileNotFoundError:
        return Contexts()
    except (OSError, msgspec.MsgspecError) as error:
        raise BadConfiguration(
            f"{path} cannot be read ({error}). Mend it, or delete it and add your contexts again."
        ) from None


def save(path: Path, contexts: Contexts) -> None:
    """Write the contexts, readable by their owner only; a reader sees the old or the new file, never a part."""
    write_privately(path, msgspec.json.format(msgspec.json.encode(contexts)).decode() + "\n")


def write_privately(path: Path, text: str) -> None:
    """Replace a file by one with this text, with mode 0600."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    descriptor, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    try:
        with os.fdopen(descriptor, "w") as file:
            file.write(text)
        os.replace(draft, path)
    except BaseException:
        with suppress(OSError):
            os.unlink(draft)
        raise


def checked_url(url: str) -> str:
    """Return the address of a platform in its normal form; raise BadConfiguration if it is none."""
    text = url.strip()
    if not text.isascii() or not text.isprintable() or " " in text or "\\" in text:
        raise BadConfiguration(f"{url!r} is not an address. An example is {DEFAULT_URL}.")
    text = text if "://" in text else f"http://{text}"
    try:
        parts = urlsplit(text)
        port = parts.port
    except ValueError as error:
        raise BadConfiguration(f"{url!r} is not an address: {error}. An example is {DEFAULT_URL}.") from None
    if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query or parts.fragment or port == 0:
        raise BadConfiguration(f"{url!r} is not the address of a platform. An example is {DEFAULT_URL}.")
    if parts.username is not None or parts.password is not None:
        raise BadConfiguration("A name or a password in the address would be shown; use a token instead.")
    return text.rstrip("/").removesuffix("/v1")  # the client adds it


def server(
    url: str | None = None,
    token: str | None = None,
    context: str | None = None,
    environ: Mapping[str, str] = os.environ,
    *,
    project: str | None = None,
) -> Server:
    """Return the platform that the arguments, the environment and the contexts select, in this order.

    ``project``: the one that requests act in, or that of ``WINDTUNNEL_PROJECT`` or of the context; needed by who is in
    several.
    """
    address, name, found = select_platform(url, context, environ)
    own = found is not None and checked_url(found.url) == address
    secret = token or environ.get("WINDTUNNEL_TOKEN") or None
    if secret is None and name and found is not None and own:
        secret = stored_token(name, found)
    selected = project or environ.get("WINDTUNNEL_PROJECT") or (found.project if found is not None and own else None)
    return Server(address, checked_token(secret), name, checked_project(selected))


def select_platform(
    url: str | None = None, context: str | None = None, environ: Mapping[str, str] = os.environ
) -> tuple[str, str | None, Context | None]:
    """Return the address that the arguments, the environment and the contexts select, and its context with its name."""
    name: str | None = None
    found: Context | None = None
    explicit = url or (None if context else environ.get("WINDTUNNEL_URL"))
    if not explicit or context:
        contexts = load(config_path(environ))
        name = context or environ.get("WINDTUNNEL_CONTEXT") or contexts.current
        found = contexts.get(name) if name else None
    return checked_url(explicit or (found.url if found else local_url(environ))), name, found


def checked_token(token: str | None) -> str | None:
    """Return a token; raise BadConfiguration for one that a header cannot have."""
    if token is not None and not (token.isascii() and token.isprintable() and token.strip() == token):
        raise BadConfiguration("The token has characters that a header cannot have; copy it again.")
    return token


def checked_project(project: str | None) -> str | None:
    """Return the name of a project; raise BadConfiguration for a text that is none."""
    if project is not None and not PROJECT_NAME.fullmatch(project):
        raise BadConfiguration(f"{project!r} is not the name of a project: letters (a to z), digits and dashes.")
    return project


def stored_token(name: str, context: Context) -> str | None:
    """Return the token of a context, from the keyring or the file; None if it has none."""
    if not context.keyring:
        return context.token
    token = None
    with suppress(Exception):  # whatever a backend raises: locked, no session bus
        if (keyring := system_keyring()) is not None:
            token = keyring.get_password(SERVICE, f"{name} {context.url}")
    if token is None:
        raise BadConfiguration(
            f"The token of the context {name!r} is not in the keyring any more, or the keyring is locked."
            f" `windtunnel login --context {name}` stores it again; WINDTUNNEL_TOKEN replaces it."
        )
    return str(token)


def store_token(name: str, url: str, token: str | None, *, project: str | None = None) -> Context:
    """Store the token of a context in the keyring, or in the context where there is no keyring."""
    with suppress(Exception):  # whatever a backend raises: locked, no session bus
        if token and (keyring := system_keyring()) is not None:
            keyring.set_password(SERVICE, f"{name} {url}", token)
            return Context(url, keyring=True, project=project)
    return Context(url, token, project=project)


def forget_token(name: str, context: Context) -> None:
    """Delete the token of a context from the keyring."""
    with suppress(Exception):
        if context.keyring and (keyring := system_keyring()) is not None:
            keyring.delete_password(SERVICE, f"{name} {context.url}")


def system_keyring() -> Any:
    """Return the module `keyring` if it is installed and has a place for secrets, else None."""
    try:
        import keyring
    except ImportError:
        return None
    backend = type(keyring.get_keyring())
    return None if backend.__module__ in NO_KEYRINGS else keyring
