"""Ratchets: each count has its places and no others, no folder's count rises, and what has fallen stays."""

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from scripts import ratchets
from scripts.ratchets import COUNTS, Module, Place, differences, folder_of, higher_totals, places_by_folder, table_of

#: By count: code with its lines that are counted, marked `# counted`, beside what is left.
EXAMPLES = {
    "bare participles": """
def described(): ...  # counted
class Page:
    async def _kept(self): ...  # counted
    def waiting(self): ...  # counted
    @property
    def closed(self): ...
    def describe(self): ...
    def is_closed(self): ...
    def closed_pages(self): ...
    def __missing__(self, key): ...
def read(): ...
def put(): ...
def split(): ...
def embed(): ...
def feed(): ...
def speed(): ...
def string(): ...
def drawing(): ...
""",
    "constants without a noun": """
LONGEST = 1  # counted
_KEPT, ROWS = 2, 3  # counted
REFUSED: int = 4  # counted
COMPILED_FROM = "x"  # counted
FAILED = "failed"
LONGEST_LINE = 5
KEPT_ROWS = 6
SPEED = 7
READ = 8
longest = 9
def function():
    LONGEST = 10
""",
    "repeated class names": """
class Page: ...  # counted
class _Page: ...  # counted
class Row:
    class Meta: ...
class Column:
    class Meta: ...
""",
    "retired constructions": '''
"""That of a module."""  # counted
class Row:
    """Lines of a page: what a reader sees; there is no other.

    What it has.  # counted
    """
def page():
    """# counted: a page, which is
    no row.
    """
def row():
    """Return the row: its length is that of the page, one per line; it is no longer than a line."""
def line():
    """Ends as it does in a task."""  # counted
def cell():
    """What it is. That of a row."""  # counted # counted
def column():
    "One that is empty is left. A page is no"  # counted # counted
    x = "What it has."
''',
    "explicit Any": """
from typing import Any
import typing
from typing import Any as Whatever
def page(row: Any) -> dict[str, typing.Any]: ...  # counted # counted
def line(row: Whatever) -> "list[Any]": ...  # counted # counted
column: "dict[str, Any]" = {}  # counted
word: Literal["Any of them"] = "Any of them"
ANY = any([])
""",
    "string-keyed reads": """
row["name"]  # counted
row.get("name", 1)  # counted
row["a"]["b"]  # counted # counted
row.pop("name")  # counted
row.setdefault("name", 1)  # counted
itemgetter("name", "age")  # counted # counted
match row:
    case {"name": name}: ...  # counted
row["name"] = 1
row[0]
row.name
client.get("/v1/rows")
headers.get("Content-Length")
environ["HOME"]
x: Literal["name"]
x: Sequence["Row"]
""",
    "inner imports": """
import a
if a:
    import b
def function():
    import c  # counted
    def inner():
        from d import e  # counted
""",
    "imports by text": """
import_module("core.services")  # counted
importlib.import_module(name)  # counted
__import__("core")  # counted
import core
""",
}


def places(**texts: str) -> dict[str, dict[str, list[Place]]]:
    return places_by_folder([Module.of(name.replace("__", "/") + ".py", text) for name, text in texts.items()])


def test_every_count_has_an_example() -> None:
    assert [*EXAMPLES, "modules exempt from types"] == [count.name for count in COUNTS]


def test_modules_in_which_mypy_allows_any_are_counted() -> None:
    found = places(core__settings="", core__store__no_such_module="", core__ids="")["modules exempt from types"]
    assert found == {"core": [Place("core/settings.py", 1, "core.settings")]}


def test_a_pattern_of_modules_in_which_mypy_allows_any_counts_each(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyproject.toml").write_text(
        '[[tool.mypy.overrides]]\nmodule = ["core.domain.*"]\ndisallow_any_explicit = false\n'
    )
    monkeypatch.setattr(ratchets, "ROOT", tmp_path)
    found = places(core__domain__a="", core__domain__b__c="", core__ids="")
    paths = {place.path for place in found["modules exempt from types"]["core/domain"]}
    assert paths == {"core/domain/a.py", "core/domain/b/c.py"}


