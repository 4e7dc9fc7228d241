"""Retention rule that a form asks for, as the body of a request of the API, and the fields of the form."""

from collections.abc import Sequence
from http import HTTPStatus

import msgspec
from flask import request

from web.account_lists import ShownRetention, ShownRule
from web.api_client import Refused
from web.form_fields import number_of
from web.states import OF_SIMULATIONS, STATES

#: Kinds of what rules are about, and the states in which a simulation has ended.
RETAINED_KINDS = ("simulations", "models", "datasets")
END_STATES = sorted(state for state in OF_SIMULATIONS if STATES[state].ended)
DAY_SECONDS = 86_400


class RuleFields(msgspec.Struct, frozen=True):
    """The fields of the form of a rule. Ages in days; a label in each line. ``before``: the rule that it changes."""

    kind: str = RETAINED_KINDS[0]
    older_than: str = ""
    unused_for: str = ""
    keep_last: str = ""
    name: str = ""
    labels: str = ""
    states: Sequence[str] = ()
    before: str = ""

    @classmethod
    def of(cls, rule: ShownRule) -> "RuleFields":
        """Return the fields of the form that changes a rule."""
        return cls(
            kind=rule.kind,
            older_than=_days_of(rule.older_than),
            unused_for=_days_of(rule.unused_for),
            keep_last="" if rule.keep_last is None else str(rule.keep_last),
            name=rule.name or "",
            labels="\n".join(f"{label}={value}" for label, value in rule.labels.items()),
            states=rule.states,
            before=msgspec.json.encode(rule).decode(),
        )


def rule_fields() -> RuleFields:
    """Return the fields of the form of this request, without spaces around them."""
    fields = {name: value.strip() for name, value in request.form.items() if name != "states"}
    return msgspec.convert({**fields, "states": request.form.getlist("states")}, RuleFields)


def rule_request(fields: RuleFields) -> dict[str, object]:
    """Return a rule as the API has it. Raise Refused for a field that cannot be read."""
    rule: dict[str, object] = {
        "kind": fields.kind,
        "older_than": _seconds_of("Older than", fields.older_than),
        "unused_for": _seconds_of("Unused for", fields.unused_for),
        "keep_last": number_of(fields.keep_last),
        "name": fields.name,
        "labels": _labels_of(fields.labels),
        "states": list(fields.states),
    }
    return {name: value for name, value in rule.items() if value is not None and value not in ("", [], {})}


def changed_rules(decided: ShownRetention, before: str, rule: dict[str, object] | None) -> list[object]:
    """Return the rules with another in the place of one; without ``before``, after all; None: without that one.

    Raise Refused if the one that the form was about is there no more: someone has changed it meanwhile.
    """
    rules: list[object] = [msgspec.to_builtins(each) for each in decided.rules]
    following = [] if rule is None else [rule]
    if not before:
        return rules + following
    try:
        place = decided.rules.index(msgspec.json.decode(before, type=ShownRule))
    except (ValueError, msgspec.MsgspecError):
        detail = "The rule has been changed or removed meanwhile. This page has the rules as they are now."
        raise Refused(HTTPStatus.CONFLICT, {"title": "The rules have changed", "detail": detail}) from None
    return [*rules[:place], *following, *rules[place + 1 :]]


def _seconds_of(label: str, text: str) -> int | None:
    days = number_of(text)
    if days is None:
        return None
    if isinstance(days, str) or not 0 <= days * DAY_SECONDS < 1e15:
        raise _unreadable(f"{label}: write a number of days, such as 30 or 0.5, or nothing.")
    return round(days * DAY_SECONDS)


def _days_of(seconds: int | None) -> str:
    if seconds is None:
        return ""
    days, rest = divmod(seconds, DAY_SECONDS)
    return repr(seconds / DAY_SECONDS) if rest else str(days)


def _labels_of(text: str) -> dict[str, str]:
    labels: dict[str, str] = {}
    for line in filter(None, map(str.strip, text.splitlines())):
        name, equals, value = line.partition("=")
        if not equals:
            raise _unreadable("Labels: write each in a line of its own, such as branch=nightly.")
        labels[name.strip()] = value.strip()
    return labels


def _unreadable(detail: str) -> Refused:
    return Refused(HTTPStatus.UNPROCESSABLE_ENTITY, {"title": "A field cannot be read", "detail": detail})
