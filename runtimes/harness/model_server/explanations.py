"""Explanations: which limit or rule of the sandbox a model has met, from its exception or from how its process ended.

A sentence names the limit, the next step and the page that documents it; an exception that has another cause has none.
"""

import errno
import os
import re
import resource
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from types import ModuleType, TracebackType

from ..models.base import Assignment, Misfit, ModelFormat
from ..sandbox.allowances import OPEN_FILES, SCRATCH_FILES, SCRATCH_MB, STACK, TASKS
from .package_hints import package_hint

LIMITS, RULES = "docs/sandbox.md#limits", "docs/sandbox.md#no-network-no-programs-no-files"
ENDS = "docs/sandbox.md#how-a-process-ends"
FILES = "docs/python-models.md#files-and-packages"
#: Words in which libraries of machine code report that they got no memory.
NO_MEMORY = re.compile(r"std::bad_alloc|bad allocation|failed to allocate memory|OOM when allocating", re.IGNORECASE)
#: Modules of the standard library whose frames show what a refused system call was for.
LIBRARY = os.path.dirname(os.__file__)
NETWORK = frozenset(f"{LIBRARY}/{name}.py" for name in ("socket", "ssl", "asyncio/selector_events"))
PROCESSES = frozenset(
    f"{LIBRARY}/{name}.py"
    for name in (
        "subprocess",
        "pty",
        "concurrent/futures/process",
        *(
            f"multiprocessing/{part}"
            for part in ("connection", "context", "managers", "pool", "popen_fork", "popen_spawn_posix", "synchronize")
        ),
    )
)
#: Functions of the standard library, in C, that a model's own line names.
NETWORK_CALLS = frozenset({"socket", "connect", "bind", "sendto", "socketpair", "create_connection"})
PROCESS_CALLS = frozenset({"fork", "forkpty", "execv", "execve", "system", "posix_spawn", "posix_spawnp", "vfork"})
#: Most packages that are named, and exceptions that led to one another.
MOST_PACKAGES, MOST_CAUSES = 12, 8
NO_PROCESSES = (
    "A model starts no programs and no processes: compute in this one, or in threads of"
    " `concurrent.futures.ThreadPoolExecutor`; scenarios run side by side anyway,"
    f" as many as a simulation has `workers` ({RULES})."
)
#: What pickle says of a class or a function that is not where the pickle says it is.
NOT_THERE = re.compile(r"Can't get attribute '(?P<name>[\w.]+)' on <module '(?P<module>[\w.]+)'")
VERSION = ".".join(map(str, sys.version_info[:2]))
NO_NETWORK = f"A model has no network and no sockets: put what it needs into the model ({RULES})."

#: What usually ends a process with a signal.
SIGNALS: Mapping[str, str] = {
    "SIGSEGV": "a fault of machine code: a library of the model, ctypes, or recursion in C beyond the stack"
    f" of {STACK >> 20} MB",
    "SIGBUS": "a fault of machine code, or a mapped file that is too short or lies in a full folder",
    "SIGFPE": "a fault of machine code, such as an integer division by zero",
    "SIGILL": "machine code that this processor does not know, or a library that stopped itself",
    "SIGABRT": "a library that gave up, often because it got no memory; the log has its message",
    "SIGSYS": "a system call that the sandbox does not allow",
    "SIGXFSZ": f"a file beyond {SCRATCH_MB} MB, the largest that a model may write",
    "SIGXCPU": "a limit of processor time",
}


def installed_packages() -> Sequence[str]:
    """Return the names of the packages of this environment."""
    from importlib import metadata  # not at the top: it takes longer to import than this process to start

    return sorted({str(distribution.name) for distribution in metadata.distributions()})


