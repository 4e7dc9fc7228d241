"""The list of simulations: live, searched, filtered and paged by the API's cursor."""

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, Response, redirect, render_template, request
from werkzeug.wrappers import Response as AnyResponse

from web.api_client import Refused, api, path_of
from web.offered_names import dataset_names, runtime_names
from web.run_list import UNFOLDED, of_simulations, run_counts, run_page
from web.states import OF_SIMULATIONS, STATES
from web.views.comparison import DECISIONS

blueprint = Blueprint("simulations", __name__, url_prefix="/simulations")

#: Filters of the list that an address may have, as the API names them; one that may be repeated is a list.
FILTERS = (
    *("q", "dataset", "dataset_version", "dataset_digest", "runtime", "model", "model_digest", "submitted_by"),
    *UNFOLDED,
)
REPEATED = ("state", "label")
#: Those that have a control of their own, and are not listed as set.
CONTROLS = ("q", "dataset", "runtime", "batches")
#: Rows of a page: more than most windows have, and few enough to be painted without a wait.
PAGE = 30
#: States of the simulations that are repeated all at once, unless the list is filtered by state.
RETRIED = ("failed", "errored", "cancelled")
#: What is said of simulations in a state, where that is not its name.
WORDS: Mapping[str, str] = {"cancelled": "were cancelled"}
#: Pages of 500 that are repeated by one request.
PAGES = 10
#: What an action on the chosen simulations has done to them.
DONE: Mapping[str, str] = {"cancel": "are cancelled", "retry": "are repeated as new simulations"}


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
    began = int(time.time() * 1e6)  # changes since then are streamed
    filters, after = query(), request.args.get("after", "")
    page = run_page(filters, after=after, limit=PAGE)
    following = address(filters, after=page.next) if page.next else None
    counts = run_counts(filters, None if after else page)
    shown = {
        "began": began,
        "runs": page.items,
        "counts": counts,
        "states_addresses": {name: address(filters, state=[name]) for name in counts["states"]},
        "any_state": address(filters, state=[]),
        "fixed": {name: filters[name] for name in filters if name not in CONTROLS},
        "here": address(filters, after=after),
        "retried": retried(filters, counts["simulations"]),
        "first": address(filters) if after else None,
        "following": following,
        "filters": filters,
        "decisions": DECISIONS,
    }
    if request.headers.get("HX-Target") == "rows":
        return render_template("simulations/rows.html", **shown)
    return render_template("simulations/list.html", **shown, datasets=dataset_names(), runtimes=runtime_names())


@blueprint.post("/bulk")
def bulk() -> AnyResponse:
    """Cancel, once that is confirmed, or repeat the chosen simulations; say what was done, and what was not and why."""
    ids, action = request.form.getlist("ids"), request.form.get("action", "")
    if action not in DONE:
        raise Refused(422, {"title": "Unknown action", "detail": f"An action is one of {', '.join(DONE)}."})
    if not ids:
        message = "No simulation is chosen."
    elif action == "cancel" and not request.form.get("confirmed") and (unended := unended_of(ids)):
        return question(ids, unended)
    else:
        items = api().post(path_of("simulations", action), {"ids": ids}).json()["items"]
        message = outcome(items, DONE[action])
    return answered(message)


@blueprint.post("/retry")
def retry_all() -> AnyResponse:
    """Repeat what is not ok of all simulations that the query of this request selects, page by page."""
    filters = query()
    body = {"filter": of_simulations(filters) | {"state": retried_states(filters)}}
    items: list[Mapping[str, Any]] = []
    following = None
    for _ in range(PAGES):
        page = api().post(path_of("simulations", "retry"), body).json()
        items += page["items"]
        if (following := page["next"]) is None:
            break
        body["filter"]["after"] = following
    rest = " There are more: repeat all once more." if following else ""
    return answered(outcome(items, DONE["retry"]) + rest)


def retried_states(filters: Mapping[str, Any]) -> list[str]:
    """Return the states, of those that filters name, in which simulations can be repeated."""
    return [state for state in filters.get("state", RETRIED) if state in OF_SIMULATIONS and STATES[state].ended]


def retried(filters: Mapping[str, Any], counts: Mapping[str, int]) -> Mapping[str, Any]:
    """Return how many of the simulations that match can be repeated, in which states, and where that is requested."""
    states = retried_states(filters)
    return {
        "count": sum(counts.get(state, 0) for state in states),
        "states": [WORDS.get(state, state) for state in states],
        "address": "/simulations/retry" + address(filters).removeprefix("/simulations"),
    }


def answered(message: str) -> AnyResponse:
    """Answer with a message; a browser without scripts is led back to the list."""
    if not request.headers.get("HX-Request"):
        return redirect(own_address(request.form.get("here", "")), 303)
    return Response(render_template("message.html", message=message), headers={"HX-Trigger": "refresh"})


def unended_of(ids: Sequence[str]) -> Sequence[Mapping[str, Any]]:
    """Return the simulations that can be cancelled."""
    found = (api().find(path_of("simulations", id)) for id in ids)
    return [simulation for simulation in found if simulation and not STATES[simulation["state"]].ended]


def question(ids: Sequence[str], unended: Sequence[Mapping[str, Any]]) -> AnyResponse:
    """Ask whether these simulations are to be cancelled: in a dialog, or without scripts on a page."""
    asked = {
        "ids": ids,
        "chosen": unended,
        "ended": len(ids) - len(unended),
        "here": own_address(request.form.get("here", "")),
    }
    if not request.headers.get("HX-Request"):
        return Response(render_template("simulations/confirm-page.html", **asked))
    headers = {"HX-Retarget": "#dialog", "HX-Reswap": "innerHTML"}
    return Response(render_template("simulations/confirm-dialog.html", **asked), headers=headers)


def outcome(items: Sequence[Mapping[str, Any]], done: str) -> str:
    """Return in words what was done to the chosen simulations."""
    reasons = Counter(item.get("reason") or item["problem"]["detail"] for item in items if item["status"] != "done")
    count = len(items) - reasons.total()
    unchanged = ", ".join(f"{number} ({text.rstrip('.')})" for text, number in reasons.items())
    return f"{count} of {len(items)} {done}." + (f" Unchanged: {unchanged}." if unchanged else "")


def own_address(text: str) -> str:
    """Return an address of the list, whatever a form says."""
    return text if text.partition("?")[0] == "/simulations" else "/simulations"
