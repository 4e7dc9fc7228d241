"""The gate before any parsing: whose request this is, whether a web page sent it, and whether its body is whole.

The loopback API could be driven by any web page: a form-urlencoded or multipart POST needs no pre-flight, and a
rebound name reaches it too. So a request must name a host this server answers for, and a browser must say that the
page is of this very origin.
"""

import hmac
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import TYPE_CHECKING, Any

from api.problems import LengthRequired, describe, encode
from errors import BadRequest, Forbidden, Misdirected, PlatformError, TruncatedUpload, Unauthorized, UnsupportedMedia

if TYPE_CHECKING:
    from _typeshed.wsgi import StartResponse, WSGIApplication, WSGIEnvironment

LOOPBACK = frozenset({"localhost", "127.0.0.1", "[::1]"})
#: The host of the promise: it answers the one request that was promised, and nothing else.
PROMISED_HOST = "karrozzeria"
PROMISED_PATHS = frozenset({"/1.0/simulation/tests", "/1.0/simluation/tests"})
#: What an orchestrator's probe may ask without a token: neither tells anything about anybody's work.
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


def judge(environ: "WSGIEnvironment", names: Collection[str], token: str) -> PlatformError | None:
    """Decide from the head of a request alone whether it may come in; return what is wrong with it."""
    authority = environ.get("HTTP_HOST", "")
    host, origin = host_of(authority), environ.get("HTTP_ORIGIN")
    promised = (
        host == PROMISED_HOST
        and environ["REQUEST_METHOD"] == "POST"
        and environ.get("PATH_INFO") in PROMISED_PATHS
        and origin is None
    )
    if host not in names and not promised:
        return Misdirected()
    if origin is not None and origin.lower() not in origins(environ["wsgi.url_scheme"], host, authority.lower()):
        return Forbidden()
    if environ.get("HTTP_SEC_FETCH_SITE", "none") not in {"same-origin", "none"}:
        return Forbidden()
    if token and environ.get("PATH_INFO") not in PROBES:
        scheme, _, given = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
        if scheme.lower() != "bearer" or not hmac.compare_digest(given.strip().encode(), token.encode()):
            return Unauthorized("This server takes requests with its token only: send `Authorization: Bearer <token>`.")
    if environ.get("HTTP_CONTENT_ENCODING", "identity").strip().lower() != "identity":
        return UnsupportedMedia("Send the body as it is, without a Content-Encoding.")
    if environ.get("CONTENT_LENGTH") and environ.get("HTTP_TRANSFER_ENCODING"):
        return BadRequest("A body has a Content-Length or a Transfer-Encoding, not both.")
    return None


def origins(scheme: str, host: str, authority: str) -> set[str]:
    """Return what pages of ours call their origin.

    A name that we were given may be that of an ingress which ends TLS and asks us by plain HTTP; whoever can show a
    page by https under that name is us. Loopback has no such thing before it, but may have somebody else's server.
    """
    return {f"{scheme}://{authority}"} | ({f"https://{authority}"} if host not in LOOPBACK else set())


class AnnouncedBody:
    """A body of an announced length: one that ends early is an error, and never a shorter body."""

    def __init__(self, stream: Any, length: int) -> None:
        self._stream = stream
        self._left = length

    def read(self, size: int = -1) -> bytes:
        """Read up to ``size`` bytes; raise TruncatedUpload where the connection ended before the body did."""
        if self._left == 0:
            return b""
        wanted = self._left if size < 0 else min(size, self._left)
        try:
            chunk: bytes = self._stream.read(wanted)
        except OSError:
            chunk = b""
        if not chunk and wanted:
            raise TruncatedUpload(f"The body ended {self._left} bytes before its announced length. Nothing was kept.")
        self._left -= len(chunk)
        return chunk

    def readline(self, size: int = -1) -> bytes:
        """Read a line; part of the WSGI contract, used by nothing here."""
        line = bytearray()
        while not line.endswith(b"\n") and (size < 0 or len(line) < size) and (byte := self.read(1)):
            line += byte
        return bytes(line)

    def readlines(self, hint: int = -1) -> list[bytes]:
        """Read all lines."""
        return list(self)

    def __iter__(self) -> Iterator[bytes]:
        return iter(self.readline, b"")


def whole_body(environ: "WSGIEnvironment") -> Any:
    """Return the body's stream, which knows where the body should end."""
    length = environ.get("CONTENT_LENGTH")
    return AnnouncedBody(environ["wsgi.input"], int(length)) if length else environ["wsgi.input"]


def needs_length(environ: "WSGIEnvironment") -> None:
    """Refuse a raw body whose end cannot be told from a broken connection."""
    if not environ.get("CONTENT_LENGTH"):
        raise LengthRequired()


class Gate:
    """WSGI middleware: lets in what `judge` finds nothing wrong with, and puts the security headers on every answer."""

    def __init__(self, app: "WSGIApplication", *, names: Iterable[str] = (), token: str = "") -> None:
        self._app = app
        self._names = LOOPBACK | {name.lower() for name in names}
        self._token = token

    def __call__(self, environ: "WSGIEnvironment", start_response: "StartResponse") -> Iterable[bytes]:
        def guarded(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Callable[[bytes], object]:
            present = {name.lower() for name, _ in headers}
            headers = headers + [(name, value) for name, value in SECURITY.items() if name.lower() not in present]
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        if refusal := judge(environ, self._names, self._token):
            body, headers = encode(describe(refusal))
            guarded(f"{refusal.status.value} {refusal.status.phrase}", list(headers.items()))
            return [] if environ["REQUEST_METHOD"] == "HEAD" else [body]
        environ["wsgi.input"] = whole_body(environ)
        return self._app(environ, guarded)
