"""Declared dependencies of a model: requirements.txt, pyproject.toml, script metadata; parsed, never executed.

Only names with versions, extras and markers pass. Everything else that installers understand (indexes, URLs, files,
version control, options) is refused by its line: where packages come from is the operator's decision.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import canonicalize_name

from common.errors import BadRequirements

#: Files of a model that declare packages; the first that is there counts, uv.lock together with pyproject.toml.
PYLOCK, UV_LOCK, REQUIREMENTS, PROJECT, MODULE = DECLARING_FILES = (
    "pylock.toml",
    "uv.lock",
    "requirements.txt",
    "pyproject.toml",
    "model.py",
)
#: The most bytes of a file that declares requirements, and the most requirements.
LARGEST, MOST = 1 << 20, 500
#: The most characters of a requirement.
LONGEST = 500

#: Options of pip that change nothing here: wheels alone are installed, by the hashes of a lock.
_IGNORED = ("--only-binary", "--prefer-binary", "--require-hashes", "--no-cache-dir", "--disable-pip-version-check")
#: Options of pip that are refused, with the reason.
_INDEXES = "the operator chooses the indexes (`GET /v1/runtimes/python` lists them); remove the line"
_REFUSED: Mapping[str, str] = {
    "-e": "packages are installed from wheels of an index; put the package's modules beside model.py",
    "--editable": "packages are installed from wheels of an index; put the package's modules beside model.py",
    "-r": "one file declares the requirements; copy the lines of the other file",
    "--requirement": "one file declares the requirements; copy the lines of the other file",
    "-c": "one file declares the requirements; write the versions into its lines",
    "--constraint": "one file declares the requirements; write the versions into its lines",
    **dict.fromkeys(
        ("-i", "--index-url", "--pypi-url", "--extra-index-url", "-f", "--find-links", "--no-index", "--trusted-host"),
        _INDEXES,
    ),
    "--no-binary": "packages are installed from wheels only; remove the line",
    "--pre": "name the pre-release by its version, such as `package==2.0rc1`",
}
#: Suffixes of files that installers take in place of a name, and the reason for which they are refused.
_FILES = (".whl", ".tar.gz", ".zip")
_FILE = "it names a file; packages are installed from wheels of an index"
_COMMENT = re.compile(r"(^|\s)#.*$")
_HASH = re.compile(r"\s--hash[= ](\S+)")
_SHA256 = re.compile(r"sha256:[0-9a-f]{64}")
#: First line of a block of script metadata, of any type, and the last.
#: (https://packaging.python.org/en/latest/specifications/inline-script-metadata/)
_BLOCK, _BLOCK_END = re.compile(r"# /// ([a-zA-Z0-9-]+)"), "# ///"
#: Most of what a TOML file is made of: signs of values and tables, and dots, those in strings included. The time of the
#: parser grows with their number; a lock of 500 packages with 25 wheels each has 60,000 signs and 110,000 dots.
_SIGNS, MOST_SIGNS, MOST_DOTS = "=,[{", 100_000, 150_000
#: More parts of a dotted key than any declaration has; the parser's time grows with their square.
_DEEP_KEY = re.compile(r"""(?<![\w-])(?:(?:[\w-]++|"[^"\n]*+"|'[^'\n]*+')[ \t]*+\.[ \t]*+){32}""")


@dataclass(frozen=True, kw_only=True, slots=True)
class Declaration:
    """What a model declares to need. ``file``: where; ``python``: a specifier of Python versions, empty: any.

    ``requirements`` and ``constraints`` are lines of a requirements file: names with extras, versions and markers.
    ``hashes``: of a locked package, by ``name==version``, the SHA-256 digests that its wheels may have.
    """

    file: str
    requirements: tuple[str, ...]
    constraints: tuple[str, ...] = ()
    hashes: Mapping[str, frozenset[str]] = field(default_factory=dict)
    python: str = ""


