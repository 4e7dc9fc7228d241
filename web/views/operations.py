"""Page of operations: the queue, executors, caches, storage in use, simulators, and the checks of the server."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web.acting_project import visitor
from web.api_client import Refused, api, path_of

blueprint = Blueprint("operations", __name__, url_prefix="/operations")

#: What the kinds of storage of a machine are called.
MACHINE_KINDS: Mapping[str, str] = {
    "environments": "environments of runtimes and simulators",
    "cached_datasets": "cached datasets",
    "cached_models": "cached models",
    "cached_environments": "environments of models and of OpenEnv",
}


@blueprint.get("")
def show() -> str | Response:
    """Show the state of the platform, or only the part that changes; to who may not see it, the project."""
    if (known := visitor()) is not None and not known.may("operate"):
        return redirect(url_for("project.show"), 303)
    queue = api().get("/v1/queue")
    shown = {
        "readiness": readiness(),
        "counts": api().get("/v1/simulations/counts"),
        "queue": queue,
        "loads": {load["name"]: load for load in queue["executors"] or ()},
        "caches": api().get("/v1/caches"),
        "storage": api().get("/v1/storage"),
        "machine_kinds": MACHINE_KINDS,
        "executors": api().get("/v1/executors")["items"],
        "waiting": api().get("/v1/simulations", state=["queued", "staging", "launching"], limit=20)["items"],
    }
    if request.headers.get("HX-Request"):
        return render_template("operations/live.html", **shown)
    return render_template("operations/page.html", **shown, simulators=api().get("/v1/simulators")["items"])


@blueprint.post("/executors/<any(drain, undrain):action>")
def change_executor(action: str) -> Response:
    """Drain an executor, or end its drain."""
    reason = request.form.get("reason", "").strip()
    body = {"reason": reason} if action == "drain" and reason else None
    api().post(path_of("executors", request.form.get("executor", ""), action), body)
    return redirect(url_for("operations.show"), 303)


def readiness() -> dict[str, Any]:
    """Return the checks of the process that answers, also while it is not ready."""
    try:
        checks: dict[str, Any] = api().get("/readyz")
    except Refused as error:
        if error.status != 503:
            raise
        checks = dict(error.problem)
    return checks
