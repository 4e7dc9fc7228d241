"""Model port: what a format is and what its loader returns, and the checks of a model's inputs and outputs."""

import functools
import importlib
import math
import os
import re
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, Literal, Protocol, runtime_checkable

from ..simulators.base import Interface, Space
from .misfits import Misfit as Misfit
from .misfits import NoAction as NoAction
from .misfits import Unreadable as Unreadable

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .program_process import ProgramProcess

    Array = NDArray[Any]

#: Name of the code that `ModelFormat.compile` has made, beside the placed file.
CODE = "compiled-code"
#: Suffixes of archives, which are recognised by their content.
ARCHIVES = (".zip", ".tar", ".tar.gz", ".tar.bz2", ".tar.xz", ".tar.zst")
#: The most bytes of files that a loader writes to the temporary folder of a confined model, which has 64 MB.
MAX_UNPACKED = 48 << 20


@dataclass(frozen=True, kw_only=True, slots=True)
class Assignment:
    """A model to load, and the interface to load it for. ``scratch`` is a folder that it may write to, or None.

    ``files``: the read-only folder of an archive's files, if the format takes archives, or of the one file that the
    format has placed there; ``source`` is empty then. ``step``: seconds from one action to the next; None: unknown.
    ``confined``: the process is in a sandbox that is sealed. ``on_socket`` connects to a program that is a model server
    itself. ``started``: what the format's `start` has started. ``packages``: the folder of the packages that the model
    has declared, which only the processes of scenarios import.
    """

    source: bytes = b""
    interface: Interface
    batch: int = 1
    params: Mapping[str, Any] = field(default_factory=dict)
    scratch: Path | None = None
    files: Path | None = None
    step: float | None = None
    confined: bool = False
    on_socket: "Callable[[ProgramProcess, socket.socket, Assignment], StartedModel] | None" = None
    started: "StartedModel | None" = None
    packages: Path | None = None

    def folder(self) -> Path:
        """Return an empty folder for the model's own files."""
        if self.scratch is None:
            raise Misfit(
                "the model's library needs a writable folder, and the sandbox of this machine has none;"
                " send a model of a format that is loaded from memory, or run it on another executor"
            )
        folder = self.scratch / "model"
        os.makedirs(folder, exist_ok=True)
        return folder


class LoadedModel(Protocol):
    """A loaded model. ``info`` describes it for people."""

    info: Mapping[str, str | int | float | bool | None]

    def reset(self, seed: int) -> None:
        """Reset the state before a scenario. The global random generators have been seeded already."""

    def act(self, observations: "Array") -> bytes:
        """Map ``[n, *observation shape]`` to the bytes of ``[n, *action shape]``; raise NoAction if invalid."""


@runtime_checkable
class Unloads(Protocol):
    """A model of machine code, which leaves the process when it is unloaded, with all that the code keeps."""

    def unload(self) -> None:
        """Unload the code; the model is not called again."""


class RowModel(LoadedModel, Protocol):
    """A loaded model that may serve many scenarios at once: it draws nothing, and keeps nothing but a state that is fed
    back to it. Models of other formats have no ``row``.
    """

    def row(self) -> "RowModel | None":
        """Return a model with the same parameters and a state of its own; None: this one cannot have several."""


class JoinedModel(RowModel, Protocol):
    """A model that computes the actions of many scenarios in one call, if it ``joins`` them."""

    joins: bool

    def act_together(self, rows: "Sequence[JoinedModel]", observations: "Array") -> bytes:
        """Return the actions of rows, each for its observation, and change their states; an exception changes none."""


class KeepsNothing:
    """A model that keeps nothing from one call to the next, and so is the model of every row."""

    joins = True
    info: Mapping[str, str | int | float | bool | None]
    act: "Callable[[Array], bytes]"

    def reset(self, seed: int) -> None:
        """Do nothing."""

    def row(self) -> "JoinedModel":
        """Return itself."""
        return self

    def act_together(self, rows: "Sequence[JoinedModel]", observations: "Array") -> bytes:
        """Return the actions for the observations."""
        return self.act(observations)


class StartedModel(Protocol):
    """A model whose programs are running, but have not been told anything."""

    def load(self) -> LoadedModel:
        """Load the model and check its inputs and outputs. Raises Misfit with the reason."""


class Certainty(IntEnum):
    """How surely a file is of a format; of several formats, the surest gets the file."""

    GUESS = 1  # text that may well be something else
    NAME = 2  # the suffix of the file's name
    CONTENT = 3  # magic bytes, or the names in a zip
    DECLARED = 4  # a file that is in a zip for this format only, whatever else is in the zip


