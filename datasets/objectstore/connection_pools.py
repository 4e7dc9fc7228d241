"""Connection pools: keep-alive connections with time-outs and retries, for whatever is fetched from other servers.

Apart from the S3 client, whose library takes a sixth of a platform's start to import: most platforms have no bucket.
"""

import logging
from dataclasses import dataclass

from urllib3 import PoolManager, Retry, Timeout

# urllib3 logs a warning per retry, with the host and bytes of the response; the caller logs the outcome.
logging.getLogger("urllib3.connectionpool").setLevel(logging.ERROR)


@dataclass(frozen=True, slots=True)
class ConnectionLimits:
    """Time-outs and retries of requests to another server."""

    #: Connect time-out in seconds.
    connect: float = 3.0
    #: Read time-out in seconds.
    read: float = 30.0
    #: Resumptions of an interrupted download in a row without a byte of progress.
    resumptions: int = 5


LIMITS = ConnectionLimits()


def connection_pools(limits: ConnectionLimits) -> PoolManager:
    """Create thread-safe connection pools with time-outs and retries, without redirects."""
    # `s3_body.resuming` resumes partially read bodies; urllib3 repeats only requests without a response.
    retries = Retry(
        total=3,
        read=1,
        redirect=False,
        backoff_factor=0.1,
        backoff_jitter=0.2,
        status_forcelist=(500, 502, 503, 504),
        raise_on_status=False,
        respect_retry_after_header=False,
    )
    return PoolManager(maxsize=64, timeout=Timeout(connect=limits.connect, read=limits.read), retries=retries)
