"""Page of a project: its members, service accounts and tokens, and what a maintainer may do with them."""

from collections.abc import Callable, Mapping
from functools import partial
from http import HTTPStatus

import msgspec
from flask import Blueprint, render_template, request

from web.account_lists import ShownBin, ShownMembers, ShownRetention, ShownShares, ShownTokens, ShownTrial
from web.acting_project import signed_in
from web.api_client import Refused, api, path_of, path_of_reference
from web.refusals import FormAnswer, answer_form, refusal_of
from web.retention_request import (
    END_STATES,
    RETAINED_KINDS,
    RuleFields,
    changed_rules,
    rule_fields,
    rule_request,
)
from web.token_request import ROLES, VERBS, account_fields, token_request

blueprint = Blueprint("project", __name__, url_prefix="/operations/project")

#: Most shares on the page, the newest; `windtunnel shares list` has all.
SHARES = 100
#: Most items of the bin on the page, the last deleted; `windtunnel bin list` has all.
BIN_ITEMS = 50
#: Name of the form of a rule, of which the page has one for each rule, and one for another.
RULE_FORM = "rule"


@blueprint.get("")
def show() -> str:
    """Show a project."""
    return page()


@blueprint.post("/members")
def put_member() -> FormAnswer:
    """Give a user a role: a new member, or another role of one."""
    path = path_here("members", *account_fields().user.split("/"))
    return answer_form(
        lambda: api().put(path, {"role": account_fields().role}), partial(page, "member"), "project.show"
    )


@blueprint.post("/members/remove")
def remove_member() -> FormAnswer:
    """End a membership."""
    return answer_form(
        lambda: api().delete(path_here("members", *account_fields().user.split("/"))),
        partial(page, "members"),
        "project.show",
    )


@blueprint.post("/services")
def create_service() -> FormAnswer:
    """Create a service account."""
    body = {"name": account_fields().name, "role": account_fields().role}
    return answer_form(lambda: api().post(path_here("services"), body), partial(page, "service"), "project.show")


@blueprint.post("/tokens")
def create_token() -> tuple[str, int]:
    """Make a token, and show it this once."""
    try:
        made = api().post(path_here("tokens"), token_request()).json()
    except Refused as error:
        problem, status = refusal_of(error)
        return page("token", problem), status
    return page(made=made), HTTPStatus.CREATED


@blueprint.post("/tokens/revoke")
def revoke() -> FormAnswer:
    """Revoke a token."""
    return answer_form(
        lambda: api().delete(path_here("tokens", account_fields().token)), partial(page, "tokens"), "project.show"
    )


@blueprint.post("/shares")
def share() -> FormAnswer:
    """Let another project read a model, a dataset or a simulation."""
    return answer_form(lambda: api().put(_share_path(), {}), partial(page, "share"), "project.show")


@blueprint.post("/shares/end")
def unshare() -> FormAnswer:
    """End a share."""
    return answer_form(lambda: api().delete(_share_path()), partial(page, "shares"), "project.show")


@blueprint.post("/retention/try")
def try_rules() -> str:
    """Show what the rules would take now."""
    return page(trial=msgspec.convert(api().post(path_here("retention", "dry-run"), {}).json(), ShownTrial))


@blueprint.post("/retention/rules")
def put_rule() -> FormAnswer:
    """Add a rule, or put another in the place of one."""
    fields = rule_fields()
    return answer_form(
        lambda: _decide(lambda decided: changed_rules(decided, fields.before, rule_request(fields))),
        partial(page, RULE_FORM),
        "project.show",
    )


@blueprint.post("/retention/rules/remove")
def remove_rule() -> FormAnswer:
    """Remove a rule."""
    before = rule_fields().before
    return answer_form(
        lambda: _decide(lambda decided: changed_rules(decided, before, None)), partial(page, "rules"), "project.show"
    )


@blueprint.post("/bin/restore")
def restore() -> FormAnswer:
    """Take something back from the bin."""
    path = path_of("bin", account_fields().thing, "restore")
    return answer_form(lambda: api().post(path, {}), partial(page, "bin"), "project.show")


@blueprint.post("/bin/empty")
def empty() -> FormAnswer:
    """Delete for good what is in the bin: all, or one thing."""
    path = path_of("bin", *filter(None, [account_fields().thing]))
    return answer_form(lambda: api().delete(path), partial(page, "bin"), "project.show")


def _share_path() -> str:
    kind, _, reference = account_fields().thing.partition("/")
    return path_of_reference(kind, reference, "shares", account_fields().reader)


def _decide(changed: Callable[[ShownRetention], list[object]]) -> None:
    """Replace the rules of the project; whether what people delete goes to the bin stays as it is."""
    decided = msgspec.convert(api().get(path_here("retention")), ShownRetention)
    api().put(path_here("retention"), {"bin": decided.bin, "rules": changed(decided)})


def path_here(*segments: str) -> str:
    """Return a path of the API below the project of the page."""
    return path_of("projects", signed_in().project or "", *segments)


def page(
    form: str = "",
    problem: Mapping[str, object] | None = None,
    made: Mapping[str, object] | None = None,
    trial: ShownTrial | None = None,
) -> str:
    """Return the page.

    ``form``: the one that was refused, with the ``problem``; ``made``: a token that was made; ``trial``: of the rules.
    """
    known = signed_in()
    retention = msgspec.convert(api().get(path_here("retention")), ShownRetention)
    members = msgspec.convert(api().get(path_here("members")), ShownMembers).items
    own = ROLES.index(known.role) if known.role in ROLES else len(ROLES)
    return render_template(
        "operations/project.html",
        project=api().get(path_here()),
        people=[member for member in members if not member.service],
        services=[member for member in members if member.service],
        tokens=msgspec.convert(api().get(path_here("tokens")), ShownTokens).items,
        shares=msgspec.convert(api().get("/v1/shares", limit=SHARES), ShownShares).items,
        retention=retention,
        rule_forms=[RuleFields.of(rule) for rule in retention.rules],
        new_rule=RuleFields(),
        sent_rule=rule_fields() if form == RULE_FORM else None,
        kinds=RETAINED_KINDS,
        end_states=END_STATES,
        trial=trial,
        bin=msgspec.convert(api().get("/v1/bin", limit=BIN_ITEMS), ShownBin),
        roles=ROLES,
        own_roles=ROLES[: own + 1],
        verbs={verb: words for verb, words in VERBS.items() if known.may(verb)},
        refused=form,
        problem=problem,
        made=made,
        fields=request.form if form else {},
    )
