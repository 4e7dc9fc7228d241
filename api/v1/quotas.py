"""Routes of quotas: of a project, of a user in it, and of every project."""

from collections.abc import Mapping, Sequence
from math import isfinite

import msgspec

from api.blueprint import Blueprint, Success
from api.body import json_body, validated
from api.context import access_services, caller
from api.schemas.quotas import FullestQuery, QuotaLimitsSchema, QuotasSchema, UsedLimitsSchema
from common.errors import AccountsOff, Invalid, NotPermitted, TooLarge, UnknownProject, UnknownUser, UnsupportedMedia
from core.domain.access.quota_shares import QuotaShare
from core.domain.access.quotas import EVERY_PROJECT, WHOLE_PROJECT, Quota
from core.domain.access.roles import Verb
from core.services.access.quotas import GivenLimits, Quotas, QuotaUse

blueprint = Blueprint("quotas", __name__, url_prefix="/v1", description="Limits of projects and users, and their use.")

_QUOTAS = Success(schema=QuotasSchema, plain=True, description="The limits and their use.")
_LIMITS = {"application/json": QuotaLimitsSchema}
_ERRORS = [AccountsOff, NotPermitted, UnknownProject]
#: Member of the body with the limits of resources.
RESOURCES = "resources"


class _FullestAsked(msgspec.Struct):
    percent: int = 80
    limit: int = 100


_BODY_ERRORS = [*_ERRORS, Invalid, TooLarge, UnsupportedMedia]


def services() -> Quotas:
    """Return the service of quotas; raise AccountsOff where there are no accounts."""
    return access_services().quotas


def _document(uses: Sequence[QuotaUse], project: str = EVERY_PROJECT, user: str = WHOLE_PROJECT) -> dict[str, object]:
    quotas = {use.quota.value: {"limit": use.limit, "used": use.used, "own": use.own} for use in uses}
    of_resources = services().resources_of(project, user)
    resources = {use.resource: {"limit": use.limit, "used": use.used, "own": use.own} for use in of_resources}
    return {**quotas, "resources": resources}


def _limits() -> GivenLimits:
    body = validated(QuotaLimitsSchema(), json_body())
    resources: Mapping[str, int] = body.pop(RESOURCES, {})
    return GivenLimits({Quota(name): amount for name, amount in body.items() if amount is not None}, resources)


@blueprint.operation("GET /projects/<name:project>/quotas", _QUOTAS, errors=_ERRORS)
def get_project_quotas(project: str) -> dict[str, object]:
    """Show the limits of a project and their use

    More than a limit is refused (`quota-exceeded`), but workers and what they have, for which simulations wait.
    """
    return _document(services().of_project(caller()), project)


@blueprint.operation(
    "PUT /projects/<name:project>/quotas", _QUOTAS, body=_LIMITS, errors=_BODY_ERRORS, verb=Verb.OPERATE
)
def put_project_quotas(project: str) -> dict[str, object]:
    """Replace the limits of a project

    For a quota that is left out, the limit of every project holds. Nothing is deleted or stopped by a lower limit.
    """
    return _document(services().limit_project(caller(), _limits()), project)


@blueprint.operation(
    "GET /projects/<name:project>/members/<account:user>/quotas", _QUOTAS, errors=[UnknownUser, *_ERRORS]
)
def get_member_quotas(project: str, user: str) -> dict[str, object]:
    """Show the limits of a user in a project and their use

    They hold beside those of the project.
    """
    return _document(services().of_user(caller(), user), project, user)


@blueprint.operation(
    "PUT /projects/<name:project>/members/<account:user>/quotas",
    _QUOTAS,
    body=_LIMITS,
    errors=[UnknownUser, *_BODY_ERRORS],
    verb=Verb.ADMINISTER,
)
def put_member_quotas(project: str, user: str) -> dict[str, object]:
    """Replace the limits of a user in a project

    Those of the project hold as well. Nothing is deleted or stopped by a lower limit.
    """
    return _document(services().limit_user(caller(), user, _limits()), project, user)


@blueprint.operation("GET /quotas", _QUOTAS, errors=[AccountsOff, NotPermitted], verb=Verb.OPERATE)
def get_quotas() -> dict[str, object]:
    """Show the limits of every project

    They hold in each project that has none of its own.
    """
    return _document(services().of_every_project())


@blueprint.operation(
    "GET /quotas/fullest",
    Success(schema=UsedLimitsSchema, plain=True, description="The limits, the fullest first."),
    errors=[AccountsOff, NotPermitted],
    verb=Verb.OPERATE,
)
@blueprint.takes(FullestQuery)
def list_fullest_quotas(query: object) -> dict[str, object]:
    """List the limits that are used most

    Those of all projects, and of users in them, of which something is used. Bytes that are stored may be more
    than their limit: results of what runs are kept.
    """
    asked = msgspec.convert(query, _FullestAsked)
    return {"items": [_used_limit(limit) for limit in services().fullest(asked.percent / 100, asked.limit)]}


def _used_limit(limit: QuotaShare) -> dict[str, object]:
    return {
        "project": limit.project,
        "user": limit.user or None,
        "quota": limit.quota,
        "limit": limit.limit,
        "used": limit.used,
        "share": limit.share if isfinite(limit.share) else None,
    }


@blueprint.operation(
    "PUT /quotas",
    _QUOTAS,
    body=_LIMITS,
    errors=[AccountsOff, Invalid, NotPermitted, TooLarge, UnsupportedMedia],
    verb=Verb.OPERATE,
)
def put_quotas() -> dict[str, object]:
    """Replace the limits of every project

    They hold in each project that has none of its own, for each quota by itself.
    """
    return _document(services().limit_every_project(_limits()))