@dataclass(frozen=True, kw_only=True, slots=True)
class Sample:
    """What formats are recognised by: the first bytes of a file, the names in it if it is an archive, name and size.

    ``folder``: the one folder that all files of the archive are in, with its slash; empty if there is none.
    """

    head: bytes
    size: int
    filename: str = ""  # empty: unknown
    members: tuple[str, ...] | None = None  # None: neither a zip nor a tar
    folder: str = ""

    @property
    def suffix(self) -> str:
        """The suffix of the file's name in lower case, such as ``.onnx``; empty if there is none."""
        return PurePath(self.filename).suffix.lower()

    def entered(self) -> "Sample":
        """Return the same archive as it is once its one folder is entered."""
        below = tuple(name.removeprefix(self.folder) for name in self.members or () if name != self.folder)
        return replace(self, members=below, folder="")


@dataclass(frozen=True, slots=True)
class Recognition:
    """A format's claim to a file. ``refusal``: why such a file cannot be used, and what to send instead."""

    certainty: Certainty
    refusal: str = ""


def importer(*modules: str) -> Callable[[], None]:
    """Return the `preload` of a format that imports these modules, and does nothing else."""

    def preload() -> None:
        for module in modules:
            importlib.import_module(module)

    return preload


@dataclass(frozen=True, kw_only=True, slots=True)
class ModelFormat:
    """A model format. Each module of this package that has a ``FORMAT`` is one; the module's name is the format's.

    Servers import the module too, to recognise and list models: libraries that only the format's environment has are
    imported by `preload` and `load`, which run in a model server's process.
    """

    title: str
    #: What to send, in a sentence or two.
    description: str
    #: The runtime that the format belongs to. Formats of the same runtime need not share an environment.
    runtime: str
    #: Environment of the model servers, and the packages in it besides the harness's own. Formats may share it.
    environment: str
    packages: tuple[str, ...] = ()
    #: How long a model server lives: for a launch, or for a scenario, if a model can remember what was in the last one.
    isolation: Literal["scenario", "launch"] = "launch"
    #: Loads a model and checks its inputs and outputs. Raises Misfit with the reason.
    load: Callable[[Assignment], LoadedModel]
    #: Imports the libraries that models of this format need, before the sandbox is sealed.
    preload: Callable[[], None] = lambda: None
    #: Whether these libraries start no thread and open nothing when they are imported, so that model servers may be
    #: forked from a process that has imported them.
    forkable: bool = False
    #: Does once per model server, before any scenario's process is forked, what needs no code of the model to run.
    prepare: Callable[[Assignment], None] = lambda assignment: None
    #: Starts the programs that the model consists of, in each scenario's process, before it is sealed; None: it has
    #: none. Raises Misfit. Only with isolation "scenario".
    start: Callable[[Assignment], StartedModel] | None = None
    #: Suffixes of file names, in lower case, such as ``.onnx``.
    suffixes: tuple[str, ...] = ()
    #: Further suffixes that its files often have, which do not tell the format: its content does.
    ambiguous_suffixes: tuple[str, ...] = ()
    #: Recognises a file by more than its suffix.
    recognise: Callable[[Sample], Recognition | None] = lambda sample: None
    #: What a zip of this format has in it, for the error about a zip of no format; empty: the format is not a zip.
    zip_contents: str = ""
    #: Whether an archive (zip or tar) is unpacked once per node, into a read-only folder that the loader gets.
    unpacked: bool = False
    #: The name under which a model that is one file is placed in such a folder, too; empty: its loader gets its bytes.
    placed: str = ""
    #: Compiles a placed file to code for this machine, in a process of its own, once per node. The loader finds it as
    #: CODE, unless there is none. None: loading takes no such time.
    compile: Callable[[bytes], bytes] | None = None
    #: Whether any file may be of it, where it is named or is the default. It recognises none.
    any_file: bool = False
    #: Whether a model may declare Python packages that its model servers need.
    dependencies: bool = False
    #: The file that describes a case of a packaged simulator, at the top of an archive, or else the whole model; the
    #: Debian packages that it names become the root of its sandbox. Empty: a model has none.
    manifest: str = ""
    #: Packages that all models of the format need and that the environment does not have: they are resolved with the
    #: operator's indexes, kept and installed as if each model had declared them.
    requirements: tuple[str, ...] = ()
    #: The most bytes of a model that is one file; None: no limit but the server's.
    max_size: int | None = None
    #: The shipped model that a submission without a model runs, by dataset, where its yardstick has another format.
    baselines: Mapping[str, str] = field(default_factory=dict)

    @property
    def accepted_suffixes(self) -> tuple[str, ...]:
        """Suffixes that files of the format may have, for people; those of archives too."""
        return (*self.suffixes, *self.ambiguous_suffixes, *(ARCHIVES if self.unpacked else ()))

    def judge(self, sample: Sample) -> Recognition | None:
        """Return the surest claim to a file: by its content or, unless it is a zip, by its suffix.

        An archive whose files are all in one folder is also seen from within it.
        """
        claims = [self._claim(sample), *([self._claim(sample.entered())] if sample.folder else ())]
        return max(filter(None, claims), key=lambda claim: (claim.certainty, not claim.refusal), default=None)

    def _claim(self, sample: Sample) -> Recognition | None:
        claim = self.recognise(sample)
        if claim is not None and claim.certainty >= Certainty.NAME:
            return claim
        if sample.members is None and sample.suffix in self.suffixes:
            return Recognition(Certainty.NAME)
        return claim


