"""Pages that compare simulations of one dataset: verdicts, groups, where each is better, and replays side by side."""

import json
from collections.abc import Mapping
from typing import Any

from flask import Blueprint, abort, render_template, request

from web import verdict_units
from web.api_client import Refused, api, path_of
from web.declared_metrics import metrics_of
from web.form_fields import number_of, seconds_of
from web.reruns import rerun_of
from web.views.simulation import dataset_of

blueprint = Blueprint("comparison", __name__, url_prefix="/compare")

#: Most simulations that are compared with the reference.
MOST = 8
#: How verdicts on groups are shown: tone of the style sheet.
TONES: Mapping[str, str] = {"regressed": "bad", "suspect": "waiting", "improved": "good", "held": "ended"}
DECISIONS: Mapping[str, str] = {
    "equivalent": "good",
    "better": "good",
    "worse": "bad",
    "not_worse": "good",
    "undecided": "ended",
}


@blueprint.get("")
def show() -> str:
    """Compare simulations with the last one that the address names, which is the reference."""
    chosen = request.args.getlist("simulation") + request.args.getlist("ids")
    ids = list(dict.fromkeys(id for id in chosen if id))  # the form sends an empty id if nothing is added
    if len(ids) < 2:
        detail = "A comparison needs two different simulations of one dataset, or more. Choose them in the list."
        raise Refused(422, {"title": "Nothing to compare", "detail": detail})
    question = asked()
    *simulations, reference = [api().get(path_of("simulations", id)) for id in ids[-MOST - 1 :]]
    whole = bool(request.args.get("whole"))  # a page without scripts: else each part is loaded by itself
    return render_template(
        "compare/page.html",
        reference=reference,
        compared=simulations,
        comparisons=[compared(simulation, reference, question) if whole else None for simulation in simulations],
        metrics=metrics_of(dataset_of(reference)),
        asked=question,
        ids=ids,
        others=others(reference, ids),
        tones=TONES,
        decisions=DECISIONS,
    )


@blueprint.get("/verdict")
def verdict() -> str:
    """Return the comparison of one simulation with another, as a part of the page."""
    ids = request.args.getlist("simulation")
    if len(ids) != 2:
        abort(404)
    simulation, reference = (api().get(path_of("simulations", id)) for id in ids)
    return render_template(
        "compare/verdict.html",
        simulation=simulation,
        reference=reference,
        comparison=compared(simulation, reference, asked()),
        tones=TONES,
        decisions=DECISIONS,
    )


def asked() -> dict[str, str]:
    """Return the metric, the margin, the bound and the design that the address names."""
    return {name: request.args.get(name, "").strip() for name in ("metric", "margin", "bound", "design")}


def compared(
    simulation: Mapping[str, Any], reference: Mapping[str, Any], question: Mapping[str, str]
) -> Mapping[str, Any]:
    """Return the comparison of a simulation with the reference, with the rows of all metrics; or what prevents it."""
    path = path_of("simulations", simulation["id"], "comparison")
    try:
        comparison: Mapping[str, Any] = api().get(path, to=reference["id"], **question)
    except Refused as error:
        if error.status not in (404, 409, 422):
            raise
        return {"problem": error.problem}
    ids = simulation["id"], reference["id"]
    differing = {
        direction: [{**pair, "address": address_of(pair, ids)} for pair in pairs]
        for direction, pairs in comparison["scenarios"].items()
    }
    rows = metric_rows(comparison, metrics_of(dataset_of(reference)))
    return {**comparison, **verdict_units.shown(comparison), "scenarios": differing, "rows": rows}


def address_of(pair: Mapping[str, Any], ids: tuple[str, str]) -> str:
    """Return the address of the replay of a pair of tasks, side by side; ``ids``: of both simulations."""
    return f"/compare/replay?left={ids[0]}.{pair['task']}&right={ids[1]}.{pair['to_task']}"


def metric_rows(comparison: Mapping[str, Any], declared: Mapping[str, Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return a row for each metric, whose difference is positive where the first simulation is the better one.

    The row of the metric that the verdict is on has the verdict's interval: one difference has one interval on a page.
    """
    verdict = comparison["verdict"] or {}
    rows = []
    for name, values in comparison["metrics"].items():
        metric = declared.get(name, {})
        ends = [values["difference"], values["low"], values["high"]]
        if metric.get("better") == "lower":
            ends = [None if end is None else -end for end in (ends[0], ends[2], ends[1])]
        if name == verdict.get("metric") and verdict["scale"]["kind"] == "declared":
            ends = [verdict["mean"], verdict["low"], verdict["high"]]
        row = dict(zip(("difference", "low", "high"), ends, strict=True))
        rows.append({**values, **row, "title": metric.get("title") or name, "better": metric.get("better")})
    return rows


def others(reference: Mapping[str, Any], ids: list[str]) -> list[Mapping[str, Any]]:
    """Return simulations that can be added: the newest that have succeeded on the same version of the dataset."""
    query = {
        "dataset_digest": reference["dataset"]["digest"],
        "state": ["succeeded"],
        "comparison": "none",
        "limit": 50,
    }
    return [simulation for simulation in api().get("/v1/simulations", **query)["items"] if simulation["id"] not in ids]


@blueprint.get("/replay")
def replay() -> str:
    """Replay the same scenario with two models, side by side; ``at``: the second at which the replay stands."""
    sides = []
    for side in ("left", "right"):
        id, _, task = request.args.get(side, "").partition(".")
        if not isinstance(number := number_of(task), int) or number < 0:
            abort(404)
        sides.append({"simulation": api().get(path_of("simulations", id)), "task": number})
    at = seconds_of(request.args.get("at", ""))
    labels = told_apart(*(side["simulation"] for side in sides))
    left, right = (side | {"label": label} for side, label in zip(sides, labels, strict=True))
    return render_template("compare/replay.html", left=left, right=right, at=at)


def told_apart(left: Mapping[str, Any], right: Mapping[str, Any]) -> tuple[str, str]:
    """Return what two replays are called: their models, of a rerun with the parameters that it has changed."""
    first, second = left["model"]["name"], right["model"]["name"]
    if first != second:
        return first, second
    rerun = rerun_of(right)
    if rerun is None or rerun["found"] is None or rerun["found"]["id"] != left["id"] or not rerun["changed"]:
        return f"{first}, left", f"{second}, right"
    before = ", ".join(f"{name} {cell(was)}" for name, was, _ in rerun["changed"])
    after = ", ".join(f"{name} {cell(now)}" for name, _, now in rerun["changed"])
    return f"{first}, {before}", f"{second}, {after}"


def cell(value: Any) -> str:
    """Return the value of a parameter as text."""
    return value if isinstance(value, str) else json.dumps(value)
