"""Routes of shares: what a project lets another one read, and their list."""

import msgspec
from flask import Response

from api.blueprint import Blueprint, Success
from api.context import access_services, caller
from api.paging import LINK, page
from api.schemas.pages import PageQuery
from api.schemas.shares import SharePageSchema
from common.errors import (
    AccountsOff,
    Invalid,
    NotFound,
    NotPermitted,
    UnknownDataset,
    UnknownModel,
    UnknownProject,
    UnknownSimulation,
)
from common.moments import moment_of
from core.domain.access.roles import Verb
from core.domain.access.shared_kinds import SharedKind
from core.services.access.shares import Shares
from core.store.shares import ShareRow

blueprint = Blueprint("shares", __name__, url_prefix="/v1", description="What projects let each other read.")

_NEW_SHARE = Success(status=204, description="The project may read it.")
_REMOVED_SHARE = Success(status=204, description="The project may not read it any more.")
_ERRORS = [AccountsOff, NotPermitted]


class _ShareListQuery(msgspec.Struct):
    limit: int = 50
    after: str | None = None


def services() -> Shares:
    """Return the service of shares; raise AccountsOff where there are no accounts."""
    return access_services().shares


@blueprint.operation(
    "GET /shares",
    Success(schema=SharePageSchema, description="A page of shares, newest first.", headers=LINK),
    errors=_ERRORS,
)
@blueprint.takes(PageQuery)
def list_shares(query: object) -> Response:
    """List what your project shares and what is shared with it

    The `owner` has it; who reads it names it by `reference`.
    """
    asked = msgspec.convert(query, _ShareListQuery)
    shares, after = services().page(caller(), after=asked.after, limit=asked.limit)
    return page([_document(share) for share in shares], after)


@blueprint.operation(
    "PUT /models/<ref:model>/shares/<name:reader>",
    _NEW_SHARE,
    errors=[*_ERRORS, UnknownModel, UnknownProject, Invalid],
    verb=Verb.ADMINISTER,
)
def share_model(model: str, reader: str) -> None:
    """Let a project read a model

    By a name alone all its versions, also later ones; by `name@version`, `name@tag`, id or digest that version. There
    it is `owner/name`, or `name` where no model of its own has that name. Nobody can change or delete it there, and
    its bytes are charged to its owner.
    """
    services().share(caller(), SharedKind.MODELS, model, reader)


@blueprint.operation(
    "DELETE /models/<ref:model>/shares/<name:reader>",
    _REMOVED_SHARE,
    errors=[*_ERRORS, UnknownModel, NotFound],
    verb=Verb.ADMINISTER,
)
def unshare_model(model: str, reader: str) -> None:
    """End a share of a model

    At once it is not found in that project any more. Simulations with it go on, and results stay.
    """
    services().unshare(caller(), SharedKind.MODELS, model, reader)


@blueprint.operation(
    "PUT /datasets/<ref:dataset>/shares/<name:reader>",
    _NEW_SHARE,
    errors=[*_ERRORS, UnknownDataset, UnknownProject, Invalid],
    verb=Verb.ADMINISTER,
)
def share_dataset(dataset: str, reader: str) -> None:
    """Let a project read a dataset, and simulate it

    By a name alone all its versions, also later ones; by `name@version`, `name@tag`, id or digest that version.
    """
    services().share(caller(), SharedKind.DATASETS, dataset, reader)


@blueprint.operation(
    "DELETE /datasets/<ref:dataset>/shares/<name:reader>",
    _REMOVED_SHARE,
    errors=[*_ERRORS, UnknownDataset, NotFound],
    verb=Verb.ADMINISTER,
)
def unshare_dataset(dataset: str, reader: str) -> None:
    """End a share of a dataset

    At once it is not found in that project any more. Simulations on it go on, and results stay.
    """
    services().unshare(caller(), SharedKind.DATASETS, dataset, reader)


@blueprint.operation(
    "PUT /simulations/<id:id>/shares/<name:reader>",
    _NEW_SHARE,
    errors=[*_ERRORS, UnknownSimulation, UnknownProject, Invalid],
    verb=Verb.ADMINISTER,
)
def share_simulation(id: str, reader: str) -> None:
    """Let a project read a simulation

    With its results, artifacts, replays and logs. Its model and its dataset are shared by themselves.
    """
    services().share(caller(), SharedKind.SIMULATIONS, id, reader)


@blueprint.operation(
    "DELETE /simulations/<id:id>/shares/<name:reader>",
    _REMOVED_SHARE,
    errors=[*_ERRORS, UnknownSimulation, NotFound],
    verb=Verb.ADMINISTER,
)
def unshare_simulation(id: str, reader: str) -> None:
    """End a share of a simulation

    At once it is not found in that project any more.
    """
    services().unshare(caller(), SharedKind.SIMULATIONS, id, reader)


def _document(share: ShareRow) -> dict[str, object]:
    simulation = share.kind == SharedKind.SIMULATIONS
    return {
        "owner": share.owner,
        "shared_with": share.shared_with,
        "kind": share.kind,
        "name": share.name,
        "version": None if simulation else share.version_id or None,
        "reference": share.name if simulation else share.version_id or f"{share.owner}/{share.name}",
        "shared_by": share.shared_by,
        "created_at": moment_of(share.created_at),
    }
