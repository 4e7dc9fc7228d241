"""Page of quotas: limits of the project, of a member and of every project, with their use, and forms to change them."""

from collections.abc import Mapping
from functools import partial

import msgspec
from flask import Blueprint, render_template, request

from web.account_lists import ShownMembers
from web.acting_project import signed_in
from web.api_client import api, path_of
from web.refusals import FormAnswer, answer_form

blueprint = Blueprint("quotas", __name__, url_prefix="/operations/quotas")

#: What the forms offer, in words.
QUOTAS: Mapping[str, str] = {
    "queued_simulations": "simulations that do not run yet",
    "tasks": "tasks of simulations that have not ended",
    "stored_bytes": "bytes of models, datasets, uploads and results",
    "running_workers": "workers that run",
    "resources.cpu": "cores of workers that run",
    "resources.memory": "bytes of memory of workers that run",
}
_RESOURCES = "resources"
#: Limits near which a project is shown to an operator, and how many.
NEAR_PERCENT, MOST_NEAR = 50, 50


class ShownUse(msgspec.Struct, frozen=True):
    """A limit in force, how much is used, and the limit that was given here itself."""

    limit: int | None
    used: int | float | None
    own: int | None


class ShownQuotas(msgspec.Struct, frozen=True):
    """All quotas of a project, of a member, or of every project."""

    queued_simulations: ShownUse
    tasks: ShownUse
    stored_bytes: ShownUse
    running_workers: ShownUse
    resources: dict[str, ShownUse]

    @property
    def uses(self) -> Mapping[str, ShownUse]:
        """The quotas by name, also those of resources."""
        counted = {name: getattr(self, name) for name in self.__struct_fields__ if name != _RESOURCES}
        return {**counted, **{f"{_RESOURCES}.{name}": use for name, use in self.resources.items()}}


class ShownUsedLimit(msgspec.Struct, frozen=True):
    """A limit of a project, or of a user in it, of which much is used."""

    project: str
    user: str | None
    quota: str
    limit: int
    used: int | float
    share: float | None


class ShownUsedLimits(msgspec.Struct, frozen=True):
    """Limits of the platform, the fullest first."""

    items: list[ShownUsedLimit]


class QuotaQuery(msgspec.Struct, frozen=True):
    """The query of the page: a member whose limits are meant, in place of the project's."""

    user: str = ""


class QuotaFields(msgspec.Struct, frozen=True):
    """The fields of the form: whose limit, of what, and how much; no amount: no limit of its own."""

    user: str = ""
    every: str = ""
    quota: str = ""
    amount: str = ""


@blueprint.get("")
def show() -> str:
    """Show the limits, and their use."""
    return page(msgspec.convert(request.args.to_dict(), QuotaQuery).user)


@blueprint.post("")
def change() -> FormAnswer:
    """Change a limit; the others stay."""
    fields = msgspec.convert({name: text.strip() for name, text in request.form.items()}, QuotaFields)
    path = "/v1/quotas" if fields.every else path_here(fields.user)
    form = "every" if fields.every else "quota"
    return answer_form(lambda: _set(path, fields), partial(page, fields.user, form), "quotas.show")


def _set(path: str, fields: QuotaFields) -> None:
    """Give a limit beside those that were given before."""
    known = msgspec.convert(api().get(path), ShownQuotas)
    given: dict[str, object] = {name: use.own for name, use in known.uses.items() if use.own is not None}
    given.pop(fields.quota, None)
    if fields.amount:
        given[fields.quota] = int(fields.amount) if fields.amount.isdecimal() else fields.amount
    start = f"{_RESOURCES}."
    body = {name: amount for name, amount in given.items() if not name.startswith(start)}
    resources = {name.removeprefix(start): amount for name, amount in given.items() if name.startswith(start)}
    api().put(path, {**body, _RESOURCES: resources} if resources else body)


def path_here(user: str) -> str:
    """Return the path of the limits of the project of the page, or of a member of it."""
    return path_of("projects", signed_in().project or "", *(("members", *user.split("/")) if user else ()), "quotas")


def page(user: str, form: str = "", problem: Mapping[str, object] | None = None) -> str:
    """Return the page; ``user``: a member whose limits are meant; ``form``: the refused one, with the ``problem``."""
    known = signed_in()
    operates = known.may("operate")
    members = msgspec.convert(api().get(path_of("projects", known.project or "", "members")), ShownMembers).items
    fullest = api().get("/v1/quotas/fullest", percent=NEAR_PERCENT, limit=MOST_NEAR) if operates else {"items": []}
    return render_template(
        "operations/quotas.html",
        project=known.project,
        user=user,
        members=[member.user for member in members],
        uses=msgspec.convert(api().get(path_here(user)), ShownQuotas).uses,
        every=msgspec.convert(api().get("/v1/quotas"), ShownQuotas).uses if operates else {},
        fullest=msgspec.convert(fullest, ShownUsedLimits).items,
        quotas=QUOTAS,
        changes=known.may("administer") if user else operates,
        operates=operates,
        refused=form,
        problem=problem,
        fields=request.form if form else {},
    )
