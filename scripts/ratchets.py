"""Ratchets of names, prose and types: counts per folder that may only fall, part of `make lint`.

``python -m scripts.ratchets`` counts and compares each folder with scripts/ratchets.json. A rise fails with its places;
a fall fails until it is recorded, so that it stays. ``--update`` writes the record if no count is higher over all
folders than it was: code may move between folders, and takes its places along.
"""

import argparse
import ast
import json
import re
import subprocess
import sys
import tomllib
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path

ROOT = Path(__file__).parents[1]
RECORD = Path(__file__).with_suffix(".json")
#: Not counted: files that are not in the product, generated ones, history, and models as users write them.
UNCOUNTED_FILES = (
    "benchmarks/*",
    "examples/*",
    "scripts/*",
    "tests/*",
    "cli/windtunnel/_sync/*",
    "cli/windtunnel/step_memory.py",
    "cli/windtunnel/submission_fields.py",
    "web/submission_fields.py",
    "core/store/migrations/versions/*",
    "runtimes/harness/simulators/*/baselines/*",
)
#: Folders whose parts are counted apart.
DIVIDED_FOLDERS = ("core", "runtimes")

REGULAR_PARTICIPLE = re.compile(r"[a-z]{3,}ed|[a-z]{2,}ing")
#: Participles of another form. Verbs whose past equals the present (`read`, `put`) are names of actions.
IRREGULAR_PARTICIPLES = frozenset(
    "begun broken built chosen done drawn drunk driven fallen forgotten found frozen given gone grown heard held hidden"
    " kept known laid learnt led lent lost made meant met paid proven said seen sent shown sold spent spoken stolen"
    " stuck sworn taken taught thrown told torn understood unknown unread unset used withdrawn won worn woken"
    " written".split()
)
#: Verbs and nouns that end as participles do.
OTHER_WORDS = frozenset(
    "anything beginning bleed bring building ceiling drawing embed ending everything exceed greeting hundred listing"
    " meaning morning nothing opening pairing proceed rendering rounding saving setting something spacing speed spring"
    " staging sting string succeed swing thing training warning".split()
)
#: Words that qualify a noun, or join a noun to another.
QUALIFIERS = frozenset(
    "ahead all alone at best beyond by few farthest fast first from full highest largest last least less long longest"
    " lowest many more most new newest next not old oldest on plain rest short shortest slow small smallest soon whole"
    " widest with worst".split()
)
#: Constructions in place of a noun, as the beginning of a sentence or of what follows a colon or semicolon; words that
#: are retired wherever they stand; and "is no X", which is "is not an X".
CONSTRUCTIONS = re.compile(
    r"""
    (?:\A\s*|[.:;]\s+)([Tt]hat\s+of|[Tt]hose\s+of|What(?!\s+if)
        |[Oo]ne\s+(?:that|which|who|whose|is|was|has|must|may|can|cannot))\b
    | \b(as\s+it\s+does)\b
    | (?<!here\s)\b((?:is|are|was|were)\s+no)\b(?!\s+(?:longer|more|less|fewer|\w+er\s+than)\b)
    """,
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Module:
    """A parsed file of the product; ``nodes``: its syntax tree, walked once for all counts."""

    path: str
    text: str
    nodes: Sequence[ast.AST]

    @classmethod
    def of(cls, path: str, text: str) -> "Module":
        """Parse a file."""
        return cls(path, text, tuple(ast.walk(ast.parse(text))))


@dataclass(frozen=True, slots=True)
class Place:
    """A line that a count has found."""

    path: str
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.text}"


def is_participle(word: str) -> bool:
    """Return whether a word is a participle, by its form."""
    return word in IRREGULAR_PARTICIPLES or bool(REGULAR_PARTICIPLE.fullmatch(word) and word not in OTHER_WORDS)


def bare_participles(module: Module) -> Iterator[Place]:
    """Yield functions whose whole name is a participle; not properties, which are read as adjectives."""
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and is_participle(node.name.removeprefix("_")):
            decorators = {ast.unparse(decorator).rpartition(".")[2] for decorator in node.decorator_list}
            if not decorators & {"property", "cached_property", "setter", "override"}:
                yield Place(module.path, node.lineno, node.name)


