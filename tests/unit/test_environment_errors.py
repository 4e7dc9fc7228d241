"""What uv says about an index: out of reach, which a later attempt may find otherwise, or a refusal."""

import pytest

from runtimes.environments import IndexUnavailable, preparation_error


@pytest.mark.parametrize(
    "output",
    [
        "error: Failed to fetch: `https://pypi.org/simple/numpy/` Caused by: error sending request for url",
        "dns error: failed to lookup address information",
        "tcp connect error: Connection refused (os error 111)",
        "operation timed out",
        "HTTP status server error (503 Service Unavailable) for url (https://pypi.org/simple/numpy/)",
        "Network connectivity is disabled, but the requested data wasn't found in the cache",
    ],
)
def test_an_index_out_of_reach_is_an_outage(output: str) -> None:
    assert isinstance(preparation_error(output), IndexUnavailable)


@pytest.mark.parametrize(
    "output",
    [
        "Hash mismatch for `numpy==2.3.4`",
        "HTTP status client error (404 Not Found) for url (https://example.com/simple/numpy/)",
        "No solution found when resolving dependencies",
    ],
)
def test_a_refused_or_wrong_package_is_not(output: str) -> None:
    assert not isinstance(preparation_error(output), IndexUnavailable)
