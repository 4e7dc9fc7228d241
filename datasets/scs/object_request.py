"""Object request: what the parser has found in a request, and the headers that are evaluated."""

#: Headers that are evaluated; all others are dropped. Sending one of SINGLE twice is an error (RFC 9110, 5.3).
SINGLE = frozenset(
    {b"host", b"authorization", b"range", b"content-length", b"transfer-encoding", b"if-range", b"expect"}
    | {b"content-digest", b"if-modified-since", b"if-unmodified-since", b"content-encoding", b"content-range"}
)
LISTS = frozenset({b"if-match", b"if-none-match", b"connection"})
#: Headers that only a browser sends; web pages are refused, see docs/scs.md.
BROWSERS = frozenset({b"origin", b"sec-fetch-site"})
KNOWN = SINGLE | LISTS | BROWSERS


class ObjectRequest:
    """Parsed request. ``fault``: status with which the parser refuses it; ``complete``: its body has been received."""

    # class attributes as defaults: an instance is created per request, and most keep most defaults
    method = b""
    target = b""
    length: int | None = None
    fault = 0
    keep_alive = False
    complete = False
    authenticator_unavailable = False
    attempts = 0
    arrived_at = 0.0

    def __init__(self) -> None:
        self.headers: dict[bytes, bytes] = {}
        self.body: list[bytes] = []
