"""Options that commands share: which platform, which format of the output; completion of names from the platform."""

import functools
import math
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from glob import escape, glob
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import click
from click.shell_completion import CompletionItem

if TYPE_CHECKING:
    from windtunnel import Client
    from windtunnel.account_records import User

P = ParamSpec("P")
T = TypeVar("T")
#: Most names that a completion offers.
MOST_NAMES = 50
#: Seconds that a completion waits for the platform.
COMPLETION_TIMEOUT = 1.0


def with_client(function: Callable[..., T]) -> Callable[..., T]:
    """Give a command the options of the platform, and a client of it as the first argument."""

    @click.option("--context", metavar="NAME", shell_complete=context_names, help="Context instead of the current one.")
    @click.option("--url", metavar="URL", help="Address of the platform, instead of a context.")
    @project_option()
    @functools.wraps(function)
    def command(*args: Any, url: str | None, context: str | None, project: str | None, **options: Any) -> T:
        from windtunnel import Client

        name, acting = context or of_root("context"), project or of_root("project")
        with Client(url or of_root("url"), context=name, project=acting, on_wait=_say_waiting) as client:
            return function(client, *args, **options)

    return command


def of_root(option: str) -> str | None:
    """Return an option of the platform that is written before the command."""
    text: str | None = click.get_current_context().find_root().params.get(option)
    return text


def _say_waiting(text: str) -> None:
    """Say on stderr that a request is repeated."""
    from windtunnel.visible_text import visible

    click.echo(visible(text), err=True)


class Seconds(click.ParamType[float]):
    """Option of a duration in seconds: a finite number above 0."""

    name = "seconds"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Return the number; fail for another value."""
        try:
            seconds = float(value)
        except ValueError:
            seconds = math.nan
        if not (math.isfinite(seconds) and seconds > 0):
            self.fail(f"{value!r} is not a number of seconds above 0.", param, ctx)
        return seconds


class WholeOrAuto(click.ParamType[int | str]):
    """Option of a whole number of at least ``low``, or `auto`."""

    name = "number or auto"

    def __init__(self, low: int) -> None:
        self._low = low

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int | str:
        """Return the number, or the text; fail for another value."""
        text = str(value)
        if text == "auto":
            return text
        try:
            number = int(text)
        except ValueError:
            number = self._low - 1
        if number < self._low:
            self.fail(f"{text!r} is not a whole number of at least {self._low}, or auto.", param, ctx)
        return number


class Lifetime(click.ParamType[int]):
    """Option of a length of time with its unit, such as `90d`, as seconds."""

    name = "time"
    #: Seconds of each unit: minutes, hours, days, weeks.
    units: Mapping[str, int] = {"m": 60, "h": 3_600, "d": 86_400, "w": 604_800}

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Return the seconds; fail for another text."""
        number, unit = str(value)[:-1], str(value)[-1:]
        if not (number.isascii() and number.isdigit() and int(number) > 0 and unit in self.units):
            self.fail(f"{value!r} is not a time with its unit: 45m, 12h, 90d or 2w.", param, ctx)
        return int(number) * self.units[unit]


def ask_secret(what: str) -> str:
    """Return a secret that is typed without an echo, or read from stdin: other users see the command line."""
    text = click.prompt(what, hide_input=True, err=True) if sys.stdin.isatty() else sys.stdin.readline()
    if not str(text).strip():
        raise click.UsageError(f"The {what.lower()} is empty.")
    return str(text).strip()


def confirm(question: str, *, yes: bool) -> None:
    """Ask before something is lost, unless ``yes``; without a terminal nobody can answer, which is an error."""
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(f"{question} Without a terminal, --yes answers.")
    click.confirm(question, abort=True, err=True)


class SaveOption(click.Option):
    """Option `--save` of a file. Its former name, `-o`, is accepted and not shown: it is the format elsewhere."""

    def __init__(self, declarations: Sequence[str], **attributes: Any) -> None:
        super().__init__([*declarations, "-o", "--output"], **attributes)

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        """Return what the help shows: the present name only."""
        shown = copy(self)
        shown.opts = ["--save"]
        return click.Option.get_help_record(shown, ctx)


def save_option(default: str) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Give a command the option of the file that it saves; ``default``: the name if it is left out, for the help."""
    return click.option(
        "--save",
        "output",
        cls=SaveOption,
        metavar="FILE",
        type=click.Path(dir_okay=False),
        help=f"File; {default} if left out.",
    )


def project_option() -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Give a command the option of the project that it acts in."""
    return click.option(
        "--project",
        metavar="NAME",
        shell_complete=project_names,
        help="Project to act in, for a user of several; else WINDTUNNEL_PROJECT, or that of the context.",
    )


def output_option() -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Give a command the option of the format that it prints."""
    return click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml", "name"]),
        default="table",
        show_default=True,
        help="Format of the output; `name`: an id or a name per line.",
    )


# -- completion: a platform that does not answer offers no names, and says nothing

#: Completes what is written of a name.
Completion = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completion(names: "Callable[[Client, str], Iterable[tuple[str, str]]]") -> Completion:
    """Return the completion of names of a platform; ``names`` gets what is written, and yields texts with them."""

    def complete(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        from windtunnel import Client
        from windtunnel.visible_text import visible

        try:
            root = ctx.find_root().params
            selected = {name: ctx.params.get(name) or root.get(name) for name in ("url", "context", "project")}
            with Client(**selected, patience=0.0, timeout=COMPLETION_TIMEOUT) as client:
                pairs = list(names(client, incomplete))
        except Exception:
            return []
        return [
            CompletionItem(name, help=visible(text).replace("\n", " "))
            for name, text in pairs
            if name.startswith(incomplete)
        ][:MOST_NAMES]

    return complete


#: Ids of simulations, the newest first.
simulation_ids = _completion(
    lambda client, incomplete: [
        (item.id, f"{item.state}: {item.model.name} on {item.dataset.name}")
        for item in client.simulations.list(query=incomplete or None, limit=MOST_NAMES)
    ]
)
model_names = _completion(
    lambda client, _: {
        model.name: f"{model.format}, version {model.version}" for model in client.models.list(limit=200)
    }.items()
)
dataset_names = _completion(lambda client, _: [(item.name, item.title) for item in client.datasets.list(limit=200)])
runtime_names = _completion(lambda client, _: [(item.name, item.title) for item in client.runtimes()])
executor_names = _completion(lambda client, _: [(item.name, item.kind) for item in client.executors()])
project_names = _completion(lambda client, _: [(item.name, item.role) for item in client.whoami().projects])
member_names = _completion(lambda client, _: [(item.user, item.role) for item in client.members.list()])
user_names = _completion(lambda client, _: [(item.name, _kind_of(item)) for item in client.users.list(limit=200)])


def _kind_of(user: "User") -> str:
    return f"service account of {user.service}" if user.service else "operator" if user.operator else "user"


def models_and_files(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete a model: a file, or a name that the platform has."""
    names = model_names(ctx, param, incomplete)
    if not names:
        return [CompletionItem(incomplete, type="file")]
    # bash completes files by itself only where there is nothing else
    return [*names, *(CompletionItem(file) for file in sorted(glob(f"{escape(incomplete)}*"))[:MOST_NAMES])]


def context_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
    """Complete the name of a context."""
    from windtunnel import contexts

    try:
        known = contexts.load(contexts.config_path())
    except Exception:
        return []
    return [
        CompletionItem(name, help=context.url)
        for name, context in known.contexts.items()
        if name.startswith(incomplete)
    ]
