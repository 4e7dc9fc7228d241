"""Posts to receivers: one request to an address that was checked, in bounded time, of whose answer little is read."""

import ipaddress
import socket
import ssl
import threading
import time
from collections.abc import Collection, Mapping
from contextlib import suppress
from datetime import UTC, datetime
from http.client import HTTPException
from urllib.parse import urlsplit

from urllib3.connection import HTTPConnection
from urllib3.exceptions import HTTPError, NameResolutionError
from urllib3.exceptions import TimeoutError as RequestTimeout

from common.client_addresses import Network
from common.errors import Invalid
from core.domain.webhooks.delivery_outcomes import ReceiverAnswer, asked_pause_of
from datasets.model_origins.web import is_public
from datasets.objectstore.connections import permitted
from datasets.objectstore.guarded_pools import ForbiddenAddress, guarded_connections

#: Seconds without a byte after which a request has failed, and seconds that it may take in all.
SILENCE, LONGEST_TIME = 10.0, 15.0
#: Most bytes that are read of an answer, and most characters of it that are kept.
MOST_READ, EXCERPT = 4096, 300
#: Most characters of an address.
LONGEST_URL = 2000


class ReceiverPosts:
    """Sends requests. ``networks``: those that an operator allows beside the public Internet."""

    def __init__(
        self, networks: Collection[Network] = (), *, silence: float = SILENCE, longest: float = LONGEST_TIME
    ) -> None:
        self._networks = tuple(networks)
        self._silence, self._longest = silence, longest
        self._http, self._https = guarded_connections(self.allows)

    def allows(self, number: str) -> bool:
        """Tell whether an IP address may be connected to: one of the public Internet, or of an allowed network.

        Addresses of the machine's link and of clouds' metadata are never allowed.
        """
        if is_public(number):
            return True
        ip = ipaddress.ip_address(number.partition("%")[0])
        mapped = (isinstance(ip, ipaddress.IPv6Address) and ip.ipv4_mapped) or ip
        return permitted(number) and any(mapped in network for network in self._networks)

    def check(self, url: str) -> None:
        """Raise Invalid for an address that no event can be sent to. A name is resolved when something is sent."""
        try:
            parts = urlsplit(url)
            host, _ = parts.hostname or "", parts.port
        except ValueError:
            raise Invalid("`url` is not an address. Write one such as https://ci.example.com/hooks/1.") from None
        sound = parts.scheme in {"http", "https"} and host and "@" not in parts.netloc and not parts.fragment
        if not sound or not url.isascii() or not url.isprintable() or " " in url or len(url) > LONGEST_URL:
            raise Invalid(
                "`url` is an address of http or https without user, password and fragment, in ASCII, such as"
                " https://ci.example.com/hooks/1."
            )
        if _is_number(host) and not self.allows(host):
            raise Invalid(
                f"`url` names {host}, which is not an address of the public Internet. The operator allows networks by"
                " WINDTUNNEL_WEBHOOK_NETWORKS."
            )

    def post(self, url: str, body: bytes, headers: Mapping[str, str]) -> ReceiverAnswer:
        """Send a request and return what it came to, whatever the receiver does; a redirect is not followed."""
        begun = time.monotonic()
        try:
            status, excerpt, pause = self._exchange(url, body, headers)
        except (HTTPError, HTTPException, OSError, ValueError) as error:
            late = time.monotonic() - begun >= self._longest
            sentence = _sentence(error, late=late, silence=self._silence, longest=self._longest)
            return ReceiverAnswer(error=sentence, seconds=time.monotonic() - begun)
        return ReceiverAnswer(
            status=status,
            error=refusal_of(status),
            excerpt=excerpt,
            seconds=time.monotonic() - begun,
            asked_pause=pause,
        )

    def _exchange(self, url: str, body: bytes, headers: Mapping[str, str]) -> tuple[int, str, float]:
        parts = urlsplit(url)
        host = parts.hostname or ""
        if parts.scheme == "https":
            tls = ssl.create_default_context()
            connection: HTTPConnection = self._https(host, parts.port, timeout=self._silence, ssl_context=tls)
        else:
            connection = self._http(host, parts.port, timeout=self._silence)
        done = threading.Event()
        watch = threading.Thread(target=self._watch, args=(connection, done), name="receiver", daemon=True)
        watch.start()
        try:
            connection.connect()
            path = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            connection.request("POST", path, body=body, headers=dict(headers), preload_content=False)
            response = connection.getresponse()
            excerpt = b""
            if refusal_of(response.status) is not None:
                with suppress(HTTPError, HTTPException, OSError):  # the status alone decides
                    excerpt = response.read1(MOST_READ)
            pause = asked_pause_of(response.status, response.headers.get("Retry-After"), datetime.now(UTC))
            return response.status, _excerpt(excerpt), pause
        finally:
            done.set()
            connection.close()

    def _watch(self, connection: HTTPConnection, done: threading.Event) -> None:
        """Break a connection that takes too long: time-outs of a socket begin again with each byte."""
        wait = self._longest
        while not done.wait(wait):
            wait = 0.5
            if (sock := connection.sock) is not None:
                with suppress(OSError):
                    socket.socket.shutdown(sock, socket.SHUT_RDWR)  # not that of TLS, which would wait for the other


def refusal_of(status: int) -> str | None:
    """Return why an answer does not count as accepted, None if it does."""
    if 200 <= status < 300:
        return None
    if 300 <= status < 400:
        return f"It answered {status}: redirects are not followed. Give the webhook the address that it leads to."
    return f"It answered {status}."


def _excerpt(answer: bytes) -> str:
    text = " ".join(answer.decode(errors="replace").split())
    return "".join(letter if letter.isprintable() else "\ufffd" for letter in text)[:EXCERPT]


def _is_number(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


def _sentence(error: Exception, *, late: bool, silence: float, longest: float) -> str:
    """Return what went wrong, without what a receiver or a resolver has written."""
    table: tuple[tuple[bool, str], ...] = (
        (
            isinstance(error, ForbiddenAddress),
            "Its host has no address of the public Internet. The operator allows networks by"
            " WINDTUNNEL_WEBHOOK_NETWORKS.",
        ),
        (late, f"It took longer than {longest:g} s."),
        (isinstance(error, NameResolutionError), "The name of its host cannot be resolved."),
        (isinstance(error, RequestTimeout | TimeoutError), f"It did not answer within {silence:g} s."),
        (isinstance(error, ssl.SSLCertVerificationError), "Its certificate is not valid for this name."),
        (isinstance(error, ssl.SSLError), "It does not speak TLS as this platform does."),
        (isinstance(error, ConnectionRefusedError), "It refuses connections."),
    )
    cause = error.__cause__
    if isinstance(cause, ConnectionRefusedError):
        return "It refuses connections."
    return next((text for holds, text in table if holds), f"The connection failed ({type(error).__name__}).")
