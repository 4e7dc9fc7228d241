"""/openapi.json and /metrics, and the files of Swagger UI from an installed package, which the page /docs loads."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from flask import Blueprint as FlaskBlueprint
from flask import Response, send_from_directory
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from api.blueprint import json_response, needs
from common.errors import NotFound
from core.domain.access.roles import Verb

#: Files of Swagger UI that are served.
SWAGGER_UI_ASSETS = {"swagger-ui.css", "swagger-ui-bundle.js"}


def pages(document: Callable[[], dict[str, Any]], registry: CollectorRegistry) -> FlaskBlueprint:
    """Return the blueprint of the files of Swagger UI, of the OpenAPI document and of the metrics."""
    blueprint = FlaskBlueprint("docs", __name__)
    swagger_ui = Path(str(files("flask_swagger_ui"))) / "dist"

    @blueprint.get("/docs/<asset>")
    @needs(None)
    def asset(asset: str) -> Response:
        if asset not in SWAGGER_UI_ASSETS:
            raise NotFound()
        return send_from_directory(swagger_ui, asset, max_age=3600)

    @blueprint.get("/openapi.json")
    @needs(None)
    def openapi() -> Response:
        return json_response(document())

    @blueprint.get("/metrics")
    @needs(Verb.OPERATE)
    def metrics() -> Response:
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    return blueprint
