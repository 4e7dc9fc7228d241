"""Schemas of the audit log."""

from marshmallow import fields

from api.schemas.fields import Choice, Open, Strict, Text, Whole
from api.schemas.members import array, boolean, documents, integer, moment, string
from api.schemas.pages import PageSchema
from core.domain.access.audit import AuditOutcome

#: Ids of entries, also of those that an earlier version has numbered.
ENTRY_ID = r"^[0-9a-z]{26}$"
_OUTCOMES = [outcome.value for outcome in AuditOutcome]


def _time(description: str) -> fields.AwareDateTime:
    """Return a parameter that is a time of RFC 3339 with its offset."""
    return fields.AwareDateTime(format="iso", metadata={"description": description})


class AuditQuery(Strict):
    """Entries of the audit log that are asked for."""

    after = Text(ENTRY_ID, longest=26, description="Cursor: the `next` of the previous page.")
    limit = Whole(1, 1000, text=True, load_default=100, description="Most entries per page.")
    since = _time("Not older than this time.")
    until = _time("Older than this time.")
    user = Text(longest=40, description="Acts of this user.")
    act = Text(longest=100, description="Acts of this kind, such as `delete_model`.")
    subject = Text(
        longest=300, description="Acts on this or on what is below it, or that affect it, such as `models/brake`."
    )
    outcome = Choice(*_OUTCOMES, description="Acts that ended like this.")
    token = Text(longest=40, description="Acts with the token or session of this id.")
    search = Text(
        longest=200, description="Words, each of them in the user, act, subject, address or what is affected."
    )
    format = Choice("json", "ndjson", description="Takes precedence over `Accept`; `ndjson`: all entries, as a file.")


class AuditEntrySchema(Open):
    """An entry of the audit log."""

    id = string("Id of the entry.")
    at = moment("When it was recorded.")
    project = string("The project in which it was done; null: none.", allow_none=True)
    user = string("Who did it; null: not known.", allow_none=True)
    outsider = boolean("Whether it was an operator who is not a member of the project.")
    token = string("Id of the token or session with which it was done; null: not known.", allow_none=True)
    address = string("The address it came from; null: several.", allow_none=True)
    act = string("What was done: the id of the API's operation, or `authenticate`.")
    subject = string("What it was done to: its address below `/v1`; null: several.", allow_none=True)
    outcome = string("How it ended. `unchanged`: nothing in the database was changed.", enum=_OUTCOMES)
    status = integer("HTTP status of the answer; null: written before it was known.", allow_none=True)
    problem = string("Type of the problem that was answered; null: none.", allow_none=True)
    times = integer("Number of equal acts, of up to a minute, that the entry stands for.")
    request = string("Joins the entries of one request; null: it has one.", allow_none=True)
    affected = array(fields.String(), "What else was made or changed.")


class AuditPageSchema(PageSchema):
    """A page of the audit log."""

    items = documents(AuditEntrySchema, "The entries, newest first.")
