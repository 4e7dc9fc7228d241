"""Submission fields are declared once: what follows from a declaration, in a copy of the tree, and what is checked."""

import dataclasses
import json
import os
import re
import shutil
import subprocess
import sys
from importlib.util import cache_from_source
from pathlib import Path
from typing import Any, get_type_hints

import pytest

from api.schemas import submissions as schemas
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.submissions.submission import MEMBERS, Submission
from core.domain.submissions.submission_spec import SubmissionSpec
from local_play.play import ELSEWHERE
from scripts import submission_fields
from tests.product import ROOT
from web import submission_request
from windtunnel.commands import submission_options

#: The recipe, the file that it changes, and the files that are generated from that.
PAGE = "docs/contributing/submission-field.md"
DECLARATION = "core/domain/submissions/submission.py"
GENERATED = {
    "openapi.yaml",
    "docs/reference/cli.md",
    "cli/windtunnel/submission_fields.py",
    "web/submission_fields.py",
}
#: Writes the generated files, and prints what each place has of the field, as JSON.
PROGRAM = """
import asyncio, json, sys
from pathlib import Path

from scripts import openapi, sync_client

assert openapi.main() == sync_client.main() == 0

from scripts import reference

assert reference.main() == 0

from core.notifications.local_notifier import LocalNotifier
from core.services.platform import PlatformOptions, build
from core.settings import Settings
from datasets.objectstore.filesystem import FilesystemStore
from server import composition
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL
from web.command_line import run_line
from web.submission_request import submission_fields, submission_request
from windtunnel import AsyncClient, submissions
from windtunnel.commands.run import command
from windtunnel.mcp_server import server

home = Path(sys.argv[1])
options = PlatformOptions(home=home, executor_configs=[LOCAL], sandbox={}, max_upload=1 << 20)
database = sqlite_database(home / "test.db")
platform = build(database, FilesystemStore(home / "objects"), LocalNotifier(), options)
client = composition.create_flask(platform, Settings(home=home), {}).test_client()
document = {"dataset": "noop", "runtime": "python", "budget": 5}
created = client.post("/v1/simulations", json=document).json
refused = client.post("/v1/simulations", json=document | {"budget": 0})
form = client.get(f"/submit?simulation={created['id']}").text
database.close()
tools = asyncio.run(server(AsyncClient("http://localhost:1"), changes=True, folder=home).list_tools())
(tool,) = [tool for tool in tools if tool.name == "run_simulation"]
print(json.dumps({
    "spec": created["spec"]["budget"],
    "refused": [refused.status_code, refused.content_type, *refused.json["errors"]],
    "form": form,
    "option": [option.opts for option in command.params if option.name == "budget"],
    "Options": "budget" in submissions.Options.__annotations__,
    "document": submissions.document("noop", budget=5),
    "request": submission_request({"budget": ["5"]}),
    "repeated": submission_fields({"budget": 5}),
    "line": run_line("http://localhost/", {"model": "m", "dataset": "noop", "budget": 5}),
    "tool": tool.input_schema["properties"]["budget"]["anyOf"][0],
}))
"""


def apply_recipe(root: Path) -> None:
    """Add the lines of the page's block to the file that it names, after the line before them."""
    ((file, block),) = re.findall(r"<!-- file: (\S+) -->\n```diff\n(.*?)```", (ROOT / PAGE).read_text(), re.DOTALL)
    assert file == DECLARATION
    lines = block.splitlines(keepends=True)
    before = "".join(line[1:] for line in lines if line.startswith(" "))
    text = (root / file).read_text()
    assert text.count(before) == 1, f"the first line of the block of {PAGE} is not in {file}: correct the page"
    (root / file).write_text(text.replace(before, "".join(line[1:] for line in lines)))


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of the tree, with its compiled code, to which the recipe was applied."""
    root = tmp_path_factory.mktemp("tree")
    for file in files_of_git():
        compiled = cache_from_source(file) if file.endswith(".py") else ""
        for name in (file, compiled):
            if (ROOT / name).is_file():
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / name, root / name)
    apply_recipe(root)
    return root


@pytest.fixture(scope="module")
def places(root: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What each place has of the field, after the scripts have written the generated files."""
    environ = os.environ | {"PYTHONPATH": f"{root}{os.pathsep}{root / 'cli'}"}
    command = [sys.executable, "-c", PROGRAM, str(tmp_path_factory.mktemp("home"))]
    result = subprocess.run(command, cwd=root, env=environ, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-3000:]
    found: dict[str, Any] = json.loads(result.stdout)
    return found


