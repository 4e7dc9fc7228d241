"""Pages of comparisons of models: list, request, one comparison with its live verdicts, and its report as one file."""

import json
import math
import secrets
from collections.abc import Mapping, Sequence
from http import HTTPStatus
from typing import Any
from urllib.parse import urlencode

from flask import Blueprint, redirect, render_template, request, url_for
from flask import Response as FlaskResponse
from werkzeug.wrappers import Response

from web import comparison_report, snippets
from web.api_client import Refused, api, path_of, path_of_reference
from web.comparison_request import MODELS, comparison_request
from web.declared_metrics import metrics_of
from web.field_problems import field_problems
from web.form_fields import Fields, UnreadableField, key_of, text_of
from web.model_labels import labelled
from web.offered_names import dataset_names, model_names
from web.states import STATES
from web.verdict_course import course_of
from web.views.comparison import DECISIONS, TONES, address_of

blueprint = Blueprint("comparisons", __name__, url_prefix="/comparisons")

PAGE = 50
#: Field of a member of a comparison that has another name.
FIELD_OF = {"models": "model", "scenarios": "sample"}
#: What a new form has in its fields.
DEFAULTS: Fields = {"error_rate": ["5"], "design": ["population"]}


@blueprint.get("")
def index() -> str:
    """Show the list, or only its rows to a page that has it already."""
    filters = {name: request.args.get(name, "") for name in ("dataset", "state", "after")}
    page = api().get("/v1/comparisons", limit=PAGE, **filters)
    kept = {name: value for name, value in filters.items() if value and name != "after"}
    following = f"/comparisons?{urlencode({**kept, 'after': page['next']})}" if page["next"] else None
    shown = {
        "comparisons": [labelled(comparison) for comparison in page["items"]],
        "following": following,
        "first": f"/comparisons?{urlencode(kept)}" if filters["after"] else None,
        "filters": kept,
        "here": request.full_path.rstrip("?"),
        "decisions": DECISIONS,
        "running": any(not STATES[comparison["state"]].ended for comparison in page["items"]),
    }
    if request.headers.get("HX-Target") == "rows":
        return render_template("comparisons/rows.html", **shown)
    return render_template("comparisons/list.html", **shown)


# -- request


@blueprint.get("/new")
def new() -> str:
    """Show the form of a comparison, filled in with the query."""
    given = request.args.to_dict(flat=False)
    return form({**DEFAULTS, **given})


@blueprint.get("/new/metrics")
def metrics() -> str:
    """Return the choice of metrics of the dataset that is chosen."""
    fields = request.args.to_dict(flat=False)
    return render_template("comparisons/metrics.html", metrics=judged_metrics(fields), fields=fields)


@blueprint.post("/new/request")
def equivalent() -> str:
    """Return the request that the form would send."""
    return render_template("comparisons/request.html", **request_shown(request.form.to_dict(flat=False)))


@blueprint.post("/new")
def create() -> str | Response | tuple[str, int]:
    """Create a comparison; a request that is refused is shown again with the reason."""
    fields = request.form.to_dict(flat=False)
    try:
        body = comparison_request(fields)
        created = api().post("/v1/comparisons", body, headers={"Idempotency-Key": key_of(fields, body)})
    except UnreadableField as error:
        return form(fields, problem=error.problem), HTTPStatus.UNPROCESSABLE_ENTITY
    except Refused as error:
        if error.status == 401:
            raise
        return form(fields, problem=error.problem), error.status
    return redirect(url_for("comparisons.show", id=created.json()["id"]), 303)


def form(fields: Fields, problem: Mapping[str, Any] | None = None) -> str:
    """Return the page of the form."""
    given = [name for name in fields.get("model", ()) if name]
    return render_template(
        "comparisons/new.html",
        fields=fields,
        names=model_names(),
        datasets=dataset_names(),
        metrics=judged_metrics(fields),
        models=[*given, *[""] * (max(3, len(given)) - len(given))][:MODELS],
        more=MODELS - max(3, len(given)),
        problem=problem,
        problems=field_problems(problem, fields, FIELD_OF),
        key=secrets.token_hex(16),
        **request_shown(fields),
    )


def judged_metrics(fields: Fields) -> Mapping[str, Mapping[str, Any]]:
    """Return the metrics with a better direction of the dataset that is chosen."""
    name = next(iter(fields.get("dataset", ())), "")
    dataset = api().find(path_of_reference("datasets", name), missing=(404, 422)) if name else None
    return {name: metric for name, metric in metrics_of(dataset or {}).items() if metric.get("better")}


def request_shown(fields: Fields) -> dict[str, Any]:
    """Return the curl command of the comparison that a form describes, or which field cannot be read."""
    try:
        body = comparison_request(fields)
    except UnreadableField as error:
        return {"unreadable": error}
    return {"curl": snippets.curl_of(request.host_url, body, path="v1/comparisons")}


# -- one comparison


@blueprint.get("/<id>")
def show(id: str) -> str:
    """Show a comparison."""
    return page_of(id, {})