def constants_without_a_noun(module: Module) -> Iterator[Place]:
    """Yield module constants all of whose words are participles or qualify; not a text that is its own name."""
    for node in module.nodes:
        if not isinstance(node, ast.Assign | ast.AnnAssign) or node.col_offset:
            continue
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            for name in target.elts if isinstance(target, ast.Tuple) else [target]:
                if not isinstance(name, ast.Name) or not re.fullmatch(r"_?[A-Z]+(_[A-Z]+)*", name.id):
                    continue
                words = name.id.strip("_").lower()
                if isinstance(node.value, ast.Constant) and node.value.value == words:
                    continue
                if all(word in QUALIFIERS or is_participle(word) for word in words.split("_")):
                    yield Place(module.path, node.lineno, name.id)


def retired_constructions(module: Module) -> Iterator[Place]:
    """Yield the constructions of docstrings, of modules too, that the project's prose avoids."""
    for node in module.nodes:
        if not isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        match node.body:
            case [ast.Expr(ast.Constant(str() as docstring)) as first, *_]:
                for found in CONSTRUCTIONS.finditer(docstring):
                    group = found.lastindex or 0
                    line = first.lineno + docstring.count("\n", 0, found.start(group))
                    yield Place(module.path, line, " ".join(found[group].split()))


def explicit_any(module: Module) -> Iterator[Place]:
    """Yield uses of `Any`, under another name and in quoted types too."""
    names = {"Any"}
    for node in module.nodes:
        if isinstance(node, ast.ImportFrom) and node.module == "typing":
            names |= {alias.asname for alias in node.names if alias.name == "Any" and alias.asname}
    for node in module.nodes:
        for part in [node] if isinstance(node, ast.Name | ast.Attribute) else quoted_types(node):
            if (isinstance(part, ast.Name) and part.id in names) or (
                isinstance(part, ast.Attribute) and part.attr == "Any"
            ):
                yield Place(module.path, getattr(node, "lineno", 1), "Any")


