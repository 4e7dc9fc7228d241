"""Routes of retention: rules of a project, what they would take, and the bin."""

from collections.abc import Sequence

import msgspec
from flask import Response

from api.blueprint import Blueprint, Success, json_response
from api.body import json_body, validated
from api.context import caller, file_services
from api.paging import LINK, next_page
from api.schemas.pages import PageQuery
from api.schemas.retention import (
    BinPageSchema,
    DecidedRetentionSchema,
    RetentionPreviewSchema,
    RetentionSchema,
    RetentionTrialSchema,
)
from common.errors import Conflict, Invalid, NotFound, NotPermitted, TooLarge, UnknownProject, UnsupportedMedia
from common.moments import moment_of
from core.domain.access.roles import Verb
from core.domain.retention.retention_rules import BinnedKind, Retention, RetentionRule, RetentionVerdict
from core.store.bin import BinRow

blueprint = Blueprint("retention", __name__, url_prefix="/v1", description="What projects keep, and the bin.")

_DECISION = Success(schema=DecidedRetentionSchema, plain=True, description="What the project has decided.")
_PREVIEW = Success(schema=RetentionPreviewSchema, plain=True, description="What the rules would do.")
_BODY = {"application/json": RetentionSchema}
_TRIAL = {"application/json": RetentionTrialSchema}
_ERRORS = [NotPermitted, UnknownProject]
_BODY_ERRORS = [*_ERRORS, Invalid, TooLarge, UnsupportedMedia]


class _BinQuery(msgspec.Struct):
    limit: int = 50
    after: str | None = None


class _RetentionTrial(msgspec.Struct):
    rules: tuple[RetentionRule, ...] | None = None


@blueprint.operation("GET /projects/<name:project>/retention", _DECISION, errors=_ERRORS)
def get_retention(project: str) -> dict[str, object]:
    """Show the rules by which a project deletes what is old

    Without rules, nothing is deleted but by people.
    """
    return _document(file_services().retention.get(caller()))


@blueprint.operation(
    "PUT /projects/<name:project>/retention", _DECISION, body=_BODY, errors=_BODY_ERRORS, verb=Verb.ADMINISTER
)
def put_retention(project: str) -> dict[str, object]:
    """Replace the rules of a project

    They are applied once a day, and put things into the bin. Try them first: `POST .../retention/dry-run`.
    """
    return _document(file_services().retention.decide(caller(), _decision()))


@blueprint.operation(
    "POST /projects/<name:project>/retention/dry-run", _PREVIEW, body=_TRIAL, errors=_BODY_ERRORS, verb=Verb.READ
)
def preview_retention(project: str) -> dict[str, object]:
    """Show what rules would take now

    Nothing is deleted. Without `rules`, the project's own are tried.
    """
    service = file_services().retention
    trial = msgspec.convert(validated(RetentionTrialSchema(), json_body()), _RetentionTrial)
    decided = service.get(caller()) if trial.rules is None else Retention(rules=trial.rules)
    preview = service.preview(caller(), decided)
    taken = {kind: preview.taken.get(kind, (0, 0)) for kind in BinnedKind}
    return {
        "taken": {kind.value: {"count": count, "bytes": size} for kind, (count, size) in taken.items()},
        "spared": {protection.value: number for protection, number in sorted(preview.spared.items())},
        "first": [_thing(decided, verdict) for verdict in preview.first],
        "first_spared": [_thing(decided, verdict) for verdict in preview.first_spared],
    }


@blueprint.operation(
    "GET /bin",
    Success(schema=BinPageSchema, description="A page of the bin, the last deleted first.", headers=LINK),
    errors=[NotPermitted],
)
@blueprint.takes(PageQuery)
def list_bin(query: object) -> Response:
    """List what was deleted and may come back

    The project is charged with its bytes until it is emptied, or `until` has passed.
    """
    asked, bin = msgspec.convert(query, _BinQuery), file_services().bin
    items, after = bin.page(caller(), after=asked.after, limit=asked.limit)
    count, size = bin.totals(caller())
    body = {"items": [_item(item) for item in items], "next": after, "count": count, "bytes": size}
    return json_response(body, headers={} if after is None else {"Link": next_page(after)})


@blueprint.operation(
    "POST /bin/<id:id>/restore",
    Success(status=204, description="It is there again."),
    errors=[NotPermitted, NotFound, Conflict],
    verb=Verb.CHANGE,
)
def restore_binned(id: str) -> None:
    """Restore something from the bin

    As it was, but for its shares, which have ended.
    """
    file_services().bin.restore(caller(), id)


@blueprint.operation(
    "DELETE /bin/<id:id>",
    Success(status=204, description="It comes back no more."),
    errors=[NotPermitted, NotFound],
    verb=Verb.ADMINISTER,
)
def delete_binned(id: str) -> None:
    """Delete something in the bin for good

    Its bytes are freed, and charged no more, a moment later.
    """
    file_services().bin.empty(caller(), id)


@blueprint.operation(
    "DELETE /bin", Success(status=204, description="The bin is empty."), errors=[NotPermitted], verb=Verb.ADMINISTER
)
def empty_bin() -> None:
    """Empty the bin of your project

    The bytes are freed, and charged no more, within moments.
    """
    file_services().bin.empty(caller())


def _decision() -> Retention:
    return msgspec.convert(validated(RetentionSchema(), json_body()), Retention)


def _document(decided: Retention) -> dict[str, object]:
    rules: Sequence[dict[str, object]] = msgspec.to_builtins(decided.rules)
    return {
        "bin": decided.bin,
        "rules": [
            {name: value for name, value in rule.items() if value is not None and value not in ({}, ())}
            for rule in rules
        ],
    }


def _thing(decided: Retention, verdict: RetentionVerdict) -> dict[str, object]:
    thing = verdict.thing
    return {
        "kind": thing.kind.value,
        "id": thing.id,
        "name": thing.name,
        "bytes": thing.bytes,
        "rule": 1 + next(number for number, rule in enumerate(decided.rules) if rule is verdict.rule),
        "spared": sorted(protection.value for protection in thing.protections),
    }


def _item(item: BinRow) -> dict[str, object]:
    return {
        "kind": item.kind,
        "id": item.id,
        "name": item.name,
        "version": None if item.version is None else str(item.version),
        "bytes": item.bytes,
        "made_by": item.made_by,
        "binned_by": item.binned_by or None,
        "rule": item.rule,
        "binned_at": moment_of(item.binned_at),
        "until": file_services().bin.until(item),
    }
