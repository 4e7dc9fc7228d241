"""Page of the command line: docs/reference/cli.md, from the commands themselves; `make reference` writes it."""

import inspect
from collections.abc import Iterator

import click

from windtunnel.commands import COMMANDS, cli

HEAD = """# Command line

Generated from `cli/windtunnel/commands` by `make reference`. [Command line](../cli.md) is the guide.

Every command has `-h`. Commands that talk to a platform take `--context NAME`, `--url URL` and `--project NAME`,
which are left out below.

| exit code | meaning |
|--:|---|
| 0 | done; of `run`: every task is ok; of `gate`: the candidate passes; of `check`: the model fits |
| 1 | the model failed, as a whole or in a task; the candidate does not pass; the model does not fit |
| 2 | it could not be done: a wrong option, a platform that does not answer, a refusal |
| 130 | ended by Ctrl-C |

| variable | meaning |
|---|---|
| `WINDTUNNEL_URL` | address of the platform, before the current context |
| `WINDTUNNEL_TOKEN` | token of the platform, before that of the context |
| `WINDTUNNEL_CONTEXT` | context instead of the current one |
| `WINDTUNNEL_PROJECT` | project to act in, with [accounts](../accounts.md), before that of the context |
| `WINDTUNNEL_CONFIG` | file of the contexts; `~/.config/windtunnel/contexts.json` if it is not set |
| `NO_COLOR` | no colours |
"""
#: Options that are described once, above the commands.
COMMON = frozenset({"url", "context", "project", "help"})


def page() -> str:
    """Return the page: a section for each command, with its arguments and options."""
    context = click.Context(cli, info_name="windtunnel")
    sections = []
    for name in COMMANDS:
        command = cli.get_command(context, name)
        assert command is not None
        sections += list(_sections(command, f"windtunnel {name}", context, 2))
    return HEAD + "".join(sections)


def _sections(command: click.Command, path: str, parent: click.Context, depth: int) -> Iterator[str]:
    context = click.Context(command, info_name=path.rpartition(" ")[2], parent=parent)
    text = f"\n{'#' * depth} {path}\n\n"
    if not isinstance(command, click.Group):
        pieces = [piece for piece in command.collect_usage_pieces(context) if piece != "[OPTIONS]"]
        text += _code(f"{' '.join([path, *pieces])} [OPTIONS]") + "\n\n"
    text += _help(command)
    rows = [_row(option, context) for option in command.params if isinstance(option, click.Option)]
    shown = [row for option, row in zip(_options(command), rows, strict=True) if option.name not in COMMON]
    if shown:
        text += "\n| option | meaning |\n|---|---|\n" + "".join(shown)
    yield text
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            assert inner is not None
            yield from _sections(inner, f"{path} {name}", context, depth + 1)


def _options(command: click.Command) -> list[click.Option]:
    return [option for option in command.params if isinstance(option, click.Option)]


def _help(command: click.Command) -> str:
    """Return a command's help as Markdown: what click keeps as it is becomes a block of code."""
    blocks = []
    for block in inspect.cleandoc(command.help or "").split("\n\n"):
        if block.startswith("\b\n"):
            blocks.append(_code(block.removeprefix("\b\n")))
        else:
            blocks.append(" ".join(block.split()))
    return "\n\n".join(blocks) + "\n"


def _code(text: str) -> str:
    """Return text as a block of code that is shown, and not run by the test of the documentation."""
    return f"```text\n{text}\n```"


def _row(option: click.Option, context: click.Context) -> str:
    names, help_text = option.get_help_record(context) or ("", "")
    return f"| `{names.replace('|', chr(92) + '|')}` | {' '.join(help_text.split()).replace('|', chr(92) + '|')} |\n"
