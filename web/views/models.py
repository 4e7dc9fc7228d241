"""Pages of models: what is stored, the simulations of each, and the runtimes that load them."""

from collections.abc import Mapping
from typing import Any

from flask import Blueprint, redirect, render_template, request, url_for
from werkzeug.wrappers import Response

from web.api_client import api, path_of_reference
from web.run_list import run_counts, run_page
from web.version_tags import remove_tag, set_tag
from web.views.comparison import DECISIONS

blueprint = Blueprint("models", __name__)

#: Runs that are named on the page of a model.
NEWEST = 20


@blueprint.get("/models")
def index() -> str:
    """List models, and the runtimes."""
    shared = "shared" in request.args
    page = api().get("/v1/models", limit=100, after=request.args.get("after", ""), shared="true" if shared else "")
    return render_template("models/list.html", models=page["items"], following=page["next"], shared=shared)


@blueprint.get("/models/<reference:name>")
def show(name: str) -> str:
    """Show a model and its simulations: `name`, `name@version` or `name@tag`."""
    model = api().get(path_of_reference("models", name))
    used = {"model_digest": model["digest"]}
    newest = run_page(used, limit=NEWEST)
    return render_template(
        "models/model.html",
        model=model,
        runs=newest.items,
        used=run_counts(used, newest)["total"],
        decisions=DECISIONS,
    )


@blueprint.post("/models/<reference:name>/tags")
def tag(name: str) -> Response:
    """Set or move a tag to a version: `name@version`."""
    model = api().get(path_of_reference("models", name))
    set_tag("models", model["name"], str(model["version"]))
    return redirect(address_of(model), 303)


@blueprint.post("/models/<reference:name>/tags/remove")
def untag(name: str) -> Response:
    """Remove a tag of a version."""
    model = api().get(path_of_reference("models", name))
    remove_tag("models", model["name"])
    return redirect(address_of(model), 303)


@blueprint.post("/models/<reference:name>/delete")
def delete(name: str) -> Response:
    """Delete a version."""
    api().delete(path_of_reference("models", name))
    return redirect(url_for("models.index"), 303)


def address_of(model: Mapping[str, Any]) -> str:
    """Return the address of a version's page."""
    return url_for("models.show", name=f"{model['name']}@{model['version']}")


@blueprint.get("/runtimes")
def runtimes() -> str:
    """Show the runtimes: formats, packages and limits."""
    items: list[dict[str, Any]] = api().get("/v1/runtimes")["items"]
    return render_template("models/runtimes.html", runtimes=items)
