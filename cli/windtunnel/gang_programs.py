"""Gang program as the user names it: a Python file, an executable, a folder or a zip; and what starts it."""

import contextlib
import os
import re
import stat
import tarfile
import zipfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import msgspec

from windtunnel.errors import WindtunnelError
from windtunnel.folder_files import folder_files
from windtunnel.model_sources import LocalModel, ReferencedModel, Source, StoredModel, source_of

#: How the replicas of a gang find each other; a platform has others too, for hardware that one machine lacks.
COMMUNICATIONS = ("mpi", "torch", "tensorflow", "jax", "none")
#: The formats of a program, of one that is a Python file, and of a case of a packaged simulator.
FORMAT, PYTHON, CASE = "gang_program", "python", "package_case"
#: The runtime of such cases, and how their ranks find each other.
CASE_RUNTIME, CASE_COMMUNICATION = "package", "packaged"
#: The file at the top of a folder or zip that makes it such a case.
MANIFEST = "package.json"
#: The suffix of a case that is this file alone.
CASE_SUFFIX = ".case"
#: The dataset of programs, and the one task that is run if no others are asked for.
DATASET, ONE_TASK = "program", {"range": [0, 1]}
#: Names that a single file has in the program's working directory.
PYTHON_FILE, OTHER_FILE = "model.py", "model"
#: Files at the top of a folder or zip that are its entry, the first of them that is there: Python, or executable.
SCRIPTS, EXECUTABLES = ("main.py", "model.py"), ("run", "run.sh")
#: Compilers of the platform's MPI, by the suffixes of source files; it has none of Fortran.
COMPILERS = {".c": "mpicc", ".cc": "mpicxx", ".cpp": "mpicxx", ".cxx": "mpicxx"}
FORTRAN = (".f", ".for", ".f77", ".f90", ".f95", ".f03", ".f08")
#: First bytes of what can be executed: a program for Linux, and a script that names its interpreter.
EXECUTABLE = (b"\x7fELF", b"#!")


@dataclass(frozen=True, slots=True)
class SentModel:
    """How the model of a submission is sent: in which format, None: the platform detects it; a file as an archive."""

    format: str | None
    packed: bool


class _SentGang(msgspec.Struct):
    command: list[str] = []
    build: list[str] = []


class _Case(msgspec.Struct):
    packages: list[object]
    command: list[object]
    ranks: object = 1  # which the platform checks


class _CaseSubmission(msgspec.Struct):
    gang: dict[str, object] | None = None


class _Sent(msgspec.Struct):
    gang: _SentGang | None = None
    format: str | None = None


def sent_model(model: str | os.PathLike[str], submission: Mapping[str, object], format: str | None = None) -> SentModel:
    """Return how the model of a submission is sent; ``format``: the one that a user named, if the submission does not.

    The program of a gang may be any file. It keeps its name, unless the gang's commands have only the one that it would
    be given. Raise WindtunnelError if they have the name of a Python file: it is `model.py`, so that the packages that
    it declares are found.
    """
    source = source_of(model)
    try:
        sent = msgspec.convert(submission, _Sent)
    except msgspec.ValidationError:  # which the platform refuses
        return SentModel(format, packed=False)
    format = format or sent.format
    if isinstance(source, StoredModel):
        return SentModel(format, packed=False)
    if sent.gang is None or not sent.gang.command:
        return SentModel(format or (CASE if is_case(source) else None), packed=False)
    name = source.path.name if isinstance(source, LocalModel) else source.reference
    python = name.lower().endswith(".py")
    packed = isinstance(source, LocalModel) and _keeps_name(source.path, sent.gang, python=python)
    return SentModel(format or (PYTHON if python else FORMAT), packed=packed)


def _keeps_name(path: Path, gang: _SentGang, *, python: bool) -> bool:
    """Return whether a file keeps its name, in an archive. Raise WindtunnelError if Python's is named otherwise."""
    if path.is_dir() or zipfile.is_zipfile(path) or tarfile.is_tarfile(path):
        return False
    commands = (*gang.command, *gang.build)
    words = {word.removeprefix("./") for command in commands for word in re.split(r"[\s;&|<>()'\"]+", command)}
    if path.name not in words or path.name in {PYTHON_FILE, OTHER_FILE}:
        return not python and words.isdisjoint({PYTHON_FILE, OTHER_FILE})
    if python:
        raise WindtunnelError(
            f"In its folder the file is named {PYTHON_FILE!r}, not {path.name!r}: write --command 'python"
            f" {PYTHON_FILE}', or send its folder, in which files keep their names."
        )
    return True


def is_case(source: Source) -> bool:
    """Return whether a folder, zip or `.case` file is a case of a packaged simulator, by its description."""
    return _described_case(source) is not None


def case_members(source: Source, submission: Mapping[str, object]) -> dict[str, object]:
    """Return the members that the platform gives a submission of a case, from its description; else an empty dict.

    Members of a gang that the submission has count before those of the case.
    """
    case = _described_case(source)
    if case is None:
        return {}
    gang = msgspec.convert(submission, _CaseSubmission).gang or {}
    size = 1 if "slots" in gang else case.ranks
    described = {"size": size, "command": case.command, **gang, "communication": CASE_COMMUNICATION}
    return {"runtime": CASE_RUNTIME, "gang": described}


