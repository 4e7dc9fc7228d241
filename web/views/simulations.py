"""The list of simulations: live, searched, filtered and paged by the API's cursor."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, render_template, request

from web.api_client import api

blueprint = Blueprint("simulations", __name__, url_prefix="/simulations")

#: Filters of the list that an address may have, as the API names them; one that may be repeated is a list.
FILTERS = ("q", "dataset", "dataset_version", "dataset_digest", "runtime", "model", "model_digest", "submitted_by")
REPEATED = ("state", "label")
PAGE = 50


def query() -> dict[str, Any]:
    """Return the filters of this request, without empty ones."""
    filters: dict[str, Any] = {name: request.args.get(name, "").strip() for name in FILTERS}
    filters |= {name: [value for value in request.args.getlist(name) if value] for name in REPEATED}
    return {name: value for name, value in filters.items() if value}


def address(filters: Mapping[str, Any], **changes: Any) -> str:
    """Return the address of the list with filters and a cursor; a change to an empty value removes a filter."""
    text = urlencode({name: value for name, value in {**filters, **changes}.items() if value}, doseq=True)
    return f"/simulations?{text}" if text else "/simulations"


@blueprint.get("")
def index() -> str:
    """Show the list, or only its rows to a page that has it already."""
    filters, after = query(), request.args.get("after", "")
    page = api().get("/v1/simulations", limit=PAGE, after=after, **filters)
    following = address(filters, after=page["next"]) if page.get("next") else None
    counted = {name: value for name, value in filters.items() if name != "state"}
    counts = api().get("/v1/simulations/counts", **counted)
    shown = {
        "simulations": page["items"],
        "counts": counts,
        "states_addresses": {name: address(filters, state=[name]) for name in counts["states"]},
        "any_state": address(filters, state=[]),
        "fixed": {name: filters[name] for name in filters if name not in ("q", "dataset", "runtime")},
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
