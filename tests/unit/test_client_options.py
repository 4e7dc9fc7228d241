"""Options of the command line: a letter means the same in every command."""

from collections.abc import Iterator

import click
import pytest

from core.domain.access.identities import MEMBERS
from core.domain.access.roles import Verb
from windtunnel.account_records import ROLES, VERBS
from windtunnel.commands import COMMANDS, cli
from windtunnel.commands.options import Lifetime, SaveOption
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


@pytest.mark.parametrize(("text", "seconds"), [("45m", 2_700), ("12h", 43_200), ("90d", 7_776_000), ("2w", 1_209_600)])
def test_a_lifetime_has_a_unit(text: str, seconds: int) -> None:
    assert Lifetime().convert(text, None, None) == seconds


@pytest.mark.parametrize("text", ["", "90", "d", "0d", "-1d", "1.5d", "1y", "²d", " 1d", "1d "])
def test_a_lifetime_without_a_unit_or_a_whole_number_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="45m, 12h, 90d or 2w"):
        Lifetime().convert(text, None, None)


def test_roles_and_verbs_are_those_of_the_platform() -> None:
    assert ROLES == tuple(MEMBERS)
    assert VERBS == tuple(Verb)