def format_named(name: str) -> ModelFormat:
    """Return a format of this package by its name; exit if there is none."""
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise SystemExit(f"unknown model format: {name!r}")
    format: ModelFormat = importlib.import_module(f".{name}", __package__).FORMAT
    return format


def action_bytes(answer: Any, count: int, space: Space) -> bytes:
    """Return an answer as the bytes of ``count`` actions; raise NoAction if its size, its type or a value is wrong.

    Floats of any width are converted to a float space. Whole numbers are taken for every space that has exactly their
    values, whatever their width; floats are taken for a space of integers if they are whole numbers. What is no value
    of a choice, as of a Discrete, is left to the simulator, which clips and rounds it.
    """
    if answer is None:  # numpy would make it a NaN
        raise NoAction("the model answered nothing (None)")
    import numpy as np  # the server reads formats without it

    dtype = _type(space.dtype)
    try:
        array = np.asarray(answer)
        if array.dtype.kind not in "fiub":  # text, or objects that may be numbers
            array = _converted(array, dtype)
        _check_size(array, count, space)  # before numbers are converted, which refuses scores for a space of integers
        if array.dtype != dtype:
            array = _converted(array, dtype)
    except (TypeError, ValueError, OverflowError) as error:
        raise NoAction(
            f"the model answered {type(answer).__name__}, which is not an array of numbers: {error}"
        ) from None
    return array.tobytes()


@functools.cache  # called at every step
def _type(dtype: str) -> "np.dtype[Any]":
    import numpy as np

    return np.dtype(dtype)


def _check_size(array: "Array", count: int, space: Space) -> None:
    if array.size != count * space.items:
        expected = space.shape if count == 1 else (count, *space.shape)
        advice = scores_advice(array.size // count, space)
        raise NoAction(f"the model answered an array of shape {array.shape}, not {expected}{advice}")


def scores_advice(numbers: int, space: Space) -> str:
    """Return the advice for a model that gives a score for each value of a discrete action; "" for any other.

    ``numbers``: those of an answer. It continues a sentence.
    """
    if numbers < 2 or math.prod(space.shape) != 1 or (space.low[0], space.high[0]) != (0, numbers - 1):
        return ""
    return (
        f"; if these are the scores of the {numbers} actions, export the index of the best one (add ArgMax, such as"
        " torch.argmax(scores, dim=1))"
    )


def _converted(array: "Array", dtype: "np.dtype[Any]") -> "Array":
    """Convert numbers to a space's type; raise NoAction with the first value that the type does not have."""
    import numpy as np

    kinds = array.dtype.kind + dtype.kind
    if kinds[0] not in "fiub" or kinds in {"ff", "bf", "bi", "bu"}:
        return array.astype(dtype)
    if kinds[1] == "f":
        exact = np.abs(array.astype(np.float64)) <= _exact_integers(dtype)
    else:
        limits = (0, 1) if kinds[1] == "b" else (np.iinfo(dtype).min, np.iinfo(dtype).max)
        if kinds[0] == "f":  # a type's greatest value may not be a float, but the next number is
            wide = array.astype(np.float64)
            exact = (wide >= limits[0]) & (wide < float(limits[1] + 1)) & (wide == np.rint(wide))
        else:
            exact = (array >= limits[0]) & (array <= limits[1])
    if not exact.all():
        value = array.reshape(-1)[~exact.reshape(-1)][0]
        raise NoAction(f"the model answered {value} ({array.dtype}), which is not a value of the space's {dtype}")
    return array.astype(dtype)


@functools.cache  # called at every step
def _exact_integers(dtype: "np.dtype[Any]") -> int:
    """Return the number up to which a type of floats has all integers."""
    import numpy as np

    return int(2 ** (np.finfo(dtype).nmant + 1))


def format_type(dtype: str, shape: Sequence[Any]) -> str:
    """Format a tensor type for people, such as ``float32[n,32]``."""
    sizes = ("n" if size is None or not isinstance(size, int) or size < 0 else str(size) for size in shape)
    return f"{dtype}[{','.join(sizes)}]"
