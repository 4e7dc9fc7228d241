"""Client addresses: where a request comes from, also through proxies. Limits per caller count by them."""

from collections.abc import Collection
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

Network = IPv4Network | IPv6Network

#: Bits of an IPv6 address that name a site: a host has the whole /64 (RFC 4291, section 2.5.1) to take addresses from.
SITE = 64
#: Address of a request without a peer address, as over a Unix socket.
LOCAL = "local"


def networks(texts: Collection[str]) -> tuple[Network, ...]:
    """Parse addresses and networks of proxies (``10.0.0.0/8``); raise ValueError."""
    return tuple(ip_network(text) for text in texts)


def address_of(peer: str, forwarded: str = "", proxies: Collection[Network] = ()) -> str:
    """Return the address that a request comes from: its peer's, or the one for which trusted proxies forwarded it.

    ``forwarded`` is X-Forwarded-For: each proxy appends the address of its peer, so the last addresses are true as far
    as they were appended by ``proxies``, and the first is whatever the client wrote.
    """
    address = _parsed(peer)
    if address is None:
        return LOCAL
    for text in reversed(forwarded.split(",") if forwarded else []):
        if not any(address in network for network in proxies):
            break
        nearer = _parsed(text)
        if nearer is None:
            break
        address = nearer
    if isinstance(address, IPv6Address):
        return str(ip_network((address, SITE), strict=False))
    return str(address)


def _parsed(text: str) -> IPv4Address | IPv6Address | None:
    """Parse an address, with or without a port (RFC 7239, section 6); None if it is not an address."""
    text = text.strip().partition("%")[0]
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text)
    except ValueError:
        return None
    return (isinstance(address, IPv6Address) and address.ipv4_mapped) or address
