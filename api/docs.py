"""/docs, /openapi.json and /metrics: Swagger UI from an installed package (works offline), OpenAPI and Prometheus."""

from collections.abc import Callable
from importlib.resources import files
from pathlib import Path
from typing import Any

from flask import Blueprint as FlaskBlueprint
from flask import Response, send_from_directory
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.exposition import CONTENT_TYPE_LATEST

from api.blueprint import json_response
from errors import NotFound

#: Files of Swagger UI that are served.
SWAGGER_UI_ASSETS = {"swagger-ui.css", "swagger-ui-bundle.js", "favicon-32x32.png"}
OWN_ASSETS = {"docs.js"}
#: Content security policy of the page; the style sheet of Swagger UI has icons as `data:` URLs.
CONTENT_SECURITY_POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'"
)

PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>Windtunnel API</title>
<link rel="stylesheet" href="/docs/swagger-ui.css">
<link rel="icon" href="/docs/favicon-32x32.png">
</head>
<body>
<main id="docs"></main>
<script src="/docs/swagger-ui-bundle.js"></script>
<script src="/docs/docs.js"></script>
</body>
</html>
"""


def pages(document: Callable[[], dict[str, Any]], registry: CollectorRegistry) -> FlaskBlueprint:
    """Return the blueprint of Swagger UI, of the OpenAPI document and of the metrics."""
    blueprint = FlaskBlueprint("docs", __name__)
    swagger_ui = Path(str(files("flask_swagger_ui"))) / "dist"
    own_assets = Path(__file__).parent / "static"

    @blueprint.get("/docs")
    def docs() -> Response:
        return Response(
            PAGE, content_type="text/html; charset=utf-8", headers={"Content-Security-Policy": CONTENT_SECURITY_POLICY}
        )

    @blueprint.get("/docs/<asset>")
    def asset(asset: str) -> Response:
        if asset not in SWAGGER_UI_ASSETS | OWN_ASSETS:
            raise NotFound()
        return send_from_directory(own_assets if asset in OWN_ASSETS else swagger_ui, asset, max_age=3600)

    @blueprint.get("/openapi.json")
    def openapi() -> Response:
        return json_response(document())

    @blueprint.get("/metrics")
    def metrics() -> Response:
        return Response(generate_latest(registry), content_type=CONTENT_TYPE_LATEST)

    return blueprint
