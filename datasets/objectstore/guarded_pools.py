"""Guarded connection pools: a connection to an address that a rule forbids is closed before a request is sent on it."""

from collections.abc import Callable
from typing import Any

from urllib3 import PoolManager
from urllib3.connection import HTTPConnection, HTTPSConnection
from urllib3.connectionpool import HTTPConnectionPool, HTTPSConnectionPool
from urllib3.exceptions import HTTPError


class ForbiddenAddress(HTTPError):
    """The host resolves to an IP address that may not be connected to."""


def guard(pools: PoolManager, permitted: Callable[[str], bool]) -> PoolManager:
    """Close connections to forbidden addresses, whatever the host name resolved to before (DNS rebinding)."""

    def checked(sock: Any) -> Any:
        if not permitted(sock.getpeername()[0]):
            sock.close()
            raise ForbiddenAddress("the address is forbidden")
        return sock

    class GuardedHTTP(HTTPConnection):
        def _new_conn(self) -> Any:
            return checked(super()._new_conn())

    class GuardedHTTPS(HTTPSConnection):
        def _new_conn(self) -> Any:
            return checked(super()._new_conn())

    class GuardedPool(HTTPConnectionPool):
        ConnectionCls = GuardedHTTP

    class GuardedTLSPool(HTTPSConnectionPool):
        ConnectionCls = GuardedHTTPS

    pools.pool_classes_by_scheme = {"http": GuardedPool, "https": GuardedTLSPool}
    return pools