def of_requirements(text: str, file: str = "requirements.txt") -> Declaration:
    """Read a requirements file. Raises BadRequirements with the number of the line that is not accepted."""
    requirements, hashes = [], {}
    for number, line in _logical_lines(text):
        where = f"{file}, line {number}"
        if line.startswith("-"):
            _check_option(line, where)
            continue
        digests = _HASH.findall(f" {line}")
        requirement = requirement_of(_HASH.sub("", line), where)
        requirements.append(str(requirement))
        _check_number(len(requirements), file)
        if digests:
            hashes[_pin(requirement, where)] = frozenset(_digest(text, where) for text in digests)
    return Declaration(file=file, requirements=tuple(requirements), hashes=hashes)


def of_pyproject(text: str, file: str = "pyproject.toml") -> Declaration | None:
    """Read the ``[project]`` table's dependencies; None if the file declares none."""
    document = toml_of(text, file)
    project = _table(document, "project", file)
    poetry = document.get("tool", {}).get("poetry", {}) if isinstance(document.get("tool"), dict) else {}
    if "dependencies" not in project:
        dynamic = project.get("dynamic")
        if isinstance(dynamic, list) and "dependencies" in dynamic:
            raise BadRequirements(
                f"{file}: the dependencies are dynamic, and no code of the project runs here;"
                " list them in [project] dependencies, or in requirements.txt."
            )
        if isinstance(poetry, dict) and poetry.get("dependencies"):
            raise BadRequirements(
                f"{file}: [tool.poetry.dependencies] is not read; list them in [project] dependencies, or send a"
                " requirements.txt (`poetry export`)."
            )
        return None
    return _of_table(document, project, file)


def of_script(source: str, file: str = "model.py") -> Declaration | None:
    """Read a script's inline metadata (PEP 723); None if there is none."""
    blocks = list(_script_blocks(source.splitlines()))
    if not blocks:
        return None
    if len(blocks) > 1:
        raise BadRequirements(f"{file} has {len(blocks)} blocks `# /// script`; one is allowed.")
    content = "".join(f"{line[2:]}\n" for line in blocks[0])
    document = toml_of(content, file)
    return _of_table(document, document, file)


