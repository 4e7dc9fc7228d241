"""The list of simulations: live, searched, filtered and paged by the API's cursor."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, render_template, request

from web.api_client import api

blueprint = Blueprint("simulations", __name__, url_prefix="/simulations")

#: Filters of the list that its form has, as the API names them.
FILTERS = ("state", "dataset", "runtime", "model")
PAGE = 50


def query() -> dict[str, Any]:
    """Return the filters of this request, without empty ones; a label is written `name=value`."""
    filters: dict[str, Any] = {name: request.args.get(name, "").strip() for name in FILTERS}
    filters["label"] = request.args.get("label", "").split()
    return {name: value for name, value in filters.items() if value}


def address(filters: Mapping[str, Any], **changes: Any) -> str:
    """Return the address of the list with filters and a cursor."""
    values = {name: " ".join(value) if isinstance(value, list) else value for name, value in filters.items()}
    text = urlencode({name: value for name, value in (values | changes).items() if value})
    return f"/simulations?{text}" if text else "/simulations"


@blueprint.get("")
def index() -> str:
    """Show the list, or only its rows to a page that has it already."""
    filters, after = query(), request.args.get("after", "")
    page = api().get("/v1/simulations", limit=PAGE, after=after, **filters)
    following = address(filters, after=page["next"]) if page.get("next") else None
    shown = {
        "simulations": page["items"],
        "here": address(filters, after=after),
        "first": address(filters) if after else None,
        "following": following,
        "filters": filters,
    }
    if request.headers.get("HX-Target") == "rows":
        return render_template("simulations/rows.html", **shown)
    return render_template("simulations/list.html", **shown, **choices())


def choices() -> dict[str, Any]:
    """Return what the form offers: names of datasets and runtimes."""
    return {
        "datasets": [item["name"] for item in api().get("/v1/datasets")["items"]],
        "runtimes": [item["name"] for item in api().get("/v1/runtimes")["items"]],
    }
