"""Cache nodes: their addresses and zones, and the source that lists them; the static one is a list in the settings."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol
from urllib.parse import urlsplit


@dataclass(frozen=True, order=True, slots=True)
class CacheNode:
    """A cache node: ``http://host:port``, and its zone, "" if unknown."""

    url: str
    zone: str = ""


class Membership(Protocol):
    """Source of the current nodes. Called on every read, by several threads."""

    def nodes(self) -> tuple[CacheNode, ...]:
        """Return the ready nodes, sorted; may be empty. Never raises."""


class StaticMembership:
    """The nodes that are listed in the settings."""

    def __init__(self, nodes: Iterable[CacheNode]) -> None:
        self._nodes = tuple(sorted(set(nodes)))

    def nodes(self) -> tuple[CacheNode, ...]:
        """Return all listed nodes, whether they are up or not."""
        return self._nodes


def parse(text: str) -> CacheNode:
    """Parse ``http://host:port`` or ``zone=http://host:port``."""
    zone, equals, url = text.partition("=") if "=" in text.partition("://")[0] else ("", "", text)
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        raise ValueError(f"invalid port of a cache node: {text!r}") from None
    plain = not (parts.path.strip("/") or parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in ("http", "https") or not parts.hostname or not plain or (equals and not zone):
        raise ValueError(f"a cache node is http://host:port or zone=http://host:port, not {text!r}")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    return CacheNode(f"{parts.scheme}://{host}:{port or (443 if parts.scheme == 'https' else 80)}", zone)
