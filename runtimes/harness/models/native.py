"""Native format: a shared library (C, C++, Rust, ...) with the functions of `runtimes/native/windtunnel_model.h`."""

import _ctypes
import ctypes
import json
import math
import platform
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base import Assignment, Certainty, LoadedModel, Misfit, ModelFormat, Recognition, Sample, Unreadable, action_bytes
from .elf import ElfHeader

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The library's name in its folder, and at the top of an archive.
LIBRARY = "model.so"
SUFFIXES = (".so",)
#: Version of the header's functions, which `windtunnel_create` gets.
VERSION = 1
#: Bytes of the library that are read to see which machine it is for.
HEAD = 1024
DOUBLES = ctypes.POINTER(ctypes.c_double)
#: Result and arguments of each function of the header.
FUNCTIONS: Mapping[str, tuple[Any, tuple[Any, ...]]] = {
    "windtunnel_create": (ctypes.c_void_p, (ctypes.c_char_p,)),
    "windtunnel_reset": (None, (ctypes.c_void_p, ctypes.c_uint64)),
    "windtunnel_act": (ctypes.c_int, (ctypes.c_void_p, DOUBLES, ctypes.c_size_t, DOUBLES, ctypes.c_size_t)),
    "windtunnel_error": (ctypes.c_char_p, (ctypes.c_void_p,)),
}
OPTIONAL = "windtunnel_error"
PAGE = "docs/exporting.md#shared-library"
#: The header of a static position-independent program is that of a library.
PROGRAM = "If it is a program, say `format`: `program`."


class CallFailed(Exception):
    """A function of the library has returned an error."""


def recognise(sample: Sample) -> Recognition | None:
    """Recognise an ELF shared library, and an archive with one at its top."""
    if sample.members is not None:  # of a zip with a `model.py` too, the library is a part
        return Recognition(Certainty.CONTENT) if LIBRARY in sample.members else None
    header = ElfHeader.of(sample.head)
    if header is not None and header.is_library:
        return Recognition(Certainty.CONTENT)
    if sample.suffix in SUFFIXES:  # not to be accepted for its name
        if header is not None and header.is_program:
            return None
        reason = f"The file is not a shared library for Linux (ELF). Build one with `cc -shared -fPIC` ({PAGE})."
        return Recognition(Certainty.NAME, reason)
    return None


def load(assignment: Assignment) -> LoadedModel:
    """Load the library, check its functions, and create a model for each row of a batch."""
    if assignment.files is None or not (path := assignment.files / LIBRARY).is_file():
        raise Misfit(f"the archive has no `{LIBRARY}` at its top; pack the folder that it lies in")
    library = _library(path)
    return NativeModel(library, _functions(library), assignment)


def _library(path: Path) -> ctypes.CDLL:
    """Load the library."""
    with open(path, "rb") as file:
        header = ElfHeader.of(file.read(HEAD))
    here = platform.machine()
    if header is None or not header.is_library:
        raise Misfit(f"the file is not a shared library (ELF, ET_DYN); build one with `cc -shared -fPIC` ({PAGE})")
    if header.machine_name != here:
        raise Misfit(f"the library is for {header.machine_name}, and this machine is {here}; build it for {here}")
    try:
        return ctypes.CDLL(str(path))  # resolves all symbols at once (RTLD_NOW)
    except OSError as error:
        reason = str(error).replace(f"{path}: ", "")
        raise Unreadable(
            f"the library cannot be loaded: {reason}. Link what it needs statically, or send a zip of `{LIBRARY}` and"
            f" the libraries beside it, linked with `-Wl,-rpath,'$ORIGIN'`. {PROGRAM}"
        ) from None


def _functions(library: ctypes.CDLL) -> Mapping[str, Any]:
    """Return a library's functions by name."""
    missing = [name for name in FUNCTIONS if name != OPTIONAL and not hasattr(library, name)]
    if missing:
        raise Misfit(
            f"the library does not export {', '.join(missing)} of `windtunnel_model.h`; in C++ declare them"
            f' `extern "C"`, in Rust `#[no_mangle] pub extern "C"` ({PAGE}). {PROGRAM}'
        )
    functions = {}
    for name, (result, arguments) in FUNCTIONS.items():
        if (function := getattr(library, name, None)) is not None:
            function.restype, function.argtypes = result, arguments
            functions[name] = function
    return functions


class NativeModel:
    """Calls the functions of a library, with one model per row of a batch, so that rows share no memory."""

    def __init__(self, library: ctypes.CDLL, functions: Mapping[str, Any], assignment: Assignment) -> None:
        self._library = library
        self._reset, self._act = functions["windtunnel_reset"], functions["windtunnel_act"]
        self._error = functions.get(OPTIONAL)
        self._space = assignment.interface.action
        description = json.dumps(model_description(assignment), allow_nan=False).encode()
        self._models = list(self._create(functions["windtunnel_create"], description, assignment.batch))
        self.info: Mapping[str, str | int | float | bool | None] = {"interface": VERSION}

    def _create(self, create: Any, description: bytes, count: int) -> Iterator[int]:
        for _ in range(count):
            if (model := create(description)) is None:
                raise Misfit(f"windtunnel_create returned NULL{self._reason(None)}")
            yield model

    def _reason(self, model: int | None) -> str:
        text = self._error(model) if self._error is not None else None
        return f": {text.decode(errors='replace')}" if text else ""

    def unload(self) -> None:
        """Close the library: its variables are new when it is loaded again. Some libraries stay (dlopen(3))."""
        _ctypes.dlclose(self._library._handle)

    def reset(self, seed: int) -> None:
        for row, model in enumerate(self._models):
            self._reset(model, (seed + row) & (2**64 - 1))

    def act(self, observations: "NDArray[Any]") -> bytes:
        import numpy as np  # the server reads formats without it

        rows = np.ascontiguousarray(observations.reshape(len(observations), -1), np.float64)
        # NaN: an element that the library does not set is not an action.
        actions = np.full((len(rows), math.prod(self._space.shape)), np.nan)
        for model, row, action in zip(self._models, rows, actions, strict=True):
            code = self._act(model, row.ctypes.data_as(DOUBLES), row.size, action.ctypes.data_as(DOUBLES), action.size)
            if code != 0:
                raise CallFailed(f"windtunnel_act returned {code}{self._reason(model)}")
        with np.errstate(over="ignore"):  # what is too large for the type is infinite, which is not an action
            return action_bytes(actions, len(rows), self._space)


def model_description(assignment: Assignment) -> dict[str, Any]:
    """Return what `windtunnel_create` gets; a model without a folder of files gets null for it."""
    interface = assignment.interface
    return {
        "version": VERSION,
        "folder": None if assignment.files is None else str(assignment.files),
        "params": dict(assignment.params),
        "observation": interface.observation.describe(),
        "action": interface.action.describe(),
    }


FORMAT = ModelFormat(
    title="Shared library",
    description=(
        "A shared library for Linux (.so), or a zip or tar with model.so and what it needs. It exports the functions of"
        " windtunnel_model.h: windtunnel_create, windtunnel_reset and windtunnel_act. C, C++, Rust and others build it."
    ),
    runtime="native",
    environment="python",  # ctypes is enough
    isolation="scenario",  # code with memory of its own, like a Python model
    forkable=True,
    suffixes=SUFFIXES,
    recognise=recognise,
    unpacked=True,
    placed=LIBRARY,
    zip_contents=f"`{LIBRARY}` at its top",
    load=load,
)
