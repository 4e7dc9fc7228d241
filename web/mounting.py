"""WSGI application of a server with both the API and the web page, chosen by path."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from web.paths import is_page

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment
    from werkzeug.routing import MapAdapter


class Mounted:
    """WSGI application that passes requests of the page to ``page``, and all others to ``api``.

    ``routes``: those of the API. A browser that opens an address of neither gets the page that says so.
    """

    def __init__(self, api: "WSGIApplication", page: "WSGIApplication", routes: "MapAdapter") -> None:
        self._api = api
        self._page = page
        self._routes = routes

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        return (self._page if self._is_for_page(environ) else self._api)(environ, start_response)

    def _is_for_page(self, environ: "WSGIEnvironment") -> bool:
        path = environ.get("PATH_INFO", "")
        browses = environ["REQUEST_METHOD"] == "GET" and "text/html" in environ.get("HTTP_ACCEPT", "")
        return is_page(path) or (browses and not self._is_of_api(path))

    def _is_of_api(self, path: str) -> bool:
        return path.startswith("/v1/") or self._routes.test(path)
