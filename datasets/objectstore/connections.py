"""Connections: the object storage an operator named, with its credentials, and what may be read through it."""

import ipaddress
import json
import os
import re
import socket
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any
from urllib.parse import SplitResult, urlsplit

from errors import Invalid

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,62}")
_REGION = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,62}")
_BUCKET = re.compile(r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")
_NUMBERS = re.compile(r"[0-9.]+")
#: Where clouds tell their machines secrets, beside the link-local 169.254.169.254.
_METADATA = frozenset({ipaddress.ip_address("fd00:ec2::254"), ipaddress.ip_address("100.100.100.200")})
#: How much of a connections file is read; more of it is none.
LARGEST = 1 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Connection:
    """Object storage with a name. No ``buckets`` means: any that its credentials open."""

    name: str
    endpoint: str
    region: str = "us-east-1"
    access_key: str = field(default="", repr=False)
    secret_key: str = field(default="", repr=False)
    buckets: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        """Refuse an endpoint that is more or less than ``http[s]://host[:port]``, without repeating it."""
        address(self)
        if not _REGION.fullmatch(self.region):
            raise ValueError(f"connection {self.name}: this is no name of a region")


def address(connection: Connection) -> SplitResult:
    """Return a connection's endpoint in parts."""
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
    """Return the port a connection leads to."""
    parts = address(connection)
    return parts.port or {"http": 80, "https": 443}[parts.scheme]


def load(path: Path) -> Mapping[str, Connection]:
    """Read the connections an operator wrote; no file, no connections. No error repeats what a file says."""
    try:
        with open(path, "rb") as file:
            if os.fstat(file.fileno()).st_mode & 0o077:
                raise ValueError(f"{path} holds credentials and can be read by others; say: chmod 600 {path}")
            text = file.read(LARGEST + 1)
    except FileNotFoundError:
        return {}
    try:
        document = json.loads(text) if len(text) <= LARGEST else None
    except ValueError:
        raise ValueError(f"{path} is not JSON") from None
    if not isinstance(document, dict) or set(document) != {"connections"}:
        raise ValueError(f'{path}: wanted is {{"connections": {{name: {{...}}}}}} and nothing else')
    if not isinstance(document["connections"], dict):
        raise ValueError(f"{path}: connections are given by name")
    return dict(_connections(path, document["connections"]))


def _connections(path: Path, given: Mapping[str, Any]) -> Iterator[tuple[str, Connection]]:
    known = {one.name for one in fields(Connection)} - {"name"}
    for name, values in given.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{path}: a connection's name has lower-case letters, digits, - and _, up to 63")
        if not isinstance(values, dict) or not set(values) <= known or "endpoint" not in values:
            raise ValueError(f"{path}: connection {name} needs an endpoint, and may have {', '.join(sorted(known))}")
        buckets = values.pop("buckets", [])
        if not isinstance(buckets, list) or not all(isinstance(one, str) for one in [*buckets, *values.values()]):
            raise ValueError(f"{path}: connection {name} has a value that is not text; buckets are a list of text")
        yield name, Connection(name=name, buckets=tuple(buckets), **values)


def find(connections: Mapping[str, Connection], name: str) -> Connection:
    """Return the connection of a name."""
    if name not in connections:
        known = ", ".join(sorted(connections)) or "none"
        raise Invalid(f"There is no connection {name[:63]!r}; the operator named: {known}.")
    return connections[name]


def is_bucket(name: str) -> bool:
    """Tell whether a name is a bucket's by S3's rule."""
    if not _BUCKET.fullmatch(name) or _NUMBERS.fullmatch(name) or any(two in name for two in ("..", ".-", "-.")):
        return False
    return not name.startswith(("xn--", "sthree-")) and not name.endswith(("-s3alias", "--ol-s3"))


def check(connection: Connection, bucket: str, *, own: Iterable[tuple[Connection, str]] = ()) -> tuple[str, ...]:
    """Return the addresses under which a bucket may be read, or raise Invalid.

    ``own`` are the platform's buckets, each with how it reaches them: nobody reads those through a connection, whatever
    name of the host it uses.
    """
    if not is_bucket(bucket):
        raise Invalid(f"{bucket[:63]!r} is no name of a bucket.")
    if connection.buckets and bucket not in connection.buckets:
        raise Invalid(f"The connection {connection.name} does not lead to a bucket {bucket}.")
    found = addresses(connection)
    for mine, held in own:
        if held == bucket and port_of(mine) == port_of(connection) and not set(found).isdisjoint(addresses(mine)):
            raise Invalid(f"The bucket {bucket} is the platform's own.")
    return found


def addresses(connection: Connection) -> tuple[str, ...]:
    """Resolve where a connection leads to; raise Invalid if one of its addresses is none to be asked."""
    host = address(connection).hostname or ""
    try:
        found = socket.getaddrinfo(host, port_of(connection), type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise Invalid(f"The host of the connection {connection.name} is not known to this machine.") from None
    numbers = tuple(dict.fromkeys(str(one[4][0]) for one in found))
    if not all(permitted(number) for number in numbers):
        raise Invalid(f"The connection {connection.name} leads to an address that holds no data sets.")
    return numbers


def permitted(number: str) -> bool:
    """Tell whether an address may be asked: not the link's own, where clouds tell their machines secrets."""
    ip = ipaddress.ip_address(number.partition("%")[0])
    if isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped is not None:
        ip = ip.ipv4_mapped
    return not (ip.is_link_local or ip.is_multicast or ip.is_unspecified or ip in _METADATA)
