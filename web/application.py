"""Flask application of the web page: views, static files, and errors of the API as pages."""

import hashlib
from collections.abc import Mapping
from functools import cache
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from flask import Blueprint, Flask, Response, redirect, render_template, request, url_for
from werkzeug.exceptions import HTTPException, NotFound
from werkzeug.wrappers import Response as AnyResponse

from web import acting_project, api_client, formatting, views
from web.acting_project import in_own_address
from web.api_client import Refused
from web.chart_scale import scale_of
from web.declared_metrics import score_of
from web.references import PageReferenceConverter
from web.states import STATES

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication

STATIC = Path(__file__).parent / "static"
#: A static file's address has its digest, so a browser never needs to ask for it again.
IMMUTABLE = "public, max-age=31536000, immutable"


def create(wsgi_api: "WSGIApplication") -> Flask:
    """Return the application of the page; ``wsgi_api``: the public API with its request guard."""
    app = Flask("web", static_folder=str(STATIC), static_url_path="/static", template_folder="templates")
    app.url_map.converters["reference"] = PageReferenceConverter
    app.jinja_env.trim_blocks = app.jinja_env.lstrip_blocks = True
    app.jinja_env.filters.update(formatting.FILTERS)
    app.jinja_env.globals.update(
        static=static_address, states=STATES, elapsed=formatting.elapsed, score_of=score_of, scale_of=scale_of
    )
    api_client.register(app, wsgi_api)
    acting_project.register(app)
    for module in iter_modules(views.__path__):
        for blueprint in vars(import_module(f"{views.__name__}.{module.name}")).values():
            if isinstance(blueprint, Blueprint):
                app.register_blueprint(blueprint)
    app.add_url_rule("/", "root", lambda: redirect(url_for("simulations.index"), 303))
    app.add_url_rule("/favicon.ico", "icon", lambda: redirect(static_address("icon.svg"), 301))
    app.register_error_handler(Refused, refused)
    app.register_error_handler(HTTPException, page_missing)
    app.after_request(with_headers)
    return app


@cache
def static_address(name: str) -> str:
    """Return the address of a static file, with the digest of its content."""
    digest = hashlib.sha256((STATIC / name).read_bytes()).hexdigest()[:12]
    return f"/static/{name}?v={digest}"


def with_headers(response: Response) -> Response:
    """Let browsers keep static files that were asked for with their digest, and send an Origin with forms.

    Under the API's policy `no-referrer` the Origin of a form's POST is `null`.
    """
    response.headers["Referrer-Policy"] = "same-origin"
    if request.endpoint == "static" and response.status_code == 200:
        response.headers["Cache-Control"] = IMMUTABLE if "v" in request.args else "no-cache"
    return response


def refused(error: Refused) -> AnyResponse | tuple[str, int]:
    """Answer with the API's problem as a page, or with the page that asks for the token."""
    if error.status == 401:
        return to_sign_in()
    return problem_page(error.problem, error.status)


def problem_page(problem: Mapping[str, Any], status: int) -> AnyResponse | tuple[str, int]:
    """Answer with a problem as a page; to a page that asks for a part of it, with the text that it shows."""
    if request.headers.get("HX-Request"):
        return Response(formatting.on_page(str(problem["detail"])), status, mimetype="text/plain")
    return render_template("problem.html", problem=problem), status


def page_missing(error: HTTPException) -> AnyResponse | tuple[str, int] | HTTPException:
    """Answer an address that is not a page, or another method than its own."""
    if error.code is None or error.code < 400:
        return error
    detail = "There is no page at this address." if isinstance(error, NotFound) else error.description
    return problem_page({"title": error.name, "detail": detail}, error.code)


def to_sign_in() -> AnyResponse:
    """Lead to the page that asks for the token.

    A browser that follows a link from another site does not send a `SameSite=Strict` cookie. The page is loaded again,
    from this site, before the token is asked for.
    """
    here = in_own_address()
    if request.headers.get("Sec-Fetch-Site") in {"cross-site", "same-site"}:
        return Response(render_template("reload.html", address=here))
    address = f"{url_for('session.sign_in')}?{urlencode({'next': here})}"
    if request.headers.get("HX-Request"):  # htmx follows a redirect within a part of the page
        return Response(status=204, headers={"HX-Redirect": address})
    return redirect(address, 303)