def _script_blocks(lines: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yield the lines of each block of the type ``script``: comments, up to the last end before any other line."""
    start = 0
    while start < len(lines):
        opening = _BLOCK.fullmatch(lines[start])
        start += 1
        if opening is None:
            continue
        stop = start
        while stop < len(lines) and (lines[stop] == "#" or lines[stop].startswith("# ")):
            stop += 1
        end = next((number for number in range(stop - 1, start - 1, -1) if lines[number] == _BLOCK_END), None)
        if end is not None and opening.group(1) == "script":
            yield lines[start:end]
        start = stop if end is None else end + 1


def _of_table(document: Mapping[str, Any], table: Mapping[str, Any], file: str) -> Declaration:
    lines = table.get("dependencies", [])
    if not isinstance(lines, list) or not all(isinstance(line, str) for line in lines):
        raise BadRequirements(f"{file}: dependencies is not a list of strings.")
    _check_number(len(lines), file)
    requirements = [requirement_of(line, file) for line in lines]
    sources = _table(_table(_table(document, "tool", file), "uv", file), "sources", file)
    redirected = {canonicalize_name(name) for name in sources}
    for requirement in requirements:
        if canonicalize_name(requirement.name) in redirected:
            raise BadRequirements(
                f"{file}: [tool.uv.sources] names another source for {requirement.name}; {_INDEXES.split(';')[0]}."
            )
    return Declaration(
        file=file,
        requirements=tuple(str(requirement) for requirement in requirements),
        python=python_of(table.get("requires-python", ""), file),
    )


def requirement_of(line: str, where: str) -> Requirement:
    """Parse a requirement. Raises BadRequirements for anything but a name with extras, versions and markers."""
    if len(line) > LONGEST:
        raise BadRequirements(f"{where}: a requirement has at most {LONGEST} characters.")
    try:
        requirement = Requirement(line)
    except RecursionError:
        raise BadRequirements(f"{where}: {_shown(line)} is nested too deeply.") from None
    except InvalidRequirement as error:
        raise BadRequirements(f"{where}: {_shown(line)} is not a requirement: {_reason(line, error)}.") from None
    if requirement.name.lower().endswith(_FILES):
        raise BadRequirements(f"{where}: {_shown(line)} is not a requirement: {_FILE}.")
    if "$" in line or any(specifier.operator == "===" for specifier in requirement.specifier):
        raise BadRequirements(f"{where}: {_shown(line)}: neither variables nor `===` are accepted; name a version.")
    if requirement.url is not None:
        raise BadRequirements(f"{where}: {_shown(line)} names an address; {_INDEXES.split(';')[0]}: name a version.")
    return requirement


def python_of(specifier: Any, file: str) -> str:
    """Check a specifier of Python versions."""
    try:
        return str(SpecifierSet(specifier if isinstance(specifier, str) and len(specifier) <= LONGEST else "invalid"))
    except InvalidSpecifier:
        raise BadRequirements(f"{file}: requires-python {_shown(str(specifier))} is not a version specifier.") from None


def toml_of(text: str, file: str) -> dict[str, Any]:
    """Parse TOML, in a bounded time. Raises BadRequirements with the place."""
    if sum(map(text.count, _SIGNS)) > MOST_SIGNS or text.count(".") > MOST_DOTS:
        raise BadRequirements(
            f"{file} has more than {MOST_SIGNS:,} values and tables, or {MOST_DOTS:,} dots; declare fewer packages."
        )
    if deep := _DEEP_KEY.search(text):
        raise BadRequirements(f"{file}, line {text.count(chr(10), 0, deep.start()) + 1}: a key has more than 32 parts.")
    try:
        return tomllib.loads(text)
    except (ValueError, RecursionError) as error:  # a ValueError too for a number of thousands of digits
        raise BadRequirements(f"{file} is not TOML: {str(error)[:200]}.") from None


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Yield the lines without comments, with their numbers; a line that ends with a backslash continues."""
    number, pending = 0, ""
    for count, raw in enumerate(text.splitlines(), 1):
        number = number or count
        if raw.endswith("\\"):
            pending += raw[:-1] + " "
            continue
        line = _COMMENT.sub("", pending + raw).strip()
        if line:
            yield number, line
        number, pending = 0, ""
    if pending.strip():
        yield number, pending.strip()


def _check_option(line: str, where: str) -> None:
    option = re.split(r"[=\s]", line, maxsplit=1)[0]
    if option.startswith(_IGNORED):
        return
    short = option if option.startswith("--") else option[:2]
    reason = _REFUSED.get(short, "options are not accepted; remove the line")
    raise BadRequirements(f"{where}: `{_shown(short)}` is not accepted: {reason}.")


def _pin(requirement: Requirement, where: str) -> str:
    pins = [specifier for specifier in requirement.specifier if specifier.operator == "=="]
    if len(requirement.specifier) != 1 or not pins or pins[0].version.endswith(".*"):
        raise BadRequirements(f"{where}: {requirement.name} has hashes; then it needs one version, as `name==1.2`.")
    return f"{canonicalize_name(requirement.name)}=={pins[0].version}"


def _digest(text: str, where: str) -> str:
    if not _SHA256.fullmatch(text):
        raise BadRequirements(f"{where}: {_shown(text)} is not a SHA-256 hash, as `--hash=sha256:...`.")
    return text


def _table(document: Mapping[str, Any], name: str, file: str) -> Mapping[str, Any]:
    table = document.get(name, {})
    if not isinstance(table, dict):
        raise BadRequirements(f"{file}: [{name}] is not a table.")
    return table


def _check_number(requirements: int, file: str) -> None:
    if requirements > MOST:
        raise BadRequirements(f"{file} has more than {MOST:,} requirements, which is the limit.")


def _reason(line: str, error: InvalidRequirement) -> str:
    if re.match(r"\s*(git|hg|svn|bzr)\+", line) or "://" in line:
        return "it names an address, and " + _INDEXES.split(";")[0]
    if re.match(r"\s*[./~]", line) or line.lower().endswith(_FILES):
        return _FILE
    return str(error).splitlines()[0][:200].rstrip(".")


def _shown(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:80]).replace("`", "'")