@dataclass(frozen=True, kw_only=True, slots=True)
class Surroundings:
    """The limits in force on a process, None where there is none, and what is installed there.

    ``memory`` is in bytes; None: the process is not confined. ``packages`` is called for the error that names them;
    ``declaration`` returns how the model declares the package of a module that it lacks. ``files``: the model's folder,
    None if it is one file.
    """

    memory: int | None = None
    open_files: int | None = OPEN_FILES
    packages: Callable[[], Sequence[str]] = field(default=installed_packages)
    declaration: Callable[[str], str] = field(
        default=lambda module: package_hint(module, files=None, source=b"", declares=False)
    )
    files: Path | None = None

    @classmethod
    def here(cls, format: ModelFormat | None = None, assignment: Assignment | None = None) -> "Surroundings":
        """Return those of this process, and of its model."""
        limits = (resource.getrlimit(resource.RLIMIT_DATA)[0], resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        memory, files = (None if limit == resource.RLIM_INFINITY else limit for limit in limits)
        if format is None or assignment is None:
            return cls(memory=memory, open_files=files)
        return cls(
            memory=memory,
            open_files=files,
            files=assignment.files,
            declaration=partial(
                package_hint, files=assignment.files, source=assignment.source, declares=format.dependencies
            ),
        )


def explain(error: BaseException, surroundings: Surroundings) -> str:
    """Return the sentence about the limit or rule that an exception comes from; empty if it is the model's own.

    An exception that was raised because of another one, as libraries do, may have the sentence of that one.
    """
    sentence = _explain(error, surroundings)
    for _ in range(MOST_CAUSES):
        cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
        if sentence or cause is None:
            break
        error = cause
        # What was not found may have been looked for in vain, on purpose.
        sentence = "" if isinstance(error, ImportError | FileNotFoundError) else _explain(error, surroundings)
    return sentence


def _explain(error: BaseException, surroundings: Surroundings) -> str:
    if isinstance(error, MemoryError) or (isinstance(error, Exception) and NO_MEMORY.search(str(error))):
        return _memory(surroundings.memory)
    if isinstance(error, ModuleNotFoundError):
        return _missing_module(error, surroundings)
    if isinstance(error, AttributeError | Misfit) and (found := NOT_THERE.search(str(error))):
        return (
            f"The pickle names `{found['name']}` of the module `{found['module']}`, the one that saved it: define it in"
            " a module of its own, import it from there where the model is saved, save it again, and put that module"
            f" beside `model.py` in a zip ({FILES})."
        )
    if isinstance(error, SyntaxError):
        return newer_python(error)
    if isinstance(error, ImportError | AttributeError) and _library_of(error) in sys.stdlib_module_names:
        return f"Python {VERSION} runs here, and its library has no such name: use what {VERSION} has ({FILES})."
    if isinstance(error, RecursionError):
        return (
            f"Python ends a recursion after {sys.getrecursionlimit():,} calls, and the stack has {STACK >> 20} MB:"
            f" use a loop ({LIMITS})."
        )
    if isinstance(error, FileNotFoundError) and isinstance(error.filename, str) and error.filename:
        if surroundings.memory is not None or not os.path.isabs(error.filename):
            return _missing_file(error.filename, surroundings.files)
    if surroundings.memory is None:  # without a sandbox there are no other limits and rules
        return ""
    if isinstance(error, RuntimeError) and "can't start new thread" in str(error):
        return f"A model has at most {TASKS} threads and processes together: use fewer, and join them ({LIMITS})."
    if isinstance(error, ImportError | OSError) and "failed to map segment" in str(error):
        return f"Files that a model wrote are not run or mapped as code: put libraries into its archive ({RULES})."
    return _operating_system(error, surroundings) if isinstance(error, OSError) else ""


def _memory(limit: int | None) -> str:
    if limit is None:
        return f"The machine had no memory left for the model ({LIMITS})."
    return (
        f"The model's process has at most {limit >> 20:,} MB of memory, its libraries included:"
        f" load less, or smaller batches ({LIMITS})."
    )


def newer_python(error: SyntaxError) -> str:
    """Return what a syntax error means that the same file does not have where it was written."""
    return (
        f"Python {VERSION} runs here: if the file runs where you wrote it, write the line in the syntax of"
        f" {VERSION} ({FILES})."
    )


def _library_of(error: ImportError | AttributeError) -> str:
    """Return the module that lacks a name; empty if something else does."""
    if isinstance(error, ImportError):
        return (error.name or "").partition(".")[0]
    return str(getattr(error.obj, "__name__", "")) if isinstance(error.obj, ModuleType) else ""


def _missing_file(name: str, files: Path | None) -> str:
    """Explain a file that is not there: one beside the model, or one of the machine where the model was made."""
    base = os.path.basename(name)
    if files is None:
        return f"A model of one file has no files beside it: send a zip of `model.py` and `{base}` ({FILES})."
    return (
        f'A model sees its own files only: pack `{base}` and open it as `Path(__file__).parent / "{base}"` ({FILES}).'
    )


def _missing_module(error: ModuleNotFoundError, surroundings: Surroundings) -> str:
    try:
        names = surroundings.packages()
    except Exception:  # the model may have replaced what reads them
        names = ()
    listed = ", ".join(names[:MOST_PACKAGES]) + (", ..." if len(names) > MOST_PACKAGES else "")
    there = f" (packages that are there: {listed})" if listed else ""
    return (
        f"`{error.name}` is neither a module of the model nor of a package in its environment{there}:"
        f" put a module of your own beside `model.py` in a zip ({FILES}); if it is of a package,"
        f" {surroundings.declaration(error.name or '')}"
    )


def _operating_system(error: OSError, surroundings: Surroundings) -> str:
    if isinstance(error, socket.gaierror):
        return NO_NETWORK
    match error.errno:
        case errno.EMFILE if surroundings.open_files is not None:
            return f"A model has at most {surroundings.open_files:,} open files: close what it has read ({LIMITS})."
        case errno.ENOSPC | errno.EDQUOT:
            return f"The writable folder has {SCRATCH_MB} MB and {SCRATCH_FILES:,} files at most ({LIMITS})."
        case errno.EFBIG:
            return f"A file that a model writes has at most {SCRATCH_MB} MB ({LIMITS})."
        case errno.EROFS:
            return f"Only the temporary folder can be written, and only where the sandbox has one ({LIMITS})."
        case errno.EPERM | errno.EACCES | errno.ENOSYS:
            return _refused(error)
        case errno.ENOENT if _is_for(error.__traceback__, PROCESSES, PROCESS_CALLS):
            return NO_PROCESSES  # semaphores are files
    return ""


def _refused(error: OSError) -> str:
    """Explain a refused system call by what it was for, as far as the frames of the traceback show it."""
    if _is_for(error.__traceback__, PROCESSES, PROCESS_CALLS):
        return NO_PROCESSES
    if _is_for(error.__traceback__, NETWORK, NETWORK_CALLS):
        return NO_NETWORK
    if error.filename is not None:
        return (
            "A model reads Python, the packages of its environment and its own files, and writes to the temporary"
            f" folder only ({RULES})."
        )
    return f"The sandbox refuses sockets, new processes, file modes and code in writable files ({RULES})."


def _is_for(trace: TracebackType | None, modules: frozenset[str], calls: frozenset[str]) -> bool:
    """Tell whether one of these modules of the standard library, or a last line that calls these, raised the error."""
    last = None
    while trace is not None:
        if trace.tb_frame.f_code.co_filename in modules:
            return True
        last, trace = trace, trace.tb_next
    return last is not None and bool(calls & _names_at(last))


def _names_at(trace: TracebackType) -> frozenset[str]:
    """Return the names that the code of a frame uses in the line that raised."""
    import dis  # not at the top: only errors need it

    code = trace.tb_frame.f_code
    line: int | None = None
    names = set()
    for instruction in dis.get_instructions(code):
        line = instruction.starts_line or line
        if line == trace.tb_lineno and isinstance(instruction.argval, str):
            names.add(instruction.argval)
    return frozenset(names)


def explain_end(how: str) -> str:
    """Return how a model's process ended (`ending` of the runner), with what that usually means and the page."""
    hint = next((text for name, text in SIGNALS.items() if re.search(rf"\b{name}\b", how)), "")
    if "out of memory" in how:
        hint = "give each worker more memory (`placement.memory`), or load less"
    elif how == "killed by SIGKILL":
        hint = "by the model itself, or by the machine because it had no memory left"
    elif how.startswith("it exited with code"):
        hint = "the model or one of its libraries ended the process"
    return f"{how}: {hint} ({ENDS})" if hint else f"{how} ({ENDS})"
