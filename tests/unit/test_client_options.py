"""Options of the command line: a letter means the same in every command."""

from collections.abc import Iterator

import click
import pytest

from windtunnel.commands import COMMANDS, cli
from windtunnel.commands.options import SaveOption
from windtunnel.commands.run import command as run


def commands() -> Iterator[tuple[str, click.Command]]:
    """Yield every command with its words."""
    waiting = [(name, cli.get_command(click.Context(cli), name)) for name in COMMANDS]
    while waiting:
        words, command = waiting.pop()
        assert command is not None
        yield words, command
        if isinstance(command, click.Group):
            waiting += [(f"{words} {name}", part) for name, part in command.commands.items()]


@pytest.mark.parametrize(
    ("words", "command"), sorted(commands(), key=lambda pair: pair[0]), ids=lambda value: str(value)
)
def test_o_is_the_format_of_the_output_and_save_is_a_file(words: str, command: click.Command) -> None:
    context = click.Context(command)
    for option in command.params:
        shown = option.get_help_record(context) if isinstance(option, click.Option) else None
        names = shown[0] if shown else ""
        if "-o" in names.replace(",", " ").split():
            assert isinstance(option.type, click.Choice) or "FORMAT" in names, (words, names)
        if isinstance(option, SaveOption):
            assert "-o" in option.opts and names == "--save FILE", (words, names)


@pytest.mark.parametrize("text", ["0", "-1", "1.5", "many", "true", "", "9" * 5000])
def test_worlds_are_a_whole_number_or_auto(text: str) -> None:
    message = "is not a whole number of at least 1, or auto"
    with pytest.raises(click.BadParameter, match=message):
        run.make_context("run", ["m", "d", "--worlds", text])
    given = [run.make_context("run", ["m", "d", *words]).params["worlds"] for words in (["--worlds", "16"], [])]
    assert given == [16, None] and run.make_context("run", ["m", "d", "--worlds=auto"]).params["worlds"] == "auto"
