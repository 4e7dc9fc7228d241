"""Audit of requests: what each of them is in the audit log. The table of acts is that of the routes.

A request that changes something is recorded by its own transactions (core/store/recording.py), what is refused, changes
nothing, or reads files is observed and written in batches.
"""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from flask import Flask, Response, current_app, g, request

from api.blueprint import READING_METHODS
from api.context import Context, client_address, identity
from api.credentials import credential_of
from api.identification import IDENTITY
from api.streams import SSE
from common.client_addresses import Network, address_of
from common.errors import PlatformError
from core.domain.access.audit import AuditEntry, AuditOutcome, sign_in_act, subject_of
from core.domain.access.roles import Verb
from core.domain.access.scopes import Caller
from core.services.access.audit import Audit
from core.store.recording import CURRENT_RECORDING, Recording

if TYPE_CHECKING:
    from _typeshed.wsgi import WSGIEnvironment

#: Act of a request whose credential is not accepted.
AUTHENTICATE = "authenticate"
#: Act of a request to an address that no route has.
NO_ACT = "unknown"


def register(app: Flask, audit: Audit) -> None:
    """Record the requests of an application."""

    def begin() -> None:
        if request.method not in READING_METHODS:
            g.recording = Recording(act_at_hand)
            g.recording_token = CURRENT_RECORDING.set(g.recording)

    def observe(response: Response) -> Response:
        recording = g.recording if "recording" in g else None
        if (entry := _entry_of(response, recording)) is not None:
            audit.observe(entry)
        return response

    def end(error: BaseException | None) -> None:
        if "recording_token" in g:
            CURRENT_RECORDING.reset(g.recording_token)
            del g.recording_token

    app.before_request(begin)
    app.after_request(observe)
    app.teardown_request(end)


def act_at_hand() -> AuditEntry:
    """Return the act of the request at hand, as far as it is known by now who does it where."""
    who, view, project = identity(), _view(), _project()
    return AuditEntry(
        act=view.__name__ if view is not None else NO_ACT,
        project=project,
        user=who.user,
        outsider=_is_outsider(project),
        credential=who.credential,
        address=client_address(),
        subject=subject_of(request.url_rule.rule, request.path) if request.url_rule else "",
    )


def _project() -> str:
    """Return the project of the act. One of the platform, or on one's own tokens, is in none, whichever is named."""
    acting: Caller | None = g.caller if "caller" in g else None
    in_project = getattr(_view(), "verb", None) not in (None, Verb.OPERATE) or "project" in (request.view_args or {})
    return (acting.scope.project or "") if acting is not None and in_project else ""


def _is_outsider(project: str) -> bool:
    return bool(project) and project not in identity().memberships


def refusal_observer(context: Context) -> "Callable[[WSGIEnvironment, PlatformError], None]":
    """Return what observes requests that are refused before the application: wrong credentials, and too many."""
    access = context.access
    if access is None:
        return lambda environ, error: None
    return lambda environ, error: _observe_refusal(access.audit, context.proxies, environ, error)


def _observe_refusal(
    audit: Audit, proxies: tuple[Network, ...], environ: "WSGIEnvironment", error: PlatformError
) -> None:
    """Observe a refused credential; who sends none has tried none, as a browser before its sign-in."""
    if IDENTITY in environ or not credential_of(environ).value:
        return
    address = address_of(str(environ.get("REMOTE_ADDR", "")), str(environ.get("HTTP_X_FORWARDED_FOR", "")), proxies)
    audit.observe(AuditEntry(act=AUTHENTICATE, address=address, outcome=AuditOutcome.REFUSED, problem=error.slug))


def _problem() -> str | None:
    return g.problem if "problem" in g else None


def _view() -> Callable[..., object] | None:
    return current_app.view_functions.get(request.endpoint or "")


def _entry_of(response: Response, recording: Recording | None) -> AuditEntry | None:
    """Return the entry for a response whose act has not written one; None if it needs none."""
    status = response.status_code
    if status >= 400:
        if recording is None and not _is_denial(status):
            return None
        outcome = AuditOutcome.FAILED if status >= 500 else AuditOutcome.REFUSED
        joined = recording.request if recording is not None and recording.written else ""
        act = act_at_hand()
        if recording is not None and recording.tried:
            act = sign_in_act(act, recording.tried, known=False)
        return replace(act, outcome=outcome, status=status, problem=_problem(), request=joined)
    if recording.written if recording is not None else not (_is_file(response) or _is_outsider(_project())):
        return None
    return replace(act_at_hand(), outcome=AuditOutcome.UNCHANGED, status=status)


def _is_denial(status: int) -> bool:
    """Return whether a read was refused to this caller; what another project has is as if it were not there."""
    return status in (401, 403) or (status == 404 and (_problem() or "").startswith("unknown-"))


def _is_file(response: Response) -> bool:
    """Return whether the answer is a file or a table, and not a document or a stream of events."""
    media: Collection[str] = getattr(_view(), "media", ())
    offered = set(media) - {"application/json", SSE}
    return bool(offered) and response.mimetype not in (SSE, *(set(media) & {"application/json"}))
