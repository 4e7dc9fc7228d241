"""Gang program as the user names it: a Python file, an executable, a folder or a zip; and what starts it."""

import os
import re
import stat
import zipfile
from collections.abc import Mapping
from pathlib import Path

import msgspec

from windtunnel.errors import WindtunnelError
from windtunnel.folder_files import folder_files
from windtunnel.model_sources import LocalModel, ReferencedModel, source_of

#: How the replicas of a gang find each other; a platform has others too, for hardware that one machine lacks.
COMMUNICATIONS = ("mpi", "torch", "tensorflow", "jax", "none")
#: The format of every program but a Python file.
FORMAT = "gang_program"
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


def format_of(model: str) -> str | None:
    """Return the format to send a program in; None where the platform knows it: of a Python file and a stored model."""
    source = source_of(model)
    sent = source.path.name if isinstance(source, LocalModel) else None
    sent = source.reference if isinstance(source, ReferencedModel) else sent
    return None if sent is None or sent.lower().endswith(".py") else FORMAT


class _SentGang(msgspec.Struct):
    command: list[str] = []
    build: list[str] = []


class _SentProgram(msgspec.Struct):
    gang: _SentGang | None = None


def _gang_of(submission: Mapping[str, object]) -> _SentGang | None:
    try:
        return msgspec.convert(submission, _SentProgram).gang
    except msgspec.ValidationError:  # which the platform refuses
        return None


def program_format(model: str, submission: Mapping[str, object]) -> str | None:
    """Return the format to send a file in: of the program of a gang, as `format_of`; None without a gang."""
    return None if _gang_of(submission) is None else format_of(model)


def names_file(model: str | os.PathLike[str], submission: Mapping[str, object]) -> bool:
    """Return whether the commands of a submission's gang have the name of a file, which then has to keep it.

    Raise WindtunnelError for a Python file: it is `model.py`, so that the packages that it declares are found.
    """
    source, gang = source_of(model), _gang_of(submission)
    if gang is None or not isinstance(source, LocalModel) or source.path.is_dir():
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


def default_start(model: str, communication: str) -> tuple[list[str] | None, list[str]]:
    """Return the commands that compile a program, if it is a source file for MPI, and that start it.

    Raise WindtunnelError if the file does not tell them, also for Fortran, of which the platform has no compiler.
    """
    source = source_of(model)
    path = source.path if isinstance(source, LocalModel) and source.path.is_file() else None
    if path is not None and path.suffix.lower() in FORTRAN:
        raise WindtunnelError(
            f"{model}: the platform's MPI has no compiler for Fortran. Send a program that you have compiled, or name"
            " gfortran among the packages of a case (docs/programs.md#languages)."
        )
    if path is not None and communication == "mpi" and (compiler := COMPILERS.get(path.suffix.lower())) is not None:
        return [compiler, "-O2", path.name, "-o", path.stem, "-lm"], [f"./{path.stem}"]
    return None, default_command(model, communication)


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
