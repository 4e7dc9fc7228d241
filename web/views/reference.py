"""Page of the API reference: Swagger UI on the OpenAPI document, with the header and colours of the other pages."""

from flask import Blueprint, Response, render_template

from web.api_client import Refused, api

blueprint = Blueprint("reference", __name__)

#: Swagger UI sets styles of elements, and its style sheet has icons as `data:` URLs.
POLICY = (
    "default-src 'self'; img-src 'self' data:; style-src 'self' 'unsafe-inline'; "
    "frame-ancestors 'none'; base-uri 'none'; form-action 'self'"
)


@blueprint.get("/docs")
def show() -> Response:
    """Show the reference, to those who may read the document."""
    status = api().status("/openapi.json")
    if status == 401:
        raise Refused(status, {})
    return Response(render_template("reference.html"), headers={"Content-Security-Policy": POLICY})
