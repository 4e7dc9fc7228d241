"""Pages of pipelines: list, form, and one pipeline with a picture of its steps, their states, runs and outputs."""

import json
import secrets
from collections.abc import Mapping
from http import HTTPStatus
from urllib.parse import urlencode

import msgspec
from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web import step_picture
from web.api_client import Refused, api, path_of
from web.field_problems import field_problems
from web.form_fields import UnreadableField, key_of, text_of
from web.pipeline_form import EXAMPLE, pipeline_request, requested_document, text_of_document
from web.states import STATES

blueprint = Blueprint("pipelines", __name__, url_prefix="/pipelines")

PAGE_ITEMS = 50


class _ListedPage(msgspec.Struct):
    items: list[dict[str, object]]
    next: str | None = None


class _CreatedPipeline(msgspec.Struct):
    id: str


class _ShownPipeline(msgspec.Struct):
    state: str
    counts: dict[str, int] = {}
    steps: list[step_picture.ShownStep] = []


@blueprint.get("")
def index() -> str:
    """Show the list, or only its rows to a page that has it already."""
    filters = {name: request.args.get(name, "") for name in ("state", "after")}
    answer = api().get("/v1/pipelines", limit=PAGE_ITEMS, **filters)
    page = msgspec.convert(answer, _ListedPage)
    kept = {name: value for name, value in filters.items() if value and name != "after"}
    shown = {
        "pipelines": page.items,
        "following": f"/pipelines?{urlencode({**kept, 'after': page.next})}" if page.next else None,
        "first": f"/pipelines?{urlencode(kept)}" if len(kept) < len([*filter(None, filters.values())]) else None,
        "here": request.full_path.rstrip("?"),
        "running": any(not STATES[state.state].ended for state in msgspec.convert(page.items, list[_ShownPipeline])),
    }
    part = request.headers.get("HX-Target") == "rows"
    return render_template(f"pipelines/{'rows' if part else 'list'}.html", **shown)


@blueprint.get("/new")
def new() -> str:
    """Show the form of a pipeline, with an example or the steps of another one."""
    source = next(iter(request.args.getlist("from")), "")
    document = requested_document(api().get(path_of("pipelines", source))) if source else EXAMPLE
    return form(text_of_document(document))


@blueprint.post("/new")
def create() -> str | Response | tuple[str, int]:
    """Create a pipeline; a request that is refused is shown again with the reason."""
    fields = request.form.to_dict(flat=False)
    text = text_of(fields, "document")
    try:
        body = pipeline_request(text)
        created = api().post("/v1/pipelines", body, headers={"Idempotency-Key": key_of(fields, body)})
    except UnreadableField as error:
        return form(text, error.problem), HTTPStatus.UNPROCESSABLE_ENTITY
    except Refused as error:
        if error.status == HTTPStatus.UNAUTHORIZED:
            raise
        return form(text, error.problem), error.status
    return redirect(url_for("pipelines.show", id=msgspec.convert(created.json(), _CreatedPipeline).id), 303)


def form(document: str, problem: Mapping[str, object] | None = None) -> str:
    """Return the page of the form, with the text of its document, and the problem that it has."""
    problems = field_problems(problem, {"document": [document]}, {"": "document"})
    return render_template(
        "pipelines/new.html", document=document, problem=problem, problems=problems, key=secrets.token_hex(16)
    )


@blueprint.get("/<id>")
def show(id: str) -> str:
    """Show a pipeline."""
    pipeline = api().get(path_of("pipelines", id))
    return render_template("pipelines/page.html", **shown_parts(pipeline), document=json.dumps(pipeline, indent=2))


@blueprint.get("/<id>/live")
def live(id: str) -> str:
    """Return the part of the page that changes while the pipeline runs."""
    return render_template("pipelines/live.html", **shown_parts(api().get(path_of("pipelines", id))))


def shown_parts(pipeline: Mapping[str, object]) -> dict[str, object]:
    """Return the parts of a pipeline that change."""
    shown = msgspec.convert(pipeline, _ShownPipeline)
    picture = step_picture.picture_of(shown.steps)
    return {
        "pipeline": pipeline,
        "picture": picture,
        "step_width": step_picture.WIDTH,
        "step_height": step_picture.HEIGHT,
        "ended": STATES[shown.state].ended,
        "stopped": {"failed", "not_run", "cancelled"} & shown.counts.keys(),
    }


@blueprint.post("/<id>/cancel")
def cancel(id: str) -> Response:
    """Cancel a pipeline."""
    api().post(path_of("pipelines", id, "cancel"))
    return redirect(url_for("pipelines.show", id=id), 303)


@blueprint.post("/<id>/retry")
def retry(id: str) -> Response:
    """Run the steps again that are not complete, or all from a step on."""
    first = next(iter(request.form.getlist("from")), None)
    api().post(path_of("pipelines", id, "retry"), {"from": first} if first else {})
    return redirect(url_for("pipelines.show", id=id), 303)


@blueprint.post("/<id>/delete")
def delete(id: str) -> Response:
    """Delete a pipeline that has ended."""
    api().delete(path_of("pipelines", id))
    return redirect(url_for("pipelines.index"), 303)
