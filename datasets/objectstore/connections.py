"""Connections: object storage that an operator configured, with its credentials and the buckets it may read."""

import ipaddress
import json
import os
import re
import socket
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from common.errors import Invalid
from common.patterns import CONNECTION_NAME

#: Names of connections.
NAME = CONNECTION_NAME
_NAME = re.compile(NAME)
#: Members of a connections file: object storage, and other origins of models (`datasets/model_origins/config.py`).
_MEMBERS = frozenset({"connections", "addresses", "mlflow"})
#: Member of an entry that lists the projects which may use it.
PROJECTS_MEMBER = "projects"
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_NUMBERS = re.compile(r"[0-9.]+")
#: Addresses of cloud metadata services (credentials), beside the link-local 169.254.169.254.
_METADATA = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")})
#: Projects that use what lists none: that of a platform without accounts. `*` in a list: every project.
DEFAULT_PROJECTS = ("default",)
EVERY_PROJECT = "*"
_PROJECT_NAME = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,38}[a-z0-9])?")
#: Bytes of a connections file at most; a larger file is refused.
LARGEST = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """Named object storage. Empty ``buckets``: all buckets that its credentials can read.

    ``projects``: those that may use it; for others it does not exist.
    """

    name: str
    endpoint: str
    region: str = "us-east-1"
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    buckets: tuple[str, ...] = ()
    projects: tuple[str, ...] = DEFAULT_PROJECTS

    def __post_init__(self) -> None:
        """Raise ValueError unless the endpoint is ``http[s]://host[:port]``; the message does not repeat it."""
        address(self)
        if not _REGION.fullmatch(self.region):
            raise ValueError(f"connection {self.name}: invalid region")


def address(connection: Connection) -> SplitResult:
    """Return a connection's endpoint, parsed."""
    parts = urlsplit(connection.endpoint)
    try:
        port = parts.port
    except ValueError:
        port = 0
    extra = parts.path.rstrip("/") or parts.query or parts.fragment or "@" in parts.netloc
    if parts.scheme not in {"http", "https"} or not parts.hostname or extra or port == 0:
        raise ValueError(f"connection {connection.name}: an endpoint is http://host:port or https://host:port")
    return parts


def port_of(connection: Connection) -> int:
    """Return the port of a connection's endpoint."""
    parts = address(connection)
    return parts.port or {"http": 80, "https": 443}[parts.scheme]


def load(path: Path) -> Mapping[str, Connection]:
    """Read the connections of a connections file; without a file there are none."""
    connections = read_document(path).get("connections", {})
    if not isinstance(connections, dict):
        raise ValueError(f"{path}: connections must be an object by name")
    return dict(_connections(path, connections))


def read_document(path: Path) -> dict[str, Any]:
    """Read a connections file; without a file it is empty. Errors do not repeat the file's content."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise ValueError(f"{path} contains credentials and is readable by other users; run: chmod 600 {path}")
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        return {}
    try:
        document = json.loads(text) if len(text) <= LARGEST else None
    except ValueError:
        raise ValueError(f"{path} is not JSON") from None
    if not isinstance(document, dict) or not document or not set(document) <= _MEMBERS:
        raise ValueError(f'{path}: expected {{"connections": {{name: {{...}}}}}}, "addresses" and "mlflow" at most')
    return document


def _connections(path: Path, connections: Mapping[str, Any]) -> Iterator[tuple[str, Connection]]:
    allowed = {field.name for field in fields(Connection)} - {"name"}
    for name, values in connections.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{path}: a connection's name has lower-case letters, digits, - and _, up to 63")
        if not isinstance(values, dict) or not set(values) <= allowed or "endpoint" not in values:
            raise ValueError(f"{path}: connection {name} needs an endpoint, and may have {', '.join(sorted(allowed))}")
        projects = projects_of(f"{path}: connection {name}", values)
        values = {key: value for key, value in values.items() if key != PROJECTS_MEMBER}
        buckets = values.pop("buckets", [])
        if not isinstance(buckets, list) or not all(isinstance(value, str) for value in [*buckets, *values.values()]):
            raise ValueError(
                f"{path}: connection {name} has a value that is not a string; buckets are a list of strings"
            )
        yield name, Connection(name=name, buckets=tuple(buckets), projects=projects, **values)


def projects_of(what: str, values: Mapping[str, object]) -> tuple[str, ...]:
    """Return the projects that an entry of a connections file lists; raise ValueError, which begins with ``what``."""
    projects = values.get(PROJECTS_MEMBER, [*DEFAULT_PROJECTS])
    if not isinstance(projects, list) or not all(
        isinstance(name, str) and (name == EVERY_PROJECT or _PROJECT_NAME.fullmatch(name)) for name in projects
    ):
        raise ValueError(f'{what}: projects are a list of names of projects, or ["*"] for all')
    return tuple(projects)


def serves(projects: Collection[str], project: str) -> bool:
    """Tell whether a project is among those that an entry of a connections file lists."""
    return project in projects or EVERY_PROJECT in projects


def find(connections: Mapping[str, Connection], name: str) -> Connection:
    """Return a connection by name; raise Invalid if it does not exist."""
    if name not in connections:
        names = ", ".join(sorted(connections)) or "none"
        raise Invalid(f"There is no connection {name[:63]!r}; configured are: {names}.")
    return connections[name]


def is_bucket(name: str) -> bool:
    """Tell whether a name is a valid bucket name by S3's rules."""
    if not _BUCKET.fullmatch(name) or _NUMBERS.fullmatch(name) or any(pair in name for pair in ("..", ".-", "-.")):
        return False
    return not name.startswith(("xn--", "sthree-")) and not name.endswith(("-s3alias", "--ol-s3"))


def check(connection: Connection, bucket: str, *, own: Iterable[tuple[Connection, str]] = ()) -> tuple[str, ...]:
    """Return the IP addresses under which a bucket may be read; raise Invalid if the connection does not allow it.

    ``own``: the platform's connections and buckets. They must not be read through another connection, whatever host
    name that uses; addresses and port are compared.
    """
    if not is_bucket(bucket):
        raise Invalid(f"{bucket[:63]!r} is not a valid bucket name.")
    if connection.buckets and bucket not in connection.buckets:
        raise Invalid(f"The connection {connection.name} does not allow the bucket {bucket}.")
    numbers = addresses(connection)
    for own_connection, own_bucket in own:
        same_port = own_bucket == bucket and port_of(own_connection) == port_of(connection)
        if same_port and not set(numbers).isdisjoint(addresses(own_connection)):
            raise Invalid(f"The bucket {bucket} is the platform's own bucket.")
    return numbers


def addresses(connection: Connection) -> tuple[str, ...]:
    """Resolve a connection's host to IP addresses; raise Invalid if an address is forbidden."""
    host = address(connection).hostname or ""
    try:
        resolved = socket.getaddrinfo(host, port_of(connection), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Invalid(f"The host of the connection {connection.name} cannot be resolved on this machine.") from None
    numbers = tuple(dict.fromkeys(str(info[4][0]) for info in resolved))
    if not all(permitted(number) for number in numbers):
        raise Invalid(
            f"The connection {connection.name} resolves to a forbidden address (link-local, multicast or metadata)."
        )
    return numbers


def permitted(number: str) -> bool:
    """Tell whether an IP address may be connected to: link-local and metadata addresses serve cloud credentials."""
    ip = ipaddress.ip_address(number.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return not (ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip in _METADATA)