def test_a_module_that_sets_options_of_mypy_itself_is_counted() -> None:
    found = places(core__ids='"""Ids."""\n# mypy: disable-error-code="explicit-any"\n')["modules exempt from types"]
    assert found == {"core": [Place("core/ids.py", 2, "# mypy:")]}


@pytest.mark.parametrize("count", EXAMPLES)
def test_a_count_has_its_examples_with_their_lines_and_no_others(count: str) -> None:
    text = EXAMPLES[count].lstrip()
    found = places(web__page=text)[count].get("web", [])
    marked = [n for n, line in enumerate(text.splitlines(), 1) for _ in range(line.count("# counted"))]
    assert [place.line for place in found] == marked


def test_a_new_folder_and_the_parts_of_divided_ones_are_counted_without_an_entry() -> None:
    paths = "app.py", "new/room/page.py", "core/errors.py", "core/domain/page.py", "runtimes/harness/runner/page.py"
    assert [folder_of(path) for path in paths] == [".", "new", "core", "core/domain", "runtimes/harness"]


def lines(
    found: dict[str, dict[str, list[Place]]], record: dict[str, dict[str, int]], changed: Sequence[str] = ()
) -> str:
    return "\n".join(differences(found, record, changed))


def test_a_rise_fails_with_the_places_of_its_folder_and_the_next_step() -> None:
    found = places(web__page="def described(): ...", core__store__pages="def kept(): ...")
    printed = lines(found, {"bare participles": {"core/store": 1}})
    assert "web: bare participles: 1, recorded are 0." in printed and "name the act" in printed
    assert "  web/page.py:1: described" in printed and "core/store" not in printed


def test_a_rise_has_the_places_of_changed_files_alone_if_there_are_any() -> None:
    found = places(web__page="def described(): ...", web__rows="def kept(): ...")
    record = {"bare participles": {"web": 1}}
    assert "web/rows.py" in lines(found, record, ["web/rows.py"]) and "web/page.py" not in lines(
        found, record, ["web/rows.py"]
    )
    assert all(name in lines(found, record, ["web/cells.py"]) for name in ("web/rows.py:1", "web/page.py:1"))


def test_a_repeated_class_name_says_where_the_other_is() -> None:
    found = places(web__page="class Row: ...", kube__rows="class _Row: ...")
    assert "  kube/rows.py:1: _Row, also web/page.py:1" in lines(found, {})


def test_a_fall_fails_until_it_is_recorded() -> None:
    found = places(web__page="")
    printed = lines(found, {"bare participles": {"web": 1}})
    assert (
        printed.startswith("web: bare participles: 0, recorded are 1.")
        and "python -m scripts.ratchets --update" in printed
    )
    assert lines(found, {name: dict(folders) for name, folders in table_of(found).items()}) == ""


def test_a_record_may_have_places_moved_between_folders_and_no_higher_total() -> None:
    moved = table_of(places(web__page="def described(): ..."))
    assert higher_totals(moved, {"bare participles": {"api": 1}}) == []
    assert higher_totals(moved, {"bare participles": {}}) == ["bare participles: 1, recorded are 0"]
    assert higher_totals(moved, {}) == []


def test_update_writes_a_fall_and_refuses_a_rise(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    record = tmp_path / "ratchets.json"
    record.write_text(json.dumps({"bare participles": {"web": 1}}))
    monkeypatch.setattr(ratchets, "RECORD", record)
    monkeypatch.setattr(ratchets, "product_modules", lambda: [Module.of("web/page.py", "def kept(): ...\n" * 2)])
    assert ratchets.main(["--update"]) == 1 and "bare participles: 2, recorded are 1" in capsys.readouterr().out
    assert json.loads(record.read_text()) == {"bare participles": {"web": 1}}
    monkeypatch.setattr(ratchets, "product_modules", lambda: [Module.of("api/page.py", "def kept(): ...")])
    assert ratchets.main(["--update"]) == 0
    assert json.loads(record.read_text())["bare participles"] == {"api": 1}
