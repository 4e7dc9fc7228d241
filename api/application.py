"""The Flask application, put together from a context; it reads no settings and opens nothing."""

from functools import cache
from typing import Any

from flask import Flask

from api import compat, converters, docs
from api.blueprint import Api
from api.body import Request
from api.context import EXTENSION, Context
from api.metrics import observe
from api.request_guard import Gate
from api.tus import Tus
from api.v1 import (
    artifacts,
    datasets,
    executors,
    models,
    operations,
    results,
    runtimes,
    simulations,
    transfers,
    uploads,
)

VERSION = "0.1.0"
DESCRIPTION = """Bring the model binary, we have the data and the simulator.

Times are RFC 3339 in UTC, durations seconds, sizes bytes. Errors are `application/problem+json` (RFC 9457); their
`type` leads to a page about them. Lists come by pages: give `next` as `after`."""
BLUEPRINTS = (
    simulations,
    results,
    artifacts,
    models,
    runtimes,
    executors,
    datasets,
    uploads,
    transfers,
    operations,
)


def surface(*, described: bool) -> tuple[Flask, Api]:
    """Build an application that knows its addresses, and can describe itself where asked to; it cannot serve yet."""
    app = Flask("windtunnel", static_folder=None)
    app.config.update(
        API_TITLE="Windtunnel",
        API_VERSION=VERSION,
        OPENAPI_VERSION="3.1.0",
        API_SPEC_OPTIONS={"info": {"description": DESCRIPTION}},
        PROPAGATE_EXCEPTIONS=False,
    )
    app.url_map.merge_slashes = False
    converters.register(app)
    api = Api(app, converters.SCHEMAS)
    for noun in BLUEPRINTS:
        if described:
            api.register_blueprint(noun.blueprint)
        else:
            api.serve(noun.blueprint)
    return app, api


@cache
def describe() -> dict[str, Any]:
    """Return the OpenAPI document. Describing costs more than serving: a process does it once, when it is asked to."""
    return surface(described=True)[1].document()


def create(context: Context) -> Flask:
    """Build the application."""

    class SpooledRequest(Request):
        spool = context.spool

    app, _ = surface(described=False)
    app.request_class = SpooledRequest
    app.config["MAX_CONTENT_LENGTH"] = context.max_upload
    app.extensions[EXTENSION] = context
    registry = observe(app, context.platform)
    app.register_blueprint(compat.blueprint)
    app.register_blueprint(docs.pages(describe, registry))
    app.wsgi_app = Tus(Gate(app.wsgi_app, names=context.names, token=context.token))  # type: ignore[method-assign]
    return app
