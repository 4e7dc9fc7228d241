"""Credentials of the public API: the operator's bearer token, or the session cookie that a browser has for it.

A session cookie holds a value that follows from the token, not the token itself: a program that reads the browser's
cookies does not learn the token, and a new token ends all sessions.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie
from typing import Any

COOKIE = "windtunnel_session"
#: What a browser keeps until it comes back from an identity provider, and after a sign-in with a password.
TICKET_COOKIE, BROWSER_COOKIE = "windtunnel_sign_in", "windtunnel_browser"
#: Seconds for which it keeps them.
TICKET_TTL, BROWSER_TTL = 600, 400 * 86_400
#: Seconds for which a browser keeps the cookie.
SESSION_TTL = 30 * 86_400
#: Path to which a password is sent in a body.
PASSWORD_FORM = "/v1/sign-in/password"
SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})


def session_of(token: str) -> str:
    """Return the value of the session cookie for a token."""
    return hmac.new(token.encode(), b"windtunnel session cookie", "sha256").hexdigest()


def is_meant(environ: Mapping[str, Any]) -> bool:
    """Return whether a request, whose origin has been checked, was meant by who has its credential.

    A browser sends its cookie with requests that it did not mean, so one that changes something must also come from a
    page of this server, which only browsers of the last years tell (Fetch Metadata), or which its Origin tells.
    """
    return (
        credential_of(environ).bearer
        or environ["REQUEST_METHOD"] in SAFE_METHODS
        or "HTTP_ORIGIN" in environ
        or environ.get("HTTP_SEC_FETCH_SITE") == "same-origin"
    )


@dataclass(frozen=True, slots=True)
class Credential:
    """What a request sends to show that it has the token: the token itself as ``bearer``, or a session for it."""

    value: bytes
    bearer: bool


def credential_of(environ: Mapping[str, Any]) -> Credential:
    """Return the credential of a request, with an empty value if it has none."""
    scheme, _, bearer = environ.get("HTTP_AUTHORIZATION", "").partition(" ")
    if scheme.lower() == "bearer":
        return Credential(bearer.strip().encode(), bearer=True)
    return Credential(cookie_of(environ.get("HTTP_COOKIE", "")).encode(), bearer=False)


def is_right(sent: Credential, token: str) -> bool:
    """Return whether a credential is the token, or follows from it."""
    return hmac.compare_digest(sent.value, (token if sent.bearer else session_of(token)).encode())


def cookie_of(header: str, name: str = COOKIE) -> str:
    """Return the session cookie, or another one, of a Cookie header; empty if it has none, or cannot be parsed."""
    try:
        morsel = SimpleCookie(header).get(name)
    except CookieError:
        return ""
    return morsel.value if morsel is not None else ""


def set_cookie(session: str, *, secure: bool) -> str:
    """Return the Set-Cookie header that begins a session; an empty text ends it."""
    return _set(COOKIE, session, SESSION_TTL, "Strict", secure=secure)


def set_ticket(ticket: str, *, secure: bool) -> str:
    """Return the Set-Cookie header of a sign-in that has begun; empty: ended. It comes back from another site (Lax)."""
    return _set(TICKET_COOKIE, ticket, TICKET_TTL, "Lax", secure=secure)


def set_browser(browser: str, *, secure: bool) -> str:
    """Return the Set-Cookie header by which a browser is known."""
    return _set(BROWSER_COOKIE, browser, BROWSER_TTL, "Strict", secure=secure)


def _set(name: str, value: str, seconds: int, same_site: str, *, secure: bool) -> str:
    lifetime = f"Max-Age={seconds if value else 0}"
    attributes = ["Path=/", lifetime, "HttpOnly", f"SameSite={same_site}", *(["Secure"] if secure else [])]
    return "; ".join([f"{name}={value}", *attributes])
