"""WSGI application of a server with both the API and the web page, chosen by path."""

from collections.abc import Iterable
from typing import TYPE_CHECKING

from web.paths import is_page

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment


class Mounted:
    """WSGI application that passes requests of the page to ``page``, and all others to ``api``."""

    def __init__(self, api: "WSGIApplication", page: "WSGIApplication") -> None:
        self._api = api
        self._page = page

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        application = self._page if is_page(environ.get("PATH_INFO", "")) else self._api
        return application(environ, start_response)
