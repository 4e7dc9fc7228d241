"""Pages of one task of a simulation: its replay, result and inputs, and its rerun, also with other parameters."""

import json
from collections.abc import Mapping
from typing import Any

from flask import Blueprint, redirect, render_template, request, url_for
from flask import Response as FlaskResponse
from werkzeug.wrappers import Response

from web import replay_bundle, snippets
from web.api_client import Refused, api, path_of
from web.declared_metrics import metrics_of
from web.form_fields import Fields, seconds_of
from web.parameter_fields import changes_of, parameter_fields
from web.picture_grid import pictures_of
from web.reruns import reruns_of, result_of
from web.task_request import task_request, values_of
from web.views.simulation import dataset_of

blueprint = Blueprint("task", __name__, url_prefix="/simulations/<id>/tasks/<int:task>")


@blueprint.get("")
def show(id: str, task: int) -> str:
    """Show a task: its replay, result and inputs; ``at``: the second at which the replay stands."""
    return page(api().get(path_of("simulations", id)), task)


def page(
    simulation: Mapping[str, Any], task: int, given: Fields | None = None, problem: Mapping[str, Any] | None = None
) -> str:
    """Return the page of a task; ``given``: the fields of a rerun that was refused with a ``problem``."""
    id, total = simulation["id"], simulation["tasks"]["total"]
    if task >= total:
        detail = f"There is no task {task} of this simulation. It has {total:,} task{'s' if total != 1 else ''}."
        raise Refused(404, {"title": "Unknown task", "detail": detail})
    result = result_of(id, task)
    dataset = dataset_of(simulation)
    return render_template(
        "simulation/task.html",
        simulation=simulation,
        dataset=dataset,
        metrics=metrics_of(dataset),
        task=task,
        result=result,
        pictures=pictures_of(result),
        at=seconds_of(request.args.get("at", "")),
        previous=task - 1 if task else None,
        following=task + 1 if task + 1 < total else None,
        scenario=json.dumps(scenario_of(simulation, result), indent=2),
        curl=snippets.curl_of(request.host_url, task_request(simulation, result)) if result else None,
        fields=parameter_fields(dataset.get("params") or {}, values_of(simulation, result), given or {})
        if result
        else [],
        problem=problem,
        reruns=reruns_of(id, task),
    )


def scenario_of(simulation: Mapping[str, Any], result: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    """Return the description of a task's scenario, if its dataset has it still."""
    if result is None:
        return None
    dataset, index = simulation["dataset"], result["scenario"]["index"]
    path = path_of("datasets", f"{dataset['name']}@{dataset['version']}", "scenarios")
    page = api().find(path, after=index, limit=1)
    return page["items"][0] if page and page["items"] else None


@blueprint.get("/replay.html")
def replay_file(id: str, task: int) -> FlaskResponse:
    """Return a task's replay as one HTML file that needs no server."""
    answer = api().send(
        "GET", path_of("simulations", id, "tasks", str(task), "replay"), headers={"Accept": "application/json"}
    )
    if answer.status_code == 202:  # it is being made
        waiting = render_template("reload.html", address=request.path, seconds=2)
        return FlaskResponse(waiting, 202, headers={"Retry-After": "2"})
    replay = answer.json()
    page = render_template(
        "replay-file.html", replay=replay, script=replay_bundle.script(), style=replay_bundle.style(), id=id, task=task
    )
    name = f"replay-{id}-{task}.html"
    return FlaskResponse(page, headers={"Content-Disposition": f'attachment; filename="{name}"'})


@blueprint.post("/again")
def run_again(id: str, task: int) -> Response | tuple[str, int]:
    """Run just this task again, with the same model, scenario and seed, as a new simulation; with other parameters too.

    What is refused is shown again with the reason.
    """
    simulation = api().get(path_of("simulations", id))
    result = result_of(id, task)
    if result is None:
        raise Refused(404, {"title": "No result yet", "detail": f"Task {task} has no result yet. Wait for it."})
    given = request.form.to_dict(flat=False)
    changes = changes_of(dataset_of(simulation).get("params") or {}, values_of(simulation, result), given)
    try:
        created = api().post("/v1/simulations", task_request(simulation, result, changes)).json()
    except Refused as error:
        if error.status == 401 or not given:
            raise
        return page(simulation, task, given, error.problem), error.status
    return redirect(url_for("simulation.show", id=created["id"]), 303)