def _described_case(source: Source) -> _Case | None:
    """Return what the description of a case says; None if there is none, or it is not one of a case."""
    if not isinstance(source, LocalModel):
        return None
    path, described = source.path, b""
    with contextlib.suppress(KeyError, OSError, zipfile.BadZipFile):
        if path.is_dir() or path.suffix.lower() == CASE_SUFFIX:
            described = (path / MANIFEST if path.is_dir() else path).read_bytes()
        elif zipfile.is_zipfile(path):
            with zipfile.ZipFile(path) as archive:
                described = archive.read(f"{_top_of(archive)}{MANIFEST}")
    try:
        return msgspec.json.decode(described, type=_Case)
    except msgspec.DecodeError:
        return None


def default_start(model: str, communication: str, build: list[str] | None = None) -> tuple[list[str] | None, list[str]]:
    """Return the commands that compile a program, given or if it is a source file for MPI, and that start it.

    Raise WindtunnelError if the file does not tell them, also for Fortran, of which the platform has no compiler.
    """
    source = source_of(model)
    if build is None and isinstance(source, LocalModel) and source.path.is_file():
        name, stem, suffix = source.path.name, source.path.stem, source.path.suffix.lower()
        if suffix in FORTRAN:
            raise WindtunnelError(
                f"{model}: the platform's MPI has no compiler for Fortran. Send a program that you have compiled, or"
                " name gfortran among the packages of a case (docs/programs.md#languages)."
            )
        if communication == "mpi" and suffix in COMPILERS:
            return [COMPILERS[suffix], "-O2", name, "-o", stem, "-lm"], [f"./{stem}"]
    return build, default_command(model, communication)


def default_command(model: str, communication: str) -> list[str]:
    """Return the command that starts a program, by what it is. Raise WindtunnelError if that does not tell."""
    source = source_of(model)
    if not isinstance(source, LocalModel):
        if isinstance(source, ReferencedModel) and source.reference.lower().endswith(".py"):
            return _python(PYTHON_FILE, communication)
        raise WindtunnelError(
            f"There is no file {model} here. If it is a model that the platform has, then how it starts is not known:"
            f" add --command, such as --command ./{OTHER_FILE}, or name the dataset that it belongs to."
        )
    path = source.path
    if path.is_dir():
        return _entry(path, _programs_of_folder(path), communication)
    if path.suffix.lower() == ".py":
        return _python(PYTHON_FILE, communication)
    if zipfile.is_zipfile(path):
        return _entry(path, _programs_of_zip(path), communication)
    with open(path, "rb") as file:
        if file.read(4).startswith(EXECUTABLE):
            return [f"./{OTHER_FILE}"]
    start = f"./{path.stem}" if path.suffix.lower() in {*COMPILERS, *FORTRAN} else f"'sh {path.name}'"
    raise WindtunnelError(
        f"{path} is neither Python (.py) nor executable (a program for Linux, or a script that begins with #!):"
        f" add --command, such as --command {start}."
    )


def _python(file: str, communication: str) -> list[str]:
    """Return the command of a Python file. With mpi4py's own runner, a rank that raises ends the others too."""
    return ["python", *(["-m", "mpi4py"] if communication == "mpi" else []), file]


def _entry(path: Path, files: Mapping[str, bool], communication: str) -> list[str]:
    """Return the command of the entry among files, which are executable or not."""
    for name in EXECUTABLES:
        if files.get(name):
            return [f"./{name}"]
    for name in SCRIPTS:
        if name in files:
            return _python(name, communication)
    raise WindtunnelError(
        f"{path} has neither {' nor '.join(SCRIPTS)} at its top, nor an executable file named"
        f" {' or '.join(EXECUTABLES)}: add --command, which starts the program in this folder, such as"
        " --command 'python -m mpi4py heat.py'"
    )


def _programs_of_folder(folder: Path) -> dict[str, bool]:
    return {name: os.access(file, os.X_OK) for name, file in folder_files(folder).items()}


def _programs_of_zip(path: Path) -> dict[str, bool]:
    """Return the files of a zip and whether their owner may execute them; if all are in one folder, as seen in that."""
    with zipfile.ZipFile(path) as archive:
        top = _top_of(archive)
        return {
            entry.filename.removeprefix(top): bool(entry.external_attr >> 16 & stat.S_IXUSR)
            for entry in archive.infolist()
            if not entry.is_dir()
        }


def _top_of(archive: zipfile.ZipFile) -> str:
    """Return the one folder that all files of a zip are in, with its slash; empty if there is none."""
    names = [entry.filename for entry in archive.infolist() if not entry.is_dir()]
    tops = {name.partition("/")[0] if "/" in name else "" for name in names}
    return f"{tops.pop()}/" if len(tops) == 1 and "" not in tops else ""
