"""Pages of lists as responses: the items, the cursor of the next page, and its address as a Link header."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from flask import Response, request
from marshmallow import Schema

from api.blueprint import json_response
from api.identification import PROJECT_IN_QUERY

LINK = {
    "Link": {
        "description": 'The next page, `<...>; rel="next"`, unless this is the last.',
        "schema": {"type": "string"},
    }
}


def numbered_page(items: Sequence[Any], after: int, limit: int) -> Response:
    """Answer with one page of a list that is whole; ``after``: items before it."""
    end = after + limit
    return page(items[after:end], end if end < len(items) else None)


def page(items: Sequence[Any], next: str | int | None, schema: Schema | None = None) -> Response:
    """Answer with one page of a list."""
    body: Mapping[str, Any] = {"items": schema.dump(items, many=True) if schema else items, "next": next}
    return json_response(body) if next is None else json_response(body, headers={"Link": next_page(next)})


def next_page(cursor: str | int) -> str:
    """Return the Link header of the next page of what this request lists."""
    query = [(name, value) for name, value in request.args.items(multi=True) if name != "after"]
    if (project := request.environ.get(PROJECT_IN_QUERY)) is not None:  # which operations do not see
        query.append(("project", project))
    return f'<{request.path}?{urlencode([*query, ("after", cursor)])}>; rel="next"'