def page_of(id: str, fields: Fields, problem: Mapping[str, Any] | None = None) -> str:
    """Return the page of a comparison; ``fields``: of its form for another model, which has a problem."""
    comparison = api().get(path_of("comparisons", id))
    return render_template(
        "comparisons/page.html",
        **shown_parts(comparison),
        document=json.dumps(comparison, indent=2),
        names=model_names(),
        joining=text_of(fields, "model"),
        problem=problem,
        problems=field_problems(problem, fields, FIELD_OF),
    )


@blueprint.get("/<id>/live")
def live(id: str) -> str:
    """Return the part of the page that changes while the comparison runs."""
    return render_template("comparisons/live.html", **shown_parts(api().get(path_of("comparisons", id))))


def shown_parts(answer: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the changing part shows of a comparison."""
    comparison = labelled(answer)
    for model in comparison["models"]:
        for scenario in scenarios_of(model):
            scenario["address"] = address_of(scenario, (scenario["simulation"], scenario["to_simulation"]))
    return {"comparison": comparison, "ended": STATES[comparison["state"]].ended, **verdict_parts(comparison)}


def verdict_parts(comparison: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the verdicts of a page and of a report need."""
    return {
        "courses": [
            course_of(model["looks"], (model["verdict"] or {}).get("margin")) for model in comparison["models"]
        ],
        "tones": TONES,
        "decisions": DECISIONS,
    }


def scenarios_of(model: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the scenarios of a model that differ most, in both directions."""
    return [*model["scenarios"]["worse"], *model["scenarios"]["better"]]


def flips_of(model: Mapping[str, Any]) -> Sequence[dict[str, Any]]:
    """Return the flips of a model that are shown, in both directions."""
    flips = model["flips"] or {"broke": [], "fixed": []}
    return [*flips["broke"], *flips["fixed"]]


@blueprint.post("/<id>/<any(cancel, retry):action>")
def change(id: str, action: str) -> Response:
    """Cancel a comparison, or let it go on."""
    api().post(path_of("comparisons", id, action))
    return redirect(url_for("comparisons.show", id=id), 303)


@blueprint.post("/<id>/models")
def join(id: str) -> Response | tuple[str, int]:
    """Let a model join."""
    fields = request.form.to_dict(flat=False)
    try:
        api().post(path_of("comparisons", id, "models"), {"models": [text_of(fields, "model")]})
    except Refused as error:
        if error.status == 401:
            raise
        return page_of(id, fields, error.problem), error.status
    return redirect(url_for("comparisons.show", id=id), 303)


@blueprint.post("/<id>/delete")
def delete(id: str) -> Response:
    """Delete a comparison that has ended."""
    api().delete(path_of("comparisons", id))
    return redirect(url_for("comparisons.index"), 303)


@blueprint.get("/<id>/report")
def report_progress(id: str) -> FlaskResponse:
    """Show how many replays of the report have been made, then where it is; as a part of the comparison's page too."""
    comparison = labelled(api().get(path_of("comparisons", id)))
    made = comparison_report.request_replays(comparison_report.pairs_of(comparison))
    part = bool(request.headers.get("HX-Request"))
    template = "comparisons/report-progress.html" if part else "comparisons/report-page.html"
    page = render_template(template, comparison=comparison, made=made, most=comparison_report.MOST_BYTES)
    waits = {} if part or made.count == made.total else {"Refresh": "2"}  # without scripts
    return FlaskResponse(page, headers=waits)


@blueprint.get("/<id>/report.html")
def report(id: str) -> FlaskResponse:
    """Return the comparison as one HTML file that needs no server, with the worst replays in it.

    ``replays`` of the query: `none`, `all`, or else as many as a file of at most MOST_BYTES has.
    """
    answer = api().get(path_of("comparisons", id))
    comparison, wanted = labelled(answer), request.args.get("replays")
    pairs = comparison_report.pairs_of(comparison) if wanted != "none" else []
    made = comparison_report.request_replays(pairs)
    if made.count < made.total:
        what = f"{made.count} of {made.total} replays are made."
        waiting = render_template("reload.html", address=request.full_path.rstrip("?"), seconds=2, what=what)
        return FlaskResponse(waiting, 202, headers={"Retry-After": "2"})
    host = request.host_url.rstrip("/")  # a file has no server of its own
    for model in comparison["models"]:
        for flip in flips_of(model):
            flip["replay"] = f"{host}{flip['replay']}"
    parts = {"document": answer, "host": host, **comparison_report.inline_parts(), **verdict_parts(comparison)}
    bare = report_page(comparison, comparison_report.replays_of([], 0), parts)
    room = math.inf if wanted == "all" else comparison_report.MOST_BYTES - len(bare.encode())
    page = report_page(comparison, comparison_report.replays_of(pairs, room), parts)
    return FlaskResponse(page, headers={"Content-Disposition": f'attachment; filename="comparison-{id}.html"'})


def report_page(comparison: Mapping[str, Any], replays: comparison_report.Replays, parts: Mapping[str, Any]) -> str:
    """Return the report with these replays, to which its tables lead."""
    shown = {pair.anchor for pair, _ in replays.shown}
    for model in comparison["models"]:
        for scenario in scenarios_of(model):
            anchor = comparison_report.anchor_of(scenario)
            scenario["address"] = f"#{anchor}" if anchor in shown else None
    return render_template("comparisons/report.html", comparison=comparison, replays=replays, **parts)
