"""Declared dependencies of a model's file: found in it by name, read as text; nothing of the model runs."""

from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import NamedTuple

from common.errors import BadRequirements
from common.top_folder import is_clutter, top_folder
from datasets.versions.archives import files_of
from datasets.versions.archives.decompression import detect_format
from datasets.versions.archives.extraction import SETTING, source_of
from runtimes import formats
from runtimes.dependencies import declaration, lock_files
from runtimes.dependencies.declaration import MODULE, PROJECT, PYLOCK, REQUIREMENTS, UV_LOCK, Declaration
from runtimes.packages import package_case
from runtimes.packages.package_case import MANIFEST, PackageCase, parse_case, read_case, require_templates

#: The most bytes of each file that is read.
_LARGEST = {
    REQUIREMENTS: declaration.LARGEST,
    PROJECT: declaration.LARGEST,
    UV_LOCK: lock_files.LARGEST,
    PYLOCK: lock_files.LARGEST,
    MODULE: declaration.LARGEST,
    MANIFEST: package_case.LARGEST_MANIFEST,
}


def declared(model: Path, format: str, *, largest: int) -> Declaration | None:
    """Return what a model of this format declares to need; None if it declares nothing.

    ``largest``: the most bytes of an archive's files.

    The first of these counts, at the top of an archive: pylock.toml, uv.lock with pyproject.toml, requirements.txt,
    pyproject.toml, the inline metadata of model.py. For some formats the format itself declares what all its models
    need. Raises BadRequirements with file and line.
    """
    model_format = formats.formats()[format]
    if model_format.requirements:
        return Declaration(file=f"the format {format}", requirements=model_format.requirements)
    if model_format.manifest:
        case = case_of(model, largest=largest)
        return Declaration(file=model_format.manifest, requirements=tuple(case.packages))
    if not model_format.dependencies:
        return None
    if detect_format(source_of(model)) is None:
        with open(model, "rb") as file:
            data = file.read(_LARGEST[MODULE])
        return declaration.of_script(data.decode(errors="replace"), MODULE)
    texts = _read(model, largest).texts
    readers: list[Callable[[], Declaration | None]] = []
    if PYLOCK in texts:
        readers.append(lambda: lock_files.of_pylock(texts[PYLOCK]))
    if UV_LOCK in texts and PROJECT in texts:
        readers.append(lambda: lock_files.of_uv_lock(texts[UV_LOCK], texts[PROJECT]))
    if REQUIREMENTS in texts:
        readers.append(lambda: declaration.of_requirements(texts[REQUIREMENTS]))
    if PROJECT in texts:
        readers.append(lambda: declaration.of_pyproject(texts[PROJECT]))
    if MODULE in texts:
        readers.append(lambda: declaration.of_script(texts[MODULE]))
    return next((found for read in readers if (found := read()) is not None), None)


def case_of(model: Path, *, largest: int) -> PackageCase:
    """Return the case of a packaged simulator that a model's file is. Raise BadRequirements."""
    if detect_format(source_of(model)) is None:
        return require_templates(read_case(model))
    read = _read(model, largest)
    text = read.texts.get(MANIFEST)
    if text is None:
        raise BadRequirements(f"The archive has no {MANIFEST} at its top. docs/packages.md says what is in it.")
    return require_templates(parse_case(text), read.paths)


class _Read(NamedTuple):
    """The texts of an archive's files that may declare something, and the paths of all."""

    texts: Mapping[str, str]
    paths: Collection[str]


def _read(archive: Path, largest: int) -> _Read:
    """Read an archive's files at its top, or at that of its one folder."""
    paths = []
    read: dict[str, bytearray] = {}
    firsts: dict[str, str] = {}  # the first file of each folder at the top
    for member in files_of(source_of(archive), largest=largest, limit=SETTING):
        if is_clutter(member.path):
            continue
        paths.append(member.path)
        top, slash, below = member.path.partition("/")
        firsts.setdefault(top, member.path)
        name = below if slash and len(firsts) == 1 else member.path
        if name not in _LARGEST:
            continue
        data = read[member.path] = bytearray()
        for chunk in member.chunks:
            data += chunk
            if len(data) > _LARGEST[name]:
                break
    folder = top_folder(firsts.values())
    texts = {name: _text(name, read[folder + name]) for name in _LARGEST if folder + name in read}
    return _Read(texts, {path.removeprefix(folder) for path in paths})


def _text(name: str, data: bytearray) -> str:
    if len(data) > (limit := _LARGEST[name]) and name != MODULE:  # the metadata of a module stand at its top
        raise BadRequirements(f"{name} has more than {limit:,} bytes.")
    try:
        return data.decode("utf-8-sig", errors="replace" if name == MODULE else "strict")
    except UnicodeDecodeError:
        raise BadRequirements(f"{name} is not UTF-8.") from None


def dependencies_document(declaration: Declaration) -> dict[str, object]:
    """Return what users see of a declaration."""
    requirements = list(declaration.requirements)
    return {"file": declaration.file, "requirements": requirements, "python": declaration.python or None}
