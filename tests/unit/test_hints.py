"""Hints: every command, option and setting that a text of the product names exists."""

import ast
import functools
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import click

from core.settings import OF_CLIENTS, PREFIX, Settings
from server.local import commands as server_command
from tests.product import ROOT, modules
from windtunnel.commands import COMMANDS

#: Folders of pages that name what there was, or what a recipe makes.
OTHER_PAGES = {"contributing", "decisions", "releases"}
PAGES = [*sorted(path for path in (ROOT / "docs").rglob("*.md") if not OTHER_PAGES & {*path.parts}), ROOT / "README.md"]
#: Variables that a model's process, a client of the tests, or completion reads; they are no settings of the server.
OTHERS = re.compile(
    r"WINDTUNNEL_(GANG_\w+|SCENARIO|RESULT|OUTPUT|DATASET|CHECKPOINT|RESTORE|RANK|TASKS|MPI_TIMES|LOG_RULES|RANK_LOGS|COMPLETE"
    r"|SETTING|URL|CONTEXT|PROJECT"
    r"|CONFIG|EXECUTORS?)"
)
VARIABLE = re.compile(r"\bWINDTUNNEL_[A-Z][A-Z_]*[A-Z]\b")
#: The words of a command and what follows; in backquotes, or as a line of its own, which is indented in code.
WORDS = r"(windtunnel(?:-server)?) ((?:[a-z][a-z-]*)(?: [a-z][a-z-]*)?)(?= |`|$)([^`\n]*)"
COMMAND = {".py": re.compile(rf"(?:`|^ {{2,}}){WORDS}", re.M), ".md": re.compile(rf"(?:`|^ *){WORDS}", re.M)}
#: Pages of other projects.
FOREIGN = {"docs/metrics_description.md"}  # of nuPlan
OPTION = re.compile(r"(?<![\w-])(--[a-z][a-z-]+)")


def found_texts() -> Iterator[tuple[str, str]]:
    """Yield every text of the code and of the documentation, with where it is."""
    for path in modules():
        for node in ast.walk(ast.parse((ROOT / path).read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "{}" for part in node.values)
                yield f"{path}:{node.lineno}", "".join(map(str, parts))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield f"{path}:{node.lineno}", node.value
    for page in PAGES:
        yield str(page.relative_to(ROOT)), page.read_text()


@functools.cache
def texts() -> Sequence[tuple[str, str]]:
    """Return all texts; they are read once, and not while tests are collected."""
    return list(found_texts())


def client_commands() -> Mapping[str, click.Command]:
    """Return the commands of the client by their words."""
    found = {}
    for name in COMMANDS:
        command = importlib.import_module(f"windtunnel.commands.{name}").command
        found[name] = command
        if isinstance(command, click.Group):
            found |= {f"{name} {word}": part for word, part in command.commands.items()}
    return found


def server_commands() -> Mapping[str, click.Command]:
    return dict(server_command.commands().commands)


def options_of(command: click.Command) -> set[str]:
    context = click.Context(command)
    names = {name for option in command.get_params(context) for name in (*option.opts, *option.secondary_opts)}
    default = command.commands.get("list") if isinstance(command, click.Group) else None
    return names | (options_of(default) if default is not None else set())


def test_every_setting_that_a_text_names_exists() -> None:
    known = {f"{PREFIX}{name.upper()}" for name in Settings.__dataclass_fields__} | {
        PREFIX + name for name in OF_CLIENTS
    }
    named = {
        (where, name)
        for where, text in texts()
        for name in VARIABLE.findall(text)
        if not OTHERS.fullmatch(name) and not where.startswith("core/settings.py")
    }
    assert len({name for _, name in named}) > 30
    assert sorted(pair for pair in named if pair[1] not in known) == []


def test_every_command_and_option_that_a_text_names_exists() -> None:
    known = {"windtunnel": client_commands(), "windtunnel-server": server_commands()}
    unknown, count = [], 0
    for where, text in texts():
        for program, words, rest in COMMAND[Path(where.partition(":")[0]).suffix].findall(text):
            commands = known[program]
            name = words if words in commands else words.split()[0]
            if name not in commands:
                unknown.append(f"{where}: {program} {words}")
                continue
            count += 1
            own = rest.split("|")[0].split("#")[0].split("&&")[0].split(";")[0]
            unknown += [
                f"{where}: {program} {name} {option}"
                for option in OPTION.findall(own)
                if program == "windtunnel" and option not in options_of(commands[name]) | {"--help"}
            ]
    assert count > 60 and unknown == []


def test_every_page_that_a_text_of_the_code_names_exists() -> None:
    headings: dict[str, set[str]] = {}
    missing, count = [], 0
    for where, text in texts():
        if not where.partition(":")[0].endswith(".py"):
            continue
        for page, anchor in re.findall(r"(?<![\w/])(docs/[\w/-]+\.md)(?:#([\w-]+))?", text):
            count += 1
            if not (ROOT / page).is_file():
                missing += [f"{where}: {page}"] if page not in FOREIGN else []
            elif anchor:
                if page not in headings:
                    titles = re.findall(r"^#+ (.*)$", (ROOT / page).read_text(), re.M)
                    headings[page] = {re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-") for title in titles}
                if anchor not in headings[page]:
                    missing.append(f"{where}: {page}#{anchor}")
    assert count > 50 and missing == []
