"""Request guard: WSGI middleware that checks host, origin, token and body framing before a request is parsed.

Without it any web page could control an API on loopback: a form-urlencoded or multipart POST needs no CORS preflight,
and a rebound DNS name reaches it too. So the Host header must be a name of this server, and a browser's request must
come from a page of the same origin.
"""

import io
import re
from collections.abc import Callable, Collection, Iterable
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from api.credentials import credential_of, is_meant
from api.identification import ANYBODY, IDENTITY, Identification, OneToken, take_project
from api.problems import LengthRequired, encode
from api.request_rates import RequestRates
from common.errors import (
    BadRequest,
    Forbidden,
    Misdirected,
    PlatformError,
    TruncatedUpload,
    Unauthorized,
    UnsupportedMedia,
)

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
#: Host name of the 1.0 API; only POST requests of the 1.0 paths are accepted under it.
LEGACY_HOST = "karrozzeria"
LEGACY_PATHS = frozenset({"/1.0/simulation/tests", "/1.0/simluation/tests"})
#: Paths of an orchestrator's probes, served without a token: they reveal nothing about simulations.
PROBES = frozenset({"/healthz", "/readyz"})

SECURITY = {
    "Content-Security-Policy": "default-src 'self'; frame-ancestors 'none'; base-uri 'none'; form-action 'self'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cache-Control": "no-store",
}


def host_of(authority: str) -> str:
    """Return a Host header's name without its port, in lower case."""
    name, colon, port = authority.rpartition(":")
    return (name if colon and port.isdigit() else authority).lower()


#: Paths of a web page whose own code asks for the token; `web/paths.py` has those of this platform's page.
IsPage = Callable[[str], bool]
#: Is told which requests are refused, and why.
Observer = Callable[["WSGIEnvironment", PlatformError], None]


def check_head(
    environ: "WSGIEnvironment",
    names: Collection[str],
    identification: Identification,
    is_page: IsPage = lambda path: False,
    *,
    rates: RequestRates | None = None,
    io: bool = True,
) -> PlatformError | None:
    """Check a request's head, without reading its body; return the error, or None if the request is accepted.

    An accepted request has its identity in the environment. ``io``: whether the database may be asked for it; else a
    request of a user who was not seen in the last second is accepted without one, and is checked again. ``rates``: how
    fast requests may come.
    ``is_page``: whether a path is one of the web page. Its documents are served without a token, because they have
    nothing but what the API gives their reader, and a link from another site may lead to them.
    """
    authority = environ.get("HTTP_HOST", "")
    host, origin = host_of(authority), environ.get("HTTP_ORIGIN")
    legacy = host == LEGACY_HOST and _is_legacy(environ) and origin is None
    if host not in names and not legacy:
        return Misdirected()
    if origin is not None and origin.lower() not in origins(environ["wsgi.url_scheme"], host, authority.lower()):
        return Forbidden()
    page = is_page(environ.get("PATH_INFO", ""))
    if environ.get("HTTP_SEC_FETCH_SITE", "none") not in {"same-origin", "none"} and not (
        page and follows_link(environ)
    ):
        return Forbidden()
    if IDENTITY not in environ:
        open_to_all = page or environ.get("PATH_INFO") in PROBES
        if refusal := _let_in(environ, identification, io=io) if not open_to_all else None:
            return refusal
        if open_to_all:
            environ[IDENTITY] = ANYBODY
    if environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() != "identity":
        return UnsupportedMedia("Send the body uncompressed, without a Content-Encoding.")
    if environ.get("CONTENT_LENGTH") and environ.get("HTTP_TRANSFER_ENCODING"):
        return BadRequest("Send a Content-Length or a Transfer-Encoding, not both.")
    return rates.check(environ) if rates is not None and IDENTITY in environ else None


#: Requests of who has no credential yet: his invitation for his first token, and the ways to sign in.
_BEGINNING_LINES = re.compile(
    r"POST /v1/users/[a-z0-9-]{1,40}/tokens|GET /v1/sign-in|POST /v1/sign-in/(?:password|invitation|passkey|"
    r"passkey/question|devices|devices/tokens|providers/[a-z0-9-]{1,40}(?:/answer)?)"
)

#: The request by which a browser comes back from a provider; the session that it may have has no part in it.
_RETURN_LINE = re.compile(r"POST /v1/sign-in/providers/[a-z0-9-]{1,40}/answer")


def _is_legacy(environ: "WSGIEnvironment") -> bool:
    return environ["REQUEST_METHOD"] == "POST" and environ.get("PATH_INFO") in LEGACY_PATHS


def _line(environ: "WSGIEnvironment") -> str:
    return f"{environ['REQUEST_METHOD']} {environ.get('PATH_INFO', '')}"


