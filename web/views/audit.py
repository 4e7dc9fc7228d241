"""Page of the audit log: who did what to what in the project, with a search; for operators also in all projects."""

from urllib.parse import urlencode

import msgspec
from flask import Blueprint, render_template, request

from web.acting_project import signed_in
from web.api_client import api

blueprint = Blueprint("audit", __name__, url_prefix="/operations/audit")

#: Entries of a page.
PAGE_LENGTH = 100
OUTCOMES = ("done", "unchanged", "refused", "failed")


class AuditSearch(msgspec.Struct, frozen=True, omit_defaults=True):
    """The query of the page. ``of``: `all` for all projects."""

    search: str = ""
    user: str = ""
    outcome: str = ""
    of: str = ""
    after: str = ""


class ShownAuditEntry(msgspec.Struct, frozen=True):
    """An entry as the page shows it."""

    at: str
    act: str
    outcome: str
    project: str | None
    user: str | None
    outsider: bool
    token: str | None
    address: str | None
    subject: str | None
    problem: str | None
    times: int
    affected: list[str]


class ShownAuditEntries(msgspec.Struct, frozen=True):
    """A page of entries."""

    items: list[ShownAuditEntry]
    next: str | None = None


@blueprint.get("")
def show() -> str:
    """List entries, newest first."""
    known = signed_in()
    asked = msgspec.convert(request.args.to_dict(), AuditSearch)
    everywhere = asked.of == "all" and known.may("operate")
    if everywhere:
        api().project = None
    found = msgspec.convert(
        api().get(
            "/v1/audit",
            search=asked.search.strip(),
            user=asked.user.strip(),
            outcome=asked.outcome if asked.outcome in OUTCOMES else "",
            after=asked.after,
            limit=PAGE_LENGTH,
        ),
        ShownAuditEntries,
    )
    following = msgspec.structs.replace(asked, after=found.next) if found.next is not None else None
    return render_template(
        "operations/audit.html",
        entries=found.items,
        following=urlencode(msgspec.to_builtins(following)) if following else "",
        asked=asked,
        everywhere=everywhere,
        outcomes=OUTCOMES,
    )
