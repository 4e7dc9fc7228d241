"""Gang program as the user names it: a Python file, an executable, a folder or a zip; and what starts it."""

import os
import re
import stat
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
#: The format of every program but a Python file, and its runtime.
FORMAT, RUNTIME = "gang_program", "native"
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


class _SentProgram(msgspec.Struct):
    gang: _SentGang | None = None
    runtime: str | None = None


def sent_model(model: str | os.PathLike[str], submission: Mapping[str, object], format: str | None = None) -> SentModel:
    """Return how the model of a submission is sent, whose ``format`` a user may have named.

    The program of a gang is one in any format. It keeps its name if the commands of the gang have that. Raise
    WindtunnelError if these name a Python file: it is `model.py`, so that the packages that it declares are found.
    """
    try:
        sent = msgspec.convert(submission, _SentProgram)
    except msgspec.ValidationError:  # which the platform refuses
        return SentModel(format, packed=False)
    gang, source = sent.gang, source_of(model)
    # A packaged case has a command of its own, and a gang only to be sent on other ranks.
    if gang is None or not gang.command or sent.runtime not in {None, RUNTIME}:
        return SentModel(format, packed=False)
    return SentModel(format or _format_of(source), packed=_names_file(source, gang))


def _format_of(source: Source) -> str | None:
    """Return the format of a gang's program; None where the platform knows it: of Python and of a stored model."""
    if isinstance(source, StoredModel):
        return None
    name = source.path.name if isinstance(source, LocalModel) else source.reference
    return None if name.lower().endswith(".py") else FORMAT


def _names_file(source: Source, gang: _SentGang) -> bool:
    """Return whether the commands of a gang have the name of a file, which then has to keep it."""
    if not isinstance(source, LocalModel) or source.path.is_dir():
        return False
    name, commands = source.path.name, (*gang.command, *gang.build)
    words = {word.removeprefix("./") for command in commands for word in re.split(r"[\s;&|<>()'\"]+", command)}
    if name not in words - {PYTHON_FILE, OTHER_FILE}:
        return False
    if name.lower().endswith(".py"):
        raise WindtunnelError(
            f"In its folder the file is named {PYTHON_FILE!r}, not {name!r}: write --command 'python {PYTHON_FILE}',"
            " or send its folder, in which files keep their names."
        )
    return True


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
            f"{model} is not a file here, so how it starts is not known: add --command, such as"
            f" --command ./{OTHER_FILE}"
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
        entries = [entry for entry in archive.infolist() if not entry.is_dir()]
    tops = {entry.filename.partition("/")[0] if "/" in entry.filename else "" for entry in entries}
    top = f"{tops.pop()}/" if len(tops) == 1 and "" not in tops else ""
    return {entry.filename.removeprefix(top): bool(entry.external_attr >> 16 & stat.S_IXUSR) for entry in entries}
