"""WSGI application of a server with both the API and the web page, chosen by path."""

from typing import TYPE_CHECKING

from web.paths import is_page

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIApplication, WSGIEnvironment
    from werkzeug.routing import MapAdapter


def mount(api: "WSGIApplication", page: "WSGIApplication", routes: "MapAdapter") -> "WSGIApplication":
    """Return the application that passes requests of the page to ``page``, and all others to ``api``.

    ``routes``: those of the API. A browser that opens an address of neither gets the page that says so.
    """

    def is_for_page(environ: "WSGIEnvironment") -> bool:
        path = environ.get("PATH_INFO", "")
        browses = environ["REQUEST_METHOD"] == "GET" and "text/html" in environ.get("HTTP_ACCEPT", "")
        return is_page(path) or (browses and not path.startswith("/v1/") and not routes.test(path))

    return lambda environ, start_response: (page if is_for_page(environ) else api)(environ, start_response)
