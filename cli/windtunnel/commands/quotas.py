"""`windtunnel quotas`: show and set the limits of a project, of a user in it, or of every project."""

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, ParamSpec, TypeVar

import click

from windtunnel import output as outputs
from windtunnel.account_records import ProjectQuota, UsedLimit
from windtunnel.commands.noun import NounGroup
from windtunnel.commands.options import member_names, output_option, with_client

if TYPE_CHECKING:
    from windtunnel import Client

P = ParamSpec("P")
T = TypeVar("T")
COLUMNS: Sequence[outputs.RecordColumn[ProjectQuota]] = (
    ("quota", lambda use: use.quota),
    ("limit", lambda use: "none" if use.limit is None else f"{use.limit:,}"),
    ("used", lambda use: "" if use.used is None else f"{use.used:,.15g}"),
    ("given", lambda use: "here" if use.own is not None else "to every project" if use.limit is not None else ""),
)
FULLEST_COLUMNS: Sequence[outputs.RecordColumn[UsedLimit]] = (
    ("project", lambda limit: limit.project),
    ("user", lambda limit: limit.user or ""),
    ("quota", lambda limit: limit.quota),
    ("limit", lambda limit: f"{limit.limit:,}"),
    ("used", lambda limit: f"{limit.used:,.15g}"),
    ("share", lambda limit: "over" if limit.share is None else f"{limit.share:.0%}"),
)
_FACTORS = {"": 1, "k": 10**3, "M": 10**6, "G": 10**9, "T": 10**12}
_NUMBER = re.compile(r"([0-9]{1,16})([kMGT]?)", re.ASCII)


class QuotaLimit(click.ParamType[tuple[str, int | None]]):
    """Argument such as `tasks=1M` or `stored_bytes=none`, as the quota and its limit."""

    name = "quota"

    def convert(
        self, value: object, param: click.Parameter | None, ctx: click.Context | None
    ) -> tuple[str, int | None]:
        """Return the quota and its limit, None for none; fail for another text."""
        if isinstance(value, tuple):
            return value
        quota, _, amount = str(value).partition("=")
        if amount == "none":
            return quota, None
        if (match := _NUMBER.fullmatch(amount)) is None:
            self.fail(
                f"{value!r} is not a limit: tasks=1000000, tasks=1M, stored_bytes=200G or tasks=none.", param, ctx
            )
        number, unit = match.groups()
        return quota, int(number) * _FACTORS[unit]


def whose_options(function: Callable[P, T]) -> Callable[P, T]:
    """Give a command the options of whose limits are meant, in place of those of the project."""
    function = click.option(
        "--every-project", is_flag=True, help="Limits of each project that has none of its own; an operator's option."
    )(function)
    return click.option("--user", metavar="NAME", shell_complete=member_names, help="Limits of this member.")(function)


@click.group(cls=NounGroup)
def command() -> None:
    """Show and set limits: of what waits, what is stored, of workers and what they have. Operators set a project's."""


@command.command("list")
@whose_options
@output_option()
@with_client
def list_(client: "Client", user: str | None, every_project: bool, output: str) -> None:
    """Show the limits of the project, and how much of each is used."""
    _check(user, every_project)
    outputs.show_records(client.quotas.get(user=user, every_project=every_project), COLUMNS, output, name="quota")


@command.command("set")
@click.argument("limits", nargs=-1, required=True, type=QuotaLimit(), metavar="QUOTA=LIMIT...")
@whose_options
@output_option()
@with_client
def set_(
    client: "Client", limits: Sequence[tuple[str, int | None]], user: str | None, every_project: bool, output: str
) -> None:
    """Change limits; others stay. Numbers may end with k, M, G or T (of 1000); `none` removes a limit.

    \b
    windtunnel quotas set queued_simulations=500 stored_bytes=200G running_workers=64 --project team-a
    windtunnel quotas set running_workers=16 --user bob
    windtunnel quotas set resources.cpu=64 resources.memory=256G resources.nvidia.com/gpu=8
    """
    _check(user, every_project)
    uses = client.quotas.limit(dict(limits), user=user, every_project=every_project)
    outputs.show_records(uses, COLUMNS, output, name="quota")


@command.command()
@click.option(
    "--percent", type=click.IntRange(0, 10_000), default=80, show_default=True, help="Least part that is used."
)
@output_option()
@with_client
def fullest(client: "Client", percent: int, output: str) -> None:
    """Show which projects, and users in them, are nearest to their limits, or over them; an operator's command."""
    outputs.show_records(client.quotas.fullest(percent=percent), FULLEST_COLUMNS, output, name="project")


def _check(user: str | None, every_project: bool) -> None:
    if user is not None and every_project:
        raise click.UsageError("--user is a member of one project: leave --every-project out.")
