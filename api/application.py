"""Flask application of the public API, built from a Context; it reads no settings and opens no resources."""

from functools import cache
from typing import Any

from flask import Flask

from api import compat, converters, docs, request_audit, stream_slots
from api.blueprint import Api, check_verbs
from api.body import SpooledRequest
from api.context import EXTENSION, Context
from api.metrics import observe
from api.request_guard import RequestGuard
from api.tus import Tus
from api.v1 import (
    accounts,
    artifacts,
    audit,
    bulk,
    comparisons,
    connections,
    datasets,
    distributions,
    executors,
    imports,
    looks,
    models,
    operations,
    pipelines,
    quotas,
    results,
    retention,
    runtimes,
    session,
    shares,
    sign_in,
    sign_in_methods,
    simulations,
    submissions,
    sweeps,
    transfers,
    uploads,
    usage,
    webhooks,
)
from common.version import VERSION

DESCRIPTION = """Simulation as a service: submit a model binary; the platform has the datasets and the simulators.

Times are RFC 3339 in UTC, durations are in seconds, sizes in bytes. Errors are `application/problem+json` (RFC 9457);
their `type` is the address of a description. Lists are paginated: pass `next` as `after` to get the next page."""
BLUEPRINTS = (
    simulations,
    bulk,
    submissions,
    results,
    sweeps,
    comparisons,
    pipelines,
    distributions,
    artifacts,
    looks,
    connections,
    models,
    imports,
    runtimes,
    executors,
    datasets,
    uploads,
    transfers,
    operations,
    usage,
    session,
    sign_in,
    sign_in_methods,
    shares,
    accounts,
    quotas,
    retention,
    audit,
    webhooks,
)


def with_routes(*, described: bool) -> tuple[Flask, Api]:
    """Return an application with its routes, without a Context, and its API; ``described`` adds OpenAPI operations."""
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
    for module in BLUEPRINTS:
        if described:
            api.register_blueprint(module.blueprint)
        else:
            api.serve(module.blueprint)
    return app, api


@cache
def describe() -> dict[str, Any]:
    """Return the OpenAPI document. It is built on first use: that takes longer than starting the server."""
    return with_routes(described=True)[1].document()


def create(context: Context) -> Flask:
    """Return the WSGI application of the public API, with its middleware."""

    class ContextRequest(SpooledRequest):
        spool = context.spool

    app, _ = with_routes(described=False)
    app.request_class = ContextRequest
    app.config["MAX_CONTENT_LENGTH"] = context.max_upload
    app.extensions[EXTENSION] = context
    stream_slots.register(app)
    registry = observe(app, context)
    app.register_blueprint(compat.blueprint)
    app.register_blueprint(docs.pages(describe, registry))
    check_verbs(app)
    if context.access is not None:
        request_audit.register(app, context.access.audit)
    guard = RequestGuard(
        app.wsgi_app,
        names=context.names,
        identification=context.identification,
        rates=context.request_rates,
        observe=request_audit.refusal_observer(context),
    )
    app.wsgi_app = Tus(guard)  # type: ignore[method-assign]
    return app
