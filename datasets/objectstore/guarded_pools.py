"""Guarded connections: a host is resolved once, and what is connected to is one of the addresses that were checked."""

import socket
from collections.abc import Callable

from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError, NameResolutionError
from urllib3.util.connection import allowed_gai_family


class ForbiddenAddress(HTTPError):
    """The host resolves to an IP address that may not be connected to."""


def guard(pools: PoolManager, permitted: Callable[[str], bool]) -> PoolManager:
    """Let pools connect to no forbidden address, whatever the host name resolved to before (DNS rebinding)."""
    http, https = guarded_connections(permitted)

    class GuardedPool(HTTPConnectionPool):
        ConnectionCls = http

    class GuardedTLSPool(HTTPSConnectionPool):
        ConnectionCls = https

    pools.pool_classes_by_scheme = {"http": GuardedPool, "https": GuardedTLSPool}
    return pools


def guarded_connections(permitted: Callable[[str], bool]) -> tuple[type[HTTPConnection], type[HTTPSConnection]]:
    """Return connections that raise ForbiddenAddress if no address of their host is permitted.

    Nothing is sent to an address that is not, not even a request for a connection. The name stays that of the host in
    the request and in the handshake of TLS.
    """

    class GuardedHTTP(HTTPConnection):
        def _new_conn(self) -> socket.socket:
            return _connect_permitted(self, super()._new_conn, permitted)

    class GuardedHTTPS(HTTPSConnection):
        def _new_conn(self) -> socket.socket:
            return _connect_permitted(self, super()._new_conn, permitted)

    return GuardedHTTP, GuardedHTTPS


def _connect_permitted(
    connection: HTTPConnection, connect: Callable[[], socket.socket], permitted: Callable[[str], bool]
) -> socket.socket:
    name = connection._dns_host
    numbers = [number for number in _numbers_of(connection, name) if permitted(number)]
    if not numbers:
        raise ForbiddenAddress("the address is forbidden")
    try:
        for number in numbers[:-1]:
            connection._dns_host = number
            try:
                return _require_permitted(connect(), permitted)
            except ForbiddenAddress:
                raise
            except HTTPError:  # the next address of the host may answer
                continue
        connection._dns_host = numbers[-1]
        return _require_permitted(connect(), permitted)
    finally:
        connection._dns_host = name


def _numbers_of(connection: HTTPConnection, name: str) -> list[str]:
    try:
        found = socket.getaddrinfo(name.strip("[]"), connection.port, allowed_gai_family(), socket.SOCK_STREAM)
    except socket.gaierror as error:
        raise NameResolutionError(connection.host, connection, error) from error
    except UnicodeError as error:
        raise NameResolutionError(connection.host, connection, socket.gaierror(str(error))) from error
    return list(dict.fromkeys(str(info[4][0]) for info in found))


def _require_permitted(sock: socket.socket, permitted: Callable[[str], bool]) -> socket.socket:
    if not permitted(sock.getpeername()[0]):
        sock.close()
        raise ForbiddenAddress("the address is forbidden")
    return sock
