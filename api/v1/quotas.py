"""Routes of quotas: of a project, of a user in it, and of every project."""

from collections.abc import Mapping, Sequence

from api.blueprint import Blueprint, Success
from api.body import json_body, validated
from api.context import access_services, caller
from api.schemas.quotas import QuotaLimitsSchema, QuotasSchema
from common.errors import AccountsOff, Invalid, NotPermitted, TooLarge, UnknownProject, UnknownUser, UnsupportedMedia
from core.domain.access.quotas import Quota
from core.domain.access.roles import Verb
from core.services.access.quotas import Quotas, QuotaUse

blueprint = Blueprint("quotas", __name__, url_prefix="/v1", description="Limits of projects and users, and their use.")

_QUOTAS = Success(schema=QuotasSchema, plain=True, description="The limits and their use.")
_LIMITS = {"application/json": QuotaLimitsSchema}
_ERRORS = [AccountsOff, NotPermitted, UnknownProject]
_BODY_ERRORS = [*_ERRORS, Invalid, TooLarge, UnsupportedMedia]


def services() -> Quotas:
    """Return the service of quotas; raise AccountsOff where there are no accounts."""
    return access_services().quotas


def _document(uses: Sequence[QuotaUse]) -> dict[str, object]:
    return {use.quota.value: {"limit": use.limit, "used": use.used, "own": use.own} for use in uses}


def _limits() -> Mapping[Quota, int]:
    body = validated(QuotaLimitsSchema(), json_body())
    return {Quota(name): amount for name, amount in body.items() if amount is not None}


@blueprint.operation("GET /projects/<name:project>/quotas", _QUOTAS, errors=_ERRORS)
def get_project_quotas(project: str) -> dict[str, object]:
    """Show the limits of a project and their use

    More than a limit is refused (`quota-exceeded`), but workers, for which simulations wait.
    """
    return _document(services().of_project(caller()))


@blueprint.operation(
    "PUT /projects/<name:project>/quotas", _QUOTAS, body=_LIMITS, errors=_BODY_ERRORS, verb=Verb.OPERATE
)
def put_project_quotas(project: str) -> dict[str, object]:
    """Replace the limits of a project

    For a quota that is left out, the limit of every project holds. Nothing is deleted or stopped by a lower limit.
    """
    return _document(services().limit_project(caller(), _limits()))


@blueprint.operation("GET /projects/<name:project>/members/<name:user>/quotas", _QUOTAS, errors=[UnknownUser, *_ERRORS])
def get_member_quotas(project: str, user: str) -> dict[str, object]:
    """Show the limits of a user in a project and their use

    They hold beside those of the project.
    """
    return _document(services().of_user(caller(), user))


@blueprint.operation(
    "PUT /projects/<name:project>/members/<name:user>/quotas",
    _QUOTAS,
    body=_LIMITS,
    errors=[UnknownUser, *_BODY_ERRORS],
    verb=Verb.ADMINISTER,
)
def put_member_quotas(project: str, user: str) -> dict[str, object]:
    """Replace the limits of a user in a project

    Those of the project hold as well. Nothing is deleted or stopped by a lower limit.
    """
    return _document(services().limit_user(caller(), user, _limits()))


@blueprint.operation("GET /quotas", _QUOTAS, errors=[AccountsOff, NotPermitted], verb=Verb.OPERATE)
def get_quotas() -> dict[str, object]:
    """Show the limits of every project

    They hold in each project that has none of its own.
    """
    return _document(services().of_every_project())


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
