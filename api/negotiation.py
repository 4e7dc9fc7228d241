"""Content negotiation: ``?format=`` takes precedence over Accept; of equally acceptable formats, the first offered."""

from collections.abc import Mapping

from flask import request

from common.errors import NotAcceptable


def choose(offered: Mapping[str, str], format: str | None = None) -> str:
    """Return the name of the format of the response; ``offered`` maps names to media types, the default first."""
    if format is not None:
        return format
    if not request.headers.get("Accept", "").strip():
        return next(iter(offered))
    by_type = {media_type: name for name, media_type in offered.items()}
    best = request.accept_mimetypes.best_match(list(by_type))
    if best is None:
        raise NotAcceptable(f"Available as {', '.join(by_type)}, but `Accept` is {request.headers['Accept'][:200]}.")
    return by_type[best]