def _let_in(environ: "WSGIEnvironment", identification: Identification, *, io: bool) -> PlatformError | None:
    """Put the identity of a request, and the project that it names, into its environment; return why it has none."""
    try:
        known = identification.recall(environ)
        if known is None and not io:
            return None
        [identity] = known if known is not None else (identification.identify(environ),)
        line = _line(environ)
        if _RETURN_LINE.fullmatch(line) or (identity is None and _BEGINNING_LINES.fullmatch(line)):  # expired cookies
            identity = None if (sent := credential_of(environ)).bearer and sent.value else ANYBODY
        if identity is None and identification.accounts and _is_legacy(environ) and not credential_of(environ).value:
            identity = identification.legacy()
        if identity is not None and (identity.by == "nothing" or is_meant(environ)):
            take_project(environ)
            environ[IDENTITY] = identity
            return None
    except PlatformError as error:  # the database is away, or the request names two projects
        return error
    sent = credential_of(environ)
    if sent.bearer and sent.value and identification.accounts:
        return Unauthorized("The token of this request is not valid: it was revoked, has expired, or is none.")
    if sent.bearer and sent.value:
        return Unauthorized("The token of this request is not that of this server (WINDTUNNEL_TOKEN).")
    if identification.accounts:
        return Unauthorized("Send a token, `Authorization: Bearer <token>`; docs/accounts.md says how you get one.")
    return Unauthorized("This server requires its token: send `Authorization: Bearer <token>`.")


def follows_link(environ: "WSGIEnvironment") -> bool:
    """Return whether a browser opens a document in a tab of its own, not in a frame and not from a script."""
    return (
        environ["REQUEST_METHOD"] == "GET"
        and environ.get("HTTP_SEC_FETCH_MODE") == "navigate"
        and environ.get("HTTP_SEC_FETCH_DEST") == "document"
    )


def origins(scheme: str, host: str, authority: str) -> set[str]:
    """Return the origins that pages of this server have.

    A configured name may belong to an ingress that terminates TLS and forwards plain HTTP; a page served by https under
    that name is a page of this server. On loopback there is no ingress, but https there may be an unrelated server.
    """
    return {f"{scheme}://{authority}"} | ({f"https://{authority}"} if host not in LOOPBACK else set())


def head_check(
    names: Iterable[str],
    identification: Identification,
    is_page: IsPage = lambda path: False,
    *,
    rates: RequestRates | None = None,
    io: bool = True,
) -> "Callable[[WSGIEnvironment], PlatformError | None]":
    """Return `check_head` for a server's own names, besides those of loopback, its identities and its web page."""
    known = LOOPBACK | {name.lower() for name in names}
    return lambda environ: check_head(environ, known, identification, is_page, rates=rates, io=io)


def encode_refusal(error: PlatformError) -> tuple[int, bytes, dict[str, str]]:
    """Return the HTTP status, the body and the headers of an error that is answered before the application."""
    status, body, headers = encode(error)
    return status, body, SECURITY | headers


def read_arrived(stream: Any, size: int, seconds: float) -> bytes | None:
    """Return up to ``size`` bytes of a body that have arrived.

    b"" if there are none after ``seconds``, None at the end.

    The streams of the gateway (server/request_bodies.py) can do that; a stream of another server, as in tests, is read.
    """
    if (arrived := getattr(stream, "read_arrived", None)) is None:
        return stream.read(size) or None
    chunk: bytes | None = arrived(size, seconds)
    return chunk


class AnnouncedBody(io.IOBase):
    """Body stream of an announced length; a body that ends early raises TruncatedUpload."""

    def __init__(self, stream: Any, length: int) -> None:
        super().__init__()
        self._stream = stream
        self._remaining = length

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; raise TruncatedUpload if the connection ends before the body."""
        if self._remaining == 0:
            return b""
        count = self._remaining if size < 0 else min(size, self._remaining)
        try:
            chunk: bytes = self._stream.read(count)
        except OSError:
            chunk = b""
        return self._counted(chunk or None) if count else b""

    def read_arrived(self, size: int, seconds: float) -> bytes | None:
        """Return bytes that have arrived, as `read_arrived` does; raise TruncatedUpload as ``read`` does."""
        if self._remaining == 0:
            return None
        return self._counted(read_arrived(self._stream, min(size, self._remaining), seconds))

    def _counted(self, chunk: bytes | None) -> bytes:
        if chunk is None:
            raise TruncatedUpload(
                f"The body ended {self._remaining} bytes before its announced length. Nothing was stored."
            )
        self._remaining -= len(chunk)
        return chunk


def checked_body(environ: "WSGIEnvironment") -> Any:
    """Return the body's stream, checked against its Content-Length if it has one."""
    length = environ.get("CONTENT_LENGTH")
    return AnnouncedBody(environ["wsgi.input"], int(length)) if length else environ["wsgi.input"]


def needs_length(environ: "WSGIEnvironment") -> None:
    """Raise LengthRequired for a raw body whose end cannot be distinguished from a broken connection."""
    if not environ.get("CONTENT_LENGTH"):
        raise LengthRequired()


class RequestGuard:
    """WSGI middleware: refuses requests that `check_head` reports, and adds the security headers to every answer."""

    def __init__(
        self,
        app: "WSGIApplication",
        *,
        names: Iterable[str] = (),
        identification: Identification | None = None,
        is_page: IsPage = lambda path: False,
        rates: RequestRates | None = None,
        observe: Observer = lambda environ, error: None,
    ) -> None:
        self._app = app
        self._observe = observe
        self._check = head_check(names, identification or OneToken(""), is_page, rates=rates)

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        def guarded(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            present = {name.lower() for name, _ in headers}
            headers = headers + [(name, value) for name, value in SECURITY.items() if name.lower() not in present]
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        if error := self._check(environ):
            self._observe(environ, error)
            status, body, headers = encode(error)
            guarded(f"{status} {HTTPStatus(status).phrase}", list(headers.items()))
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
        environ["wsgi.input"] = checked_body(environ)
        return self._app(environ, guarded)
