"""Python format: a file, or a zip with ``model.py``, that defines a class ``Model``."""

import codecs
import functools
import math
import struct
import sys
from collections.abc import Callable, Mapping, Sequence
from types import CodeType, ModuleType
from typing import TYPE_CHECKING, Any

from ..simulators.structures import DoesNotFit, box, element_of, flattened
from .base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    NoAction,
    Recognition,
    Sample,
    action_bytes,
    importer,
)
from .shared_imports import import_shared

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from .base import Array

#: The file that a zip has at its top, and words that a file of Python is likely to begin with.
ENTRY, WORDS = "model.py", ("class Model", "import ", "def ")

PAGE = "docs/python-models.md"
#: Entries of an action that are packed one by one, and the types of such answers.
FEW, SEQUENCES = 16, frozenset({list, tuple})
#: Packs the numbers of an answer; None: not an answer of this kind.
Packer = Callable[[Sequence[Any]], bytes | None]
#: The most characters of a description of a space.
LONGEST = 2000


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a zip by its `model.py`, and a file as text that looks like Python."""
    if sample.members is None:
        return Recognition(Certainty.GUESS) if _is_python(sample.head, whole=len(sample.head) == sample.size) else None
    if ENTRY in sample.members:
        return Recognition(Certainty.DECLARED)
    deeper = next((name for name in sample.members if name.endswith(f"/{ENTRY}")), None)
    if deeper is None:
        return None
    reason = f"`{deeper}` lies in a folder of the archive, beside other files: pack that folder alone."
    return Recognition(Certainty.GUESS, refusal=reason)


def _is_python(head: bytes, *, whole: bool) -> bool:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        text = decoder.decode(head, final=whole)  # a head may end within a character
    except UnicodeDecodeError:
        return False
    return "\0" not in text and any(word in text for word in WORDS)


def prepare(assignment: Assignment) -> None:
    """Compile the source without running it, and import the shared libraries that it imports.

    Children forked later only run it.
    """
    source = _source(assignment)
    _code(source)
    action = assignment.interface.action
    _usual_answers(action.dtype, action.shape)
    import_shared(source, assignment.files, assignment.packages)


def load(assignment: Assignment) -> LoadedModel:
    """Run the model's file and create an instance of its class ``Model``."""
    module = _import(assignment)
    model_class = getattr(module, "Model", None)
    if model_class is None:
        names = ", ".join(name for name, value in vars(module).items() if isinstance(value, type)) or "none"
        raise Misfit(f"the file has no class `Model` (its classes: {names}); name your class `Model` ({PAGE})")
    instance = model_class()
    if not callable(getattr(instance, "act", None)):
        raise Misfit(f"the class `Model` has no method `act(self, observation)` ({PAGE})")
    spaces = getattr(model_class, "spaces", ARRAY)
    if not isinstance(spaces, str):  # an attribute of the model's own
        spaces = ARRAY
    if spaces not in LOADED:
        raise Misfit(f"`Model.spaces` is {spaces!r:.60}; it is {' or '.join(map(repr, LOADED))}, or left out ({PAGE})")
    return LOADED[spaces](instance, assignment)


def _import(assignment: Assignment) -> ModuleType:
    """Run the model's file as the module `model`; modules beside it can be imported."""
    code = _code(_source(assignment))
    module = ModuleType("model")
    sys.modules["model"] = module
    module.__file__ = ENTRY
    if assignment.files is not None:
        module.__file__ = str(assignment.files / ENTRY)
        sys.path.insert(0, str(assignment.files))
    exec(code, module.__dict__)
    return module


def _source(assignment: Assignment) -> bytes:
    if assignment.files is None:
        return assignment.source
    try:
        return (assignment.files / ENTRY).read_bytes()
    except OSError:
        raise Misfit(f"the archive has no `{ENTRY}` at its top; pack the folder that it lies in ({PAGE})") from None


@functools.cache  # a zygote compiles for all scenarios
def _code(source: bytes) -> CodeType:
    try:
        return compile(source, "model.py", "exec", dont_inherit=True)
    except (SyntaxError, ValueError) as error:
        line = f" in line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        reason = error.msg if isinstance(error, SyntaxError) else str(error)
        here = ".".join(map(str, sys.version_info[:2]))
        raise Misfit(
            f"the file is not valid Python{line}: {reason}. Python {here} runs here: if the file runs where you"
            f" wrote it, write the line in the syntax of {here} ({PAGE})"
        ) from None


