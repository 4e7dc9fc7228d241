"""WSGI application of a server with both the API and the web page, chosen by path."""

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from web.paths import is_page

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class Mounted:
    """WSGI application that passes requests of the page to ``page``, and all others to ``api``.

    ``is_known``: whether the API has a path. A browser that opens any other address gets the page that says so.
    """

    def __init__(self, api: "WSGIApplication", page: "WSGIApplication", is_known: Callable[[str], bool]) -> None:
        self._api = api
        self._page = page
        self._is_known = is_known

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "")
        browses = environ["REQUEST_METHOD"] == "GET" and "text/html" in environ.get("HTTP_ACCEPT", "")
        for_page = is_page(path) or (browses and not self._is_known(path))
        return (self._page if for_page else self._api)(environ, start_response)
