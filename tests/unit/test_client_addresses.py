"""Callers: the address that a limit counts, behind proxies and without."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.client_addresses import LOCAL, address_of, networks

PROXIES = networks(["10.0.0.0/8", "fd00::1"])
ADDRESSES = st.ip_addresses().map(str)


@pytest.mark.parametrize(
    ("peer", "forwarded", "caller"),
    [
        ("203.0.113.7", "", "203.0.113.7"),
        ("203.0.113.7", "198.51.100.1", "203.0.113.7"),  # not a proxy: the header may be invented
        ("10.0.0.1", "198.51.100.1", "198.51.100.1"),
        ("10.0.0.1", "192.0.2.9, 198.51.100.1", "198.51.100.1"),  # the client invented the first
        ("10.0.0.1", "198.51.100.1, 10.2.3.4", "198.51.100.1"),  # two proxies
        ("10.0.0.1", "198.51.100.1:4711", "198.51.100.1"),
        ("10.0.0.1", "unknown", "10.0.0.1"),
        ("10.0.0.1", "", "10.0.0.1"),
        ("fd00::1", "[2001:db8:1:2::3]:80", "2001:db8:1:2::/64"),
        ("2001:db8:1:2:aaaa::1", "", "2001:db8:1:2::/64"),
        ("::ffff:203.0.113.7", "", "203.0.113.7"),
        ("fe80::1%eth0", "", "fe80::/64"),
        ("", "198.51.100.1", LOCAL),
    ],
)
def test_the_caller_is_the_nearest_address_that_is_not_a_trusted_proxy(peer: str, forwarded: str, caller: str) -> None:
    assert address_of(peer, forwarded, PROXIES) == caller


@given(ADDRESSES, st.text(), st.text())
def test_a_header_of_an_untrusted_peer_never_changes_its_caller(peer: str, first: str, second: str) -> None:
    assert address_of(peer, f"{first},{second}") == address_of(peer)


@given(st.text(), st.ip_addresses(v=4).map(str))
def test_what_a_client_writes_before_the_address_that_a_proxy_appended_is_ignored(invented: str, client: str) -> None:
    appended = f"{invented}, {client}"
    if not client.startswith("10."):
        assert address_of("10.0.0.1", appended, PROXIES) == address_of(client)
