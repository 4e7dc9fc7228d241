"""Route of the audit log: in pages, or whole as a file of JSON lines."""

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime

import msgspec
from flask import Response, request

from api.blueprint import Blueprint, Success, lines_of
from api.byte_ranges import read_ahead
from api.context import access_services, caller
from api.identification import project_of
from api.negotiation import choose
from api.paging import LINK, page
from api.schemas.audit import AuditEntrySchema, AuditPageSchema, AuditQuery
from api.streams import NDJSON, mark_incomplete
from common.errors import AccountsOff, NotAcceptable, NotPermitted, UnknownProject
from common.moments import moment_of
from core.domain.access.audit import AuditFilter, AuditOutcome
from core.domain.access.roles import Verb
from core.domain.access.scopes import PLATFORM, Scope
from core.services.access.audit import Audit
from core.store.audit import AuditRow

blueprint = Blueprint("audit", __name__, url_prefix="/v1", description="Who did what to what.")

FORMATS = {"json": "application/json", "ndjson": NDJSON}


class _AuditListQuery(msgspec.Struct):
    """The query as its schema has accepted it."""

    limit: int
    after: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    act: str | None = None
    subject: str | None = None
    outcome: AuditOutcome | None = None
    token: str | None = None
    search: str = ""
    format: str | None = None

    def to_filter(self) -> AuditFilter:
        """Return the entries that are asked for."""
        return AuditFilter(
            since=self.since,
            until=self.until,
            user=self.user,
            act=self.act,
            subject=self.subject,
            outcome=self.outcome,
            token=self.token,
            words=tuple(self.search.split()),
        )


def services() -> Audit:
    """Return the service of the audit log; raise AccountsOff where there are no accounts."""
    return access_services().audit


def _scope() -> Scope:
    """Return whose entries are shown: to an operator who names no project those of all, else those of the project."""
    acting = caller()
    if Verb.OPERATE in acting.verbs and project_of(request.environ) is None:
        return PLATFORM
    acting.require(Verb.ADMINISTER)
    return acting.scope


def _entry(row: AuditRow) -> dict[str, object]:
    return {
        "id": row.shown_id,
        "at": moment_of(row.at),
        "project": row.project or None,
        "user": row.user or None,
        "outsider": bool(row.outsider),
        "token": row.credential or None,
        "address": row.address or None,
        "act": row.act,
        "subject": row.subject or None,
        "outcome": row.outcome,
        "status": row.status,
        "problem": row.problem,
        "times": row.times,
        "request": row.request or None,
        "affected": msgspec.json.decode(row.affected) if row.affected else [],
    }


def _lines(pages: Iterable[Sequence[AuditRow]]) -> Iterator[bytes]:
    for rows in pages:
        yield b"".join(msgspec.json.encode(_entry(row)) + b"\n" for row in rows)


@blueprint.operation(
    "GET /audit",
    Success(
        description="A page of entries, or all of them as lines of JSON.",
        media={"application/json": AuditPageSchema, NDJSON: lines_of(AuditEntrySchema)},
        headers=LINK,
    ),
    errors=[AccountsOff, NotAcceptable, NotPermitted, UnknownProject],
    verb=None,
)
@blueprint.takes(AuditQuery)
def list_audit_entries(query: object) -> Response:
    """List the audit log

    Newest first. A maintainer sees the entries of the project; an operator those of all, or of the project that the
    request names. As `ndjson` it is the whole of what was asked for, without pages.
    """
    asked = msgspec.convert(query, _AuditListQuery)
    audit, scope = services(), _scope()
    if choose(FORMATS, asked.format) == "ndjson":
        lines = mark_incomplete(read_ahead(_lines(audit.export(scope, asked.to_filter()))))
        headers = {"Content-Disposition": 'attachment; filename="audit.ndjson"'}
        return Response(lines, headers=headers, content_type=NDJSON, direct_passthrough=True)
    rows, next = audit.page(scope, asked.to_filter(), after=asked.after, limit=asked.limit)
    return page([_entry(row) for row in rows], next)