def quoted_types(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of a text that is a type: the whole of an annotation, or a part of it."""
    if not isinstance(node, ast.arg | ast.AnnAssign | ast.FunctionDef | ast.AsyncFunctionDef):
        return
    annotation = node.returns if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) else node.annotation
    for part in ast.walk(annotation) if annotation is not None else ():
        if isinstance(part, ast.Constant) and isinstance(part.value, str):
            with suppress(SyntaxError):  # an entry of a Literal
                yield from ast.walk(ast.parse(part.value, mode="eval"))


#: Methods whose first argument is the name of a member.
READING_METHODS = frozenset({"get", "pop", "setdefault"})


def string_keyed_reads(module: Module) -> Iterator[Place]:
    """Yield members that are read by a literal name: ``x["name"]``, ``x.get("name")``, ``case {"name": value}``."""
    for node in module.nodes:
        match node:
            case ast.Subscript(value=ast.Name(id="Literal")):
                continue
            case ast.Subscript(slice=ast.Constant(value=str() as key), ctx=ast.Load()):
                keys = [key]
            case ast.Call(func=ast.Attribute(attr=method), args=[ast.Constant(value=str() as key), *_]) if (
                method in READING_METHODS
            ):
                keys = [key]
            case ast.Call(func=ast.Name(id="itemgetter") | ast.Attribute(attr="itemgetter"), args=arguments):
                keys = [argument.value for argument in arguments if isinstance(argument, ast.Constant)]
            case ast.MatchMapping(keys=patterns):
                keys = [pattern.value for pattern in patterns if isinstance(pattern, ast.Constant)]
            case _:
                continue
        for key in keys:  # not a header, an address, an environment variable or a quoted type
            if isinstance(key, str) and re.fullmatch(r"[a-z_]\w*", key):
                yield Place(module.path, node.lineno, ast.unparse(node)[:80])


def imports_by_text(module: Module) -> Iterator[Place]:
    """Yield imports of modules that a text names, which import-linter does not see."""
    for node in module.nodes:
        match node:
            case ast.Call(func=ast.Name(id="import_module" | "__import__") | ast.Attribute(attr="import_module")):
                yield Place(module.path, node.lineno, ast.unparse(node)[:80])


def inner_imports(module: Module) -> Iterator[Place]:
    """Yield imports inside functions."""
    functions = [node for node in module.nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    for node in module.nodes:
        if isinstance(node, ast.Import | ast.ImportFrom) and node.col_offset:
            if any(function.lineno < node.lineno <= (function.end_lineno or 0) for function in functions):
                yield Place(module.path, node.lineno, ast.unparse(node)[:80])


def repeated_class_names(modules: Sequence[Module]) -> Iterator[Place]:
    """Yield classes of modules that share a name, without leading underscores, and where the others are."""
    classes: dict[str, list[Place]] = defaultdict(list)
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef) and not node.col_offset:
                classes[node.name.lstrip("_")].append(Place(module.path, node.lineno, node.name))
    for places in classes.values():
        for place in places if len(places) > 1 else ():
            others = ", ".join(f"{other.path}:{other.line}" for other in places if other is not place)
            yield Place(place.path, place.line, f"{place.text}, also {others}")


#: A comment by which a module sets mypy's options for itself.
OWN_OPTIONS = re.compile(r"^\s*#\s*mypy\s*:", re.MULTILINE)


def modules_exempt_from_types(modules: Sequence[Module]) -> Iterator[Place]:
    """Yield modules in which mypy allows `Any`, where it does not as a rule (pyproject.toml), and any of their own."""
    overrides = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["mypy"]["overrides"]
    exempt = [name for table in overrides if table.get("disallow_any_explicit") is False for name in table["module"]]
    for module in modules:
        name = module.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
        if any(fnmatch(name, pattern) or name == pattern.removesuffix(".*") for pattern in exempt):
            yield Place(module.path, 1, name)
        for found in OWN_OPTIONS.finditer(module.text):
            yield Place(module.path, module.text.count("\n", 0, found.end()) + 1, found.group().strip())


def in_each(find: Callable[[Module], Iterator[Place]]) -> Callable[[Sequence[Module]], Iterator[Place]]:
    """Return a count over modules whose places each module has by itself."""
    return lambda modules: (place for module in modules for place in find(module))


@dataclass(frozen=True, slots=True)
class Count:
    """What is counted: its name in the record, what it means with the next step after a rise, and how it is found."""

    name: str
    meaning: str
    find: Callable[[Sequence[Module]], Iterator[Place]]


COUNTS = (
    Count(
        "bare participles",
        "A function is named by a participle alone: name the act (`describe`) or the noun (`described_page`).",
        in_each(bare_participles),
    ),
    Count(
        "constants without a noun",
        "A constant's name has no noun: say of what it is the longest, the kept or the first (`LONGEST_LINE`).",
        in_each(constants_without_a_noun),
    ),
    Count(
        "repeated class names",
        "Two classes share a name: say in each which of them it is, or make them one.",
        repeated_class_names,
    ),
    Count(
        "retired constructions",
        "A docstring stands in for a noun or denies with `no`: name the noun; write `is not an X`.",
        in_each(retired_constructions),
    ),
    Count("explicit Any", "A type is `Any`: name the type, `object` if nothing is read of it.", in_each(explicit_any)),
    Count(
        "string-keyed reads",
        "A member is read by a literal name: decode the document into a record, and read its attribute.",
        in_each(string_keyed_reads),
    ),
    Count(
        "inner imports",
        "A function imports: import at the top of the file, unless a measured start is the reason.",
        in_each(inner_imports),
    ),
    Count(
        "imports by text",
        "A text names the module that is imported, so that no contract sees it: import it by a statement.",
        in_each(imports_by_text),
    ),
    Count(
        "modules exempt from types",
        "A module may say `Any`, by pyproject's list or by a comment of its own: say `object`, or the type.",
        modules_exempt_from_types,
    ),
)

Table = Mapping[str, Mapping[str, int]]


def folder_of(path: str) -> str:
    """Return the folder that a file is counted in: the top one, or a part of a divided one."""
    parts = path.split("/")[:-1]
    return "/".join(parts[: 2 if parts and parts[0] in DIVIDED_FOLDERS else 1]) or "."


def places_by_folder(modules: Sequence[Module]) -> dict[str, dict[str, list[Place]]]:
    """Return the places of each count, by folder, in the order of files and lines."""
    result: dict[str, dict[str, list[Place]]] = {}
    for count in COUNTS:
        folders = result.setdefault(count.name, {})
        for place in sorted(count.find(modules), key=lambda place: (folder_of(place.path), place.path, place.line)):
            folders.setdefault(folder_of(place.path), []).append(place)
    return result


def table_of(places: Mapping[str, Mapping[str, Sequence[Place]]]) -> Table:
    """Return the numbers of places."""
    return {name: {folder: len(found) for folder, found in folders.items()} for name, folders in places.items()}


def differences(
    places: Mapping[str, Mapping[str, Sequence[Place]]], record: Table, changed: Iterable[str] = ()
) -> Iterator[str]:
    """Yield what differs from the record, with the next step.

    A rise has its places in the ``changed`` files of its folder; in all of them, if none of these has any.
    """
    changed = frozenset(changed)
    for count in COUNTS:
        found, recorded = places.get(count.name, {}), record.get(count.name, {})
        for folder in sorted({*found, *recorded}):
            now, before = found.get(folder, ()), recorded.get(folder, 0)
            if len(now) > before:
                yield f"{folder}: {count.name}: {len(now)}, recorded are {before}. {count.meaning}"
                yield from (f"  {place}" for place in [p for p in now if p.path in changed] or now)
            elif len(now) < before:
                command = "python -m scripts.ratchets --update"
                yield f"{folder}: {count.name}: {len(now)}, recorded are {before}. Record it: {command}"


def higher_totals(table: Table, record: Table) -> list[str]:
    """Return the counts that are higher over all folders than recorded; a count without a record may be any."""
    return [
        f"{name}: {sum(table[name].values())}, recorded are {sum(folders.values())}"
        for name, folders in record.items()
        if name in table and sum(table[name].values()) > sum(folders.values())
    ]


def git_lines(*arguments: str) -> list[str]:
    """Return the lines that git prints."""
    output = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout
    return output.splitlines()


def product_modules() -> list[Module]:
    """Parse the product's files, new ones too."""
    paths = git_lines("ls-files", "--cached", "--others", "--exclude-standard", "*.py")
    counted = (path for path in paths if not any(fnmatch(path, pattern) for pattern in UNCOUNTED_FILES))
    return [Module.of(path, (ROOT / path).read_text()) for path in sorted(counted) if (ROOT / path).is_file()]


def files_changed_since_the_record() -> list[str]:
    """Return the files that differ from the commit that wrote the record last, and those that git does not know."""
    commit = git_lines("log", "-1", "--format=%H", "--", str(RECORD.relative_to(ROOT)))
    return git_lines("diff", "--name-only", *commit) + git_lines("ls-files", "--others", "--exclude-standard", "*.py")


def main(arguments: Sequence[str] | None = None) -> int:
    """Compare the counts with the record, or write it; return 1 if they differ or may not be written."""
    parser = argparse.ArgumentParser(prog="python -m scripts.ratchets", description=__doc__.partition("\n")[0])
    parser.add_argument("--update", action="store_true", help="write the record; no total may be higher than it was")
    update = parser.parse_args(arguments).update
    places = places_by_folder(product_modules())
    record: Table = json.loads(RECORD.read_text()) if RECORD.exists() else {}
    if update:
        next_step = "a total may only fall; without --update the places are printed"
        faults = [f"{fault}; {next_step}" for fault in higher_totals(table_of(places), record)]
        if not faults:
            RECORD.write_text(json.dumps(table_of(places), indent=1, sort_keys=True) + "\n")
    else:
        faults = list(differences(places, record, files_changed_since_the_record()))
    for fault in faults:
        print(fault)
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
