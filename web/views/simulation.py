"""Pages of one simulation: progress, metrics, groups, the worst tasks, and actions on it."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web import formatting, snippets
from web.api_client import api, path_of
from web.declared_metrics import metrics_of, score_of
from web.form_fields import number_of
from web.picture_grid import picture_grid
from web.reruns import rerun_of
from web.states import STATES

blueprint = Blueprint("simulation", __name__, url_prefix="/simulations/<id>")

#: Types of events that the line of events shows; progress is shown as a bar.
SHOWN_EVENTS = ("state", "staging", "launch", "workers", "storage", "run_log")
#: Worst tasks that the page lists.
WORST = 10


@blueprint.get("")
def show(id: str) -> str:
    """Show a simulation."""
    simulation = api().get(path_of("simulations", id))
    dataset = dataset_of(simulation)
    return render_template(
        "simulation/page.html",
        **live_parts(simulation, dataset),
        snippets=snippets.of_results(request.host_url, simulation, dataset),
        spec=json.dumps(simulation["spec"], indent=2),
        provenance=json.dumps(simulation["provenance"], indent=2),
    )


@blueprint.get("/live")
def live(id: str) -> str:
    """Return the part of the page that changes while the simulation runs."""
    simulation = api().get(path_of("simulations", id))
    return render_template("simulation/live.html", **live_parts(simulation, dataset_of(simulation)), part=True)


def live_parts(simulation: Mapping[str, Any], dataset: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the changing part shows."""
    path = path_of("simulations", simulation["id"])
    events = api().get(f"{path}/history", type=SHOWN_EVENTS, limit=1000)["items"]
    ended = STATES[simulation["state"]].ended
    return {
        "simulation": simulation,
        "dataset": dataset,
        "worst": worst_tasks(simulation) if simulation["tasks"]["done"] else [],
        "metrics": described_metrics(simulation, dataset),
        "declared": plotted_metrics(dataset),
        "events": merged_events(events),
        "ended": ended,
        "rerun": rerun_of(simulation),
        "pictures": picture_grid(simulation, request.args.to_dict()),
        "summary": api().find(f"{path}/summary", missing=(409,)) if ended else None,  # 409: it is being summarized
        "since": request.args.get("since") or (events[-1]["number"] if events else 0),
    }


def merged_events(events: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return events with those that follow each other and read the same as one: ``count``, and ``until`` its last."""
    merged: list[dict[str, Any]] = []
    for event in events:
        shown = [event.get(name) for name in ("type", "state", "message", "reason")]
        if merged and merged[-1]["shown"] == shown:
            merged[-1] |= {"count": merged[-1]["count"] + 1, "until": event["at"]}
        else:
            merged.append({**event, "shown": shown, "count": 1, "until": event["at"]})
    return merged


def dataset_of(simulation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the description of the dataset's version; only its name if it has been deleted."""
    dataset = simulation["dataset"]
    described: Mapping[str, Any] | None = api().find(path_of("datasets", f"{dataset['name']}@{dataset['version']}"))
    return described or {
        "name": dataset["name"],
        "title": dataset["name"],
        "metrics": [],
        "group_by": [],
        "deleted": True,
    }


def described_metrics(simulation: Mapping[str, Any], dataset: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the metrics that have values, the score first, with title, unit and statistics."""
    declared, score, values = metrics_of(dataset), score_of(dataset), simulation["metrics"]
    names = [name for name in declared if name in values] + [name for name in values if name not in declared]
    return [
        {
            "name": name,
            "title": declared.get(name, {}).get("title") or name,
            "unit": formatting.unit(declared.get(name, {}).get("unit")),
            "better": declared.get(name, {}).get("better"),
            "formula": declared.get(name, {}).get("formula"),
            "score": name == score,
            "values": values[name],
        }
        for name in names
    ]


def plotted_metrics(dataset: Mapping[str, Any]) -> dict[str, dict[str, Any]]:
    """Return title, unit, order and range of a dataset's metrics, the score first, for the plots."""
    return {
        name: {
            "title": metric["title"],
            "unit": formatting.unit(metric["unit"]),
            "order": order,
            "ends": [metric.get("low"), metric.get("high")],
        }
        for order, (name, metric) in enumerate(metrics_of(dataset).items())
    }


@blueprint.post("/cancel")
def cancel(id: str) -> Response:
    """Cancel a simulation."""
    api().post(path_of("simulations", id, "cancel"))
    return redirect(url_for("simulation.show", id=id), 303)


@blueprint.post("/workers")
def resize(id: str) -> Response:
    """Change the number of workers of a simulation that has not ended."""
    body = {"workers": number_of(request.form.get("workers", "").strip())}
    api().send("PATCH", path_of("simulations", id), body=body)
    return redirect(url_for("simulation.show", id=id), 303)


@blueprint.post("/retry")
def retry(id: str) -> Response:
    """Repeat the tasks that did not succeed, or all of them, as a new simulation."""
    body = {"only_failed": request.form.get("only_failed") == "true"}
    created = api().post(path_of("simulations", id, "retry"), body).json()
    return redirect(url_for("simulation.show", id=created["id"]), 303)


@blueprint.post("/delete")
def delete(id: str) -> Response:
    """Delete a simulation that has ended."""
    api().delete(path_of("simulations", id))
    return redirect(url_for("simulations.index"), 303)


@blueprint.get("/sensitivity")
def sensitivity(id: str) -> str:
    """Show which parameters go with failure, or with a metric."""
    simulation = api().get(path_of("simulations", id))
    dataset = dataset_of(simulation)
    metric = request.args.get("metric", "")
    return render_template(
        "simulation/sensitivity.html",
        simulation=simulation,
        dataset=dataset,
        sensitivity=api().get(path_of("simulations", id, "sensitivity"), metric=metric),
        metrics=described_metrics(simulation, dataset),
    )


def worst_tasks(simulation: Mapping[str, Any]) -> Sequence[Mapping[str, Any]]:
    """Return the worst tasks so far, those that are not ``ok`` first."""
    items: Sequence[Mapping[str, Any]] = api().get(path_of("simulations", simulation["id"], "worst"), limit=WORST)[
        "items"
    ]
    return items
