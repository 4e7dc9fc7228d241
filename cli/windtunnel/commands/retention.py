"""`windtunnel retention`: the rules by which a project deletes what is old, and what they would take."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from windtunnel import figures
from windtunnel import output as outputs
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import output_option, with_client
from windtunnel.retention_records import RETAINED_KINDS, RuleSubject

if TYPE_CHECKING:
    from windtunnel import Client

P = ParamSpec("P")
T = TypeVar("T")
RULE_COLUMNS: Sequence[outputs.Column] = (
    ("rule", "rule"),
    ("kind", "kind"),
    ("conditions", "conditions"),
)
THING_COLUMNS: Sequence[outputs.RecordColumn[RuleSubject]] = (
    ("id", lambda thing: thing.id),
    ("kind", lambda thing: thing.kind),
    ("name", lambda thing: thing.name),
    ("size", lambda thing: figures.size(thing.bytes)),
    ("rule", lambda thing: str(thing.rule)),
    ("stays", lambda thing: ", ".join(thing.spared)),
)
_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 7 * 86_400}
_AGE = re.compile(r"([0-9]{1,9})([smhdw])", re.ASCII)


class RuleText(click.ParamType[dict[str, object]]):
    """Argument such as `simulations:older_than=30d,states=failed+errored,label.branch=nightly`, as a rule."""

    name = "rule"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> dict[str, object]:
        """Return the rule as a document of the API; fail for another text."""
        if isinstance(value, dict):
            return value
        kind, _, conditions = str(value).partition(":")
        if kind not in RETAINED_KINDS:
            self.fail(f"{value!r} is of no kind. Begin with simulations:, models: or datasets:", param, ctx)
        rule: dict[str, object] = {"kind": kind}
        labels: dict[str, str] = {}
        for condition in filter(None, conditions.split(",")):
            name, equals, text = condition.partition("=")
            if not equals:
                self.fail(
                    f"{condition!r} is no condition: older_than=30d, keep_last=5, label.branch=nightly.", param, ctx
                )
            if name.startswith("label."):
                labels[name.removeprefix("label.")] = text
            else:
                rule[name] = self._value(name, text, param, ctx)
        return rule | ({"labels": labels} if labels else {})

    def _value(self, name: str, text: str, param: click.Parameter | None, ctx: click.Context | None) -> object:
        if name in ("older_than", "unused_for"):
            if (match := _AGE.fullmatch(text)) is None:
                self.fail(f"{text!r} is no age: write 90m, 12h, 30d or 8w.", param, ctx)
            return int(match[1]) * _UNITS[match[2]]
        if name == "states":
            return text.split("+")
        return int(text) if name == "keep_last" and text.isdecimal() else text


def rules_argument(function: Callable[P, T]) -> Callable[P, T]:
    """Give a command the rules that it is about."""
    return click.argument("rules", nargs=-1, type=RuleText(), metavar="[RULE...]")(function)


@click.group(cls=NounGroup)
def command() -> None:
    """Show, try and set the rules by which the project puts old things into the bin."""


@command.command("list")
@output_option()
@with_client
def list_(client: "Client", output: str) -> None:
    """Show the rules of the project."""
    decided = client.retention.get()
    if output != "table":
        click.echo(outputs.serialised(decided.raw, output))
        return
    outputs.show_table(RULE_COLUMNS, _rule_rows(decided.rules))
    click.echo(f"What people delete {'goes to the bin' if decided.bin else 'is gone at once'}.")


@command.command("set")
@rules_argument
@click.option("--none", is_flag=True, help="No rules.")
@click.option("--bin/--no-bin", "bin", default=None, help="Whether what people delete goes to the bin as well.")
@output_option()
@with_client
def set_(client: "Client", rules: Sequence[Mapping[str, object]], none: bool, bin: bool | None, output: str) -> None:
    """Replace the rules of the project; without any, they stay. A maintainer does. Try them first: dry-run.

    \b
    windtunnel retention set simulations:older_than=90d simulations:older_than=7d,states=failed+cancelled
    windtunnel retention set simulations:keep_last=100,label.branch=nightly models:unused_for=180d,keep_last=3
    windtunnel retention set --bin
    """
    if bool(rules) == none and (none or bin is None):
        raise click.UsageError("Name rules, or --none, or --bin or --no-bin alone.")
    decided = client.retention.set(rules=rules if rules or none else None, bin=bin)
    if output == "table":
        outputs.show_table(RULE_COLUMNS, _rule_rows(decided.rules))
    else:
        click.echo(outputs.serialised(decided.raw, output))


@command.command("dry-run")
@rules_argument
@output_option()
@with_client
def dry_run(client: "Client", rules: Sequence[Mapping[str, object]], output: str) -> None:
    """Show what rules would take now, and what they would not; without any, those of the project."""
    preview = client.retention.dry_run(rules or None)
    if output not in {"table", "name"}:
        click.echo(outputs.serialised(preview.raw, output))
        return
    if output == "name":
        outputs.show_records(preview.first, THING_COLUMNS, output)
        return
    outputs.show_records([*preview.first, *preview.first_spared], THING_COLUMNS, output)
    for kind, taken in preview.taken.items():
        click.echo(f"{taken.count:,} {kind} would go, with {figures.size(taken.bytes)}.")
    for reason, number in preview.spared.items():
        click.echo(f"{number:,} would stay: {reason}.")


def _rule_rows(rules: Sequence[Mapping[str, object]]) -> list[Mapping[str, object]]:
    return [
        {"rule": number, **rule, "conditions": ", ".join(_conditions(rule))} for number, rule in enumerate(rules, 1)
    ]


def _conditions(rule: Mapping[str, object]) -> list[str]:
    """Return the conditions of a rule, as they are written on the command line."""
    words: list[str] = []
    for name, value in rule.items():
        if isinstance(value, Mapping):
            words += [f"label.{label}={text}" for label, text in value.items()]
        elif isinstance(value, list):
            words.append(f"{name}={'+'.join(value)}")
        elif name in ("older_than", "unused_for") and isinstance(value, int):
            words.append(f"{name}={_age(value)}")
        elif name != "kind":
            words.append(f"{name}={value}")
    return words


def _age(seconds: int) -> str:
    unit = next(unit for unit in ("d", "h", "m", "s") if seconds % _UNITS[unit] == 0)
    return f"{seconds // _UNITS[unit]}{unit}"