class PythonModel:
    """Calls an instance of the user's class with copies of the observations, which it may keep."""

    def __init__(self, instance: Any, assignment: Assignment) -> None:
        self._act = instance.act
        self._act_batch = getattr(instance, "act_batch", None)
        self._reset = getattr(instance, "reset", None)
        self._space = space = assignment.interface.action
        self._array, self._dtype, self._size, self._pack = _usual_answers(space.dtype, space.shape)
        self._reset_arguments = {
            "observation": assignment.interface.observation,
            "action": assignment.interface.action,
            "params": dict(assignment.params),
        }
        self.info: Mapping[str, str | int | float | bool | None] = {"class": type(instance).__name__}

    def reset(self, seed: int) -> None:
        if self._reset is not None:
            self._reset({"seed": seed, **self._reset_arguments})

    def act_alone(self, observation: "Array") -> bytes:
        """Return the bytes of the action for one observation, which it keeps no reference to."""
        answer = self._act(observation.copy())
        if type(answer) is self._array and answer.dtype == self._dtype and answer.nbytes == self._size:
            return answer.tobytes()
        if type(answer) in SEQUENCES and self._pack is not None and (packed := self._pack(answer)) is not None:
            return packed
        return action_bytes(answer, 1, self._space)

    def act(self, observations: "Array") -> bytes:
        count = len(observations)
        if count == 1:
            return self.act_alone(observations[0])
        if self._act_batch is not None:
            return action_bytes(self._act_batch(observations.copy()), count, self._space)
        try:
            return b"".join(action_bytes(self._act(observation.copy()), 1, self._space) for observation in observations)
        except NoAction as error:
            raise NoAction(f"{error}, for one observation of {count}") from None


class GymnasiumModel:
    """Calls an instance of the user's class with elements of the observation space, as Gymnasium's agents get them.

    Its answers are elements of the action space: an int for a Discrete, an array for a MultiDiscrete, a dict for Dict.
    """

    def __init__(self, instance: Any, assignment: Assignment) -> None:
        self._act = instance.act
        self._act_batch = getattr(instance, "act_batch", None)
        self._array_model = PythonModel(instance, assignment)
        observation, self._space = assignment.interface.observation, assignment.interface.action
        self._observed = observation.gymnasium or box(observation.shape, observation.dtype)
        self._applied = self._space.gymnasium or box(self._space.shape, self._space.dtype)
        self.info: Mapping[str, str | int | float | bool | None] = {
            **self._array_model.info,
            "observation": str(self._observed)[:LONGEST],
            "action": str(self._applied)[:LONGEST],
        }

    def reset(self, seed: int) -> None:
        self._array_model.reset(seed)

    def act(self, observations: "Array") -> bytes:
        elements = [element_of(self._observed, observation.reshape(-1)) for observation in observations]
        if len(elements) > 1 and self._act_batch is not None:
            answers = self._act_batch(elements)
            if not isinstance(answers, Sequence) or len(answers) != len(elements):
                raise NoAction(f"the model answered {type(answers).__name__}, not a list of {len(elements)} actions")
        else:
            answers = [self._act(element) for element in elements]
        return b"".join(map(self._packed, answers))

    def _packed(self, answer: Any) -> bytes:
        try:
            return action_bytes(flattened(self._applied, answer), 1, self._space)
        except DoesNotFit as error:
            raise NoAction(f"the model answered {error}") from None


#: What a class asks for by its attribute `spaces`: arrays of numbers, or elements of the spaces of Gymnasium.
ARRAY = "array"
LOADED: Mapping[str, type[PythonModel] | type[GymnasiumModel]] = {ARRAY: PythonModel, "gymnasium": GymnasiumModel}


@functools.cache  # a zygote makes them for all scenarios
def _usual_answers(
    dtype: str, shape: tuple[int, ...]
) -> "tuple[type[NDArray[np.generic]], np.dtype[np.generic], int, Packer | None]":
    """Return type, data type and bytes of an array that is an action, and the function that packs a list of floats."""
    import numpy as np  # the server reads formats without it

    items = math.prod(shape)
    return np.ndarray, np.dtype(dtype), items * np.dtype(dtype).itemsize, float_packer(dtype, items)


def float_packer(dtype: str, items: int) -> Packer | None:
    """Return a function that packs floats as ``action_bytes`` would, but faster; None if a space has none.

    It returns None for a sequence of anything else, and for floats beyond the range of the type.
    """
    if dtype not in {"float32", "float64"} or items > FEW:
        return None
    pack = struct.Struct(f"={items}{'f' if dtype == 'float32' else 'd'}").pack

    def packed(answer: Sequence[Any]) -> bytes | None:
        if len(answer) != items or set(map(type, answer)) != {float}:
            return None
        try:
            return pack(*answer)
        except OverflowError:
            return None

    return packed


FORMAT = ModelFormat(
    title="Python, a class with act()",
    description=(
        "A file, or a zip or tar with model.py, with a class Model that has act(self, observation), and may have"
        " reset(self, info) and act_batch(self, observations). An archive is unpacked once per node, into the read-only"
        " folder of __file__; extension modules and shared libraries in it can be loaded."
    ),
    runtime="python",
    environment="python",
    isolation="scenario",  # a model is code: a fresh process for each scenario, so that nothing leaks into the next
    suffixes=(".py",),
    recognise=recognise,
    unpacked=True,
    dependencies=True,
    zip_contents=f"`{ENTRY}` at its top",
    preload=importer("numpy.linalg", "numpy.random"),  # most models do, and a scenario's process does not have to
    forkable=True,
    prepare=prepare,
    load=load,
)
