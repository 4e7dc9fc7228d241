"""Pages of models: what is stored, the simulations of each, and the runtimes that load them."""

from typing import Any

from flask import Blueprint, render_template, request

from web.api_client import api, path_of

blueprint = Blueprint("models", __name__)


@blueprint.get("/models")
def index() -> str:
    """List models, and the runtimes."""
    page = api().get("/v1/models", limit=100, after=request.args.get("after", ""))
    return render_template("models/list.html", models=page["items"], following=page["next"])


@blueprint.get("/models/<name>")
def show(name: str) -> str:
    """Show a model and its simulations: `name`, `name@version` or `name@tag`."""
    model = api().get(path_of("models", name))
    used = {"model_digest": model["digest"]}
    return render_template(
        "models/model.html",
        model=model,
        simulations=api().get("/v1/simulations", limit=20, **used)["items"],
        counts=api().get("/v1/simulations/counts", **used),
    )


@blueprint.get("/runtimes")
def runtimes() -> str:
    """Show the runtimes: formats, packages and limits."""
    items: list[dict[str, Any]] = api().get("/v1/runtimes")["items"]
    return render_template("models/runtimes.html", runtimes=items)
