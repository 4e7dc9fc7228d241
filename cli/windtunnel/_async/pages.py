"""Pages of lists, read one after the other as their items are asked for."""

from collections.abc import AsyncIterator, Mapping
from typing import Any

from windtunnel._async.transport import AsyncTransport
from windtunnel.errors import WindtunnelError

#: Most items of a page of most lists.
LONGEST = 200


async def pages(
    transport: AsyncTransport,
    path: str,
    params: Mapping[str, Any],
    limit: int | None = None,
    longest: int = LONGEST,
) -> AsyncIterator[dict[str, Any]]:
    """Yield the items of a list, ``limit`` at most, read in pages of ``longest``."""
    after, left = None, limit
    while left is None or left > 0:
        size = longest if left is None else min(longest, left)
        page = await transport.json("GET", path, params={**params, "limit": size, "after": after})
        if not isinstance(page, dict) or "items" not in page:
            raise WindtunnelError(f"{transport.server.url}{path} is not a list: is the address that of a platform?")
        for item in page["items"]:
            yield item
        after = page.get("next")
        if left is not None:
            left -= len(page["items"])
        if after is None:
            return