def files_of_git() -> list[str]:
    """Return the files of the tree but for those that no script reads."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", ":!benchmarks", ":!tests/[!de]*"]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout.splitlines()
    return [file for file in listed if (ROOT / file).is_file()]


def test_a_field_is_added_in_one_file_by_hand(root: Path, places: dict[str, Any]) -> None:
    changed = {file for file in files_of_git() if (root / file).read_bytes() != (ROOT / file).read_bytes()}
    assert changed == GENERATED | {DECLARATION}


def test_every_place_has_the_field_that_was_declared(root: Path, places: dict[str, Any]) -> None:
    assert places["spec"] == 5
    message = "budget: Must be greater than or equal to 1 and less than or equal to 100000."
    assert places["refused"] == [422, "application/problem+json", message]
    assert (places["option"], places["Options"]) == ([["--budget"]], True)
    assert re.search('Core hours permitted <input name="budget" value="5"', places["form"])
    assert places["document"] == {"dataset": "noop", "budget": 5} and places["request"] == {"budget": 5}
    assert places["repeated"] == {"budget": ["5"]} and "--budget 5" in places["line"]
    assert places["tool"] == {"type": "integer", "minimum": 1, "maximum": 100_000}
    page = (root / "docs/reference/cli.md").read_text()
    assert re.search(r"\| `--budget N` \| Core hours that it may take\. +\[x>=1\] \|", page)
    assert (root / "openapi.yaml").read_text().count("        budget:\n") == 2, "the submission and its form"


def test_a_request_of_a_comparison_has_the_members_that_are_compared() -> None:
    declared = {field.name: field for field in dataclasses.fields(Submission)}
    request = {field.name: field for field in dataclasses.fields(ComparisonRequest)}
    for member in MEMBERS:
        if member.facts.compared and not member.required:
            own, other = declared[member.name], request.get(member.name)
            assert other is not None and (own.default, own.default_factory) == (other.default, other.default_factory), (
                f"`{member.name}` is declared with compared=True: give ComparisonRequest the same member"
                " (core/domain/comparisons/comparison_requests.py)"
            )


def test_what_is_read_of_a_stored_submission_has_the_types_of_its_declaration() -> None:
    declared, read = get_type_hints(Submission), get_type_hints(SubmissionSpec)
    missing = read.keys() - declared.keys()
    assert not missing, f"SubmissionSpec reads {missing}, which {DECLARATION} does not declare"
    for name in read.keys() - {"gang", "placement"}:  # objects, whose members have types of their own
        assert read[name] == declared[name], f"`{name}` of SubmissionSpec has another type than in {DECLARATION}"


def test_lists_of_names_have_members_that_are_declared() -> None:
    names = {member.name for member in MEMBERS}
    lists = {
        "ORDER of api/schemas/submissions.py": {*schemas.ORDER} - {"upload"},
        "NESTED_FIELDS of api/schemas/submissions.py": {*schemas.NESTED_FIELDS},
        "ORDER of cli/windtunnel/commands/submission_options.py": {*submission_options.ORDER}
        - {*submission_options.OTHERS},
        "OTHERWISE of scripts/submission_fields.py": {*submission_fields.OTHERWISE},
        "ORDER of web/submission_request.py": {*submission_request.ORDER},
        "OTHERWISE of web/submission_request.py": {*submission_request.OTHERWISE},
        "ELSEWHERE of local_play/play.py": {*ELSEWHERE},
    }
    unknown = {place: listed - names for place, listed in lists.items() if listed - names}
    assert not unknown, f"no member of {DECLARATION} has these names: {unknown}"
