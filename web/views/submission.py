"""Page that submits a simulation: a model by upload or by name, its check, scenarios, sweep, and equivalent lines."""

import secrets
from collections.abc import Mapping
from http import HTTPStatus
from typing import Any

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web import snippets
from web.api_client import Refused, api, path_of, path_of_reference
from web.field_problems import field_problems
from web.form_fields import Fields, UnreadableField, key_of, text_of
from web.offered_names import dataset_names, model_names, runtime_names
from web.scenario_numbers import SELECTIONS, check_numbers
from web.submission_request import SHOWN_FIELDS, submission_fields, submission_request, tasks_of
from web.task_request import exact

blueprint = Blueprint("submission", __name__, url_prefix="/submit")

#: Field of the members of a submission that have none of their own.
FIELD_OF = {"": "more"}
#: Members of a submission that decide whether its model fits.
CHECKED = ("dataset", "model", "runtime", "params", "placement")


@blueprint.get("")
def show() -> str:
    """Show the form, filled in with the query, or with the submission of `?simulation=ID`."""
    fields: dict[str, Any] = request.args.to_dict(flat=False)
    if id := "".join(fields.pop("simulation", [])[:1]):
        simulation = api().get(path_of("simulations", id))
        dataset = f"{simulation['dataset']['name']}@{simulation['dataset']['version']}"
        model = exact(simulation["model"])
        given = submission_fields({**simulation["spec"], "model": model, "dataset": dataset})
        fields = given | fields
    return form(fields)


@blueprint.post("")
def create() -> str | Response | tuple[str, int]:
    """Submit the simulation; a submission that is refused is shown again with the reason."""
    fields = request.form.to_dict(flat=False)
    try:
        body = submission_request(fields)
        created = api().post("/v1/simulations", body, headers={"Idempotency-Key": key_of(fields, body)})
    except UnreadableField as error:
        return form(fields, problem=error.problem), HTTPStatus.UNPROCESSABLE_ENTITY
    except Refused as error:
        if error.status == 401:
            raise
        return form(fields, problem=error.problem), error.status
    return redirect(url_for("simulation.show", id=created.json()["id"]), 303)


@blueprint.get("/dataset")
def dataset() -> str:
    """Return the part of the form that depends on the dataset that is chosen."""
    fields = request.args.to_dict(flat=False)
    parts = {"fields": fields, "dataset": dataset_of(fields), "selections": SELECTIONS}
    return render_template("submit/dataset.html", **parts, problems={})


@blueprint.post("/request")
def equivalent() -> str:
    """Return the number of tasks, and the lines that submit the same."""
    fields = request.form.to_dict(flat=False)
    return render_template("submit/request.html", **request_shown(fields, dataset_of(fields)))


@blueprint.post("/check")
def check() -> str:
    """Return whether the model loads and fits the dataset, by a few real steps."""
    fields = {name: values for name, values in request.form.to_dict(flat=False).items() if name != "scenarios"}
    try:
        body = submission_request(fields | {"select": ["all"]})
        checked = {name: body[name] for name in CHECKED if name in body}
        if "dataset" not in checked or not ("model" in checked or "runtime" in checked):
            return render_template("submit/check.html", waiting=True)
        answer = api().post("/v1/checks", checked).json()
    except UnreadableField as error:
        return render_template("submit/check.html", problem=error.problem)
    except Refused as error:
        if error.status == 401:
            raise
        return render_template("submit/check.html", problem=error.problem)
    return render_template("submit/check.html", check=answer)


def form(fields: Fields, problem: Mapping[str, Any] | None = None) -> str:
    """Return the page of the form."""
    dataset = dataset_of(fields)
    return render_template(
        "submit/page.html",
        fields=fields,
        models=model_names(),
        runtimes=runtime_names(),
        datasets=dataset_names(),
        executors=[item["name"] for item in api().get("/v1/executors")["items"]],
        dataset=dataset,
        selections=SELECTIONS,
        shown=SHOWN_FIELDS.values(),
        problem=problem,
        problems=field_problems(problem, fields, FIELD_OF),
        key=secrets.token_hex(16),
        **request_shown(fields, dataset),
    )


def dataset_of(fields: Fields) -> Mapping[str, Any] | None:
    """Return the description of the dataset that is chosen, if there is one of this name."""
    name = text_of(fields, "dataset")
    found: Mapping[str, Any] | None = (
        api().find(path_of_reference("datasets", name), missing=(404, 410, 422)) if name else None
    )
    return found


def request_shown(fields: Fields, dataset: Mapping[str, Any] | None) -> dict[str, Any]:
    """Return the lines that submit what a form describes, and the number of its tasks on ``dataset``."""
    try:
        body = submission_request(fields)
        if dataset and isinstance(dataset["tasks"], int):
            check_numbers(body.get("scenarios", {}), dataset["tasks"])
    except UnreadableField as error:
        return {"unreadable": error, "lines": {}, "tasks": None}
    return {"lines": snippets.of_submission(request.host_url, body), "tasks": tasks_of(body, dataset)}
