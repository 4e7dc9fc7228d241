"""Row kernels: whether one call for many rows gives the same bits as a call for each, measured before the first row.

Matrix products of many libraries round differently in batches, which depends on the processor and on the number of
rows. Actions that are numbers show it at once. Choices show it only where two of them are almost equal, in one of
millions of steps: such observations are searched for.
"""

import time
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

import numpy as np

from ..models.base import JoinedModel, LoadedModel
from ..simulators.base import Interface, Space
from .model_protocol import Kernel

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ..models.base import Array

#: Scenarios that are compared: with drawn observations, and searches for others where an action changes.
DRAWN_SCENARIOS, SEARCHES = 64, 16
#: Powers of ten of the magnitudes of entries without bounds.
MAGNITUDES = (-1, 3)
#: Observations of a search that are compared, and how many numbers of their type they are away from the last.
NEAREST_OBSERVATIONS, FARTHEST_STEP = 16, 3
#: Halvings of a search besides those for each bit of a number: two observations may be of different magnitudes.
SPARE_HALVINGS = 12
#: Observations that a search may begin with, besides its first.
TRIED_OBSERVATIONS = 8
#: Numbers of rows of a call for which all scenarios are compared, besides the most rows that there are.
THOROUGH_COUNTS = (2, 7, 16)
#: The most bytes of an observation of which so many are made.
LARGEST_OBSERVATION = 1 << 18


def kernel_of(models: Sequence[LoadedModel], interface: Interface, patience: float) -> Kernel:
    """Return how the rows of a model are computed: `rows` if a call for many gives the bits of a call for each.

    ``models``: one for each row; they need a reset afterwards. It is `one` if that is not known after ``patience``
    seconds, and if the model raises an exception.
    """
    if len(models) < 2 or not getattr(models[0], "joins", False) or interface.observation.size > LARGEST_OBSERVATION:
        return "one"
    try:
        joined = cast("Sequence[JoinedModel]", models)
        return "rows" if KernelComparison(joined, interface, time.monotonic() + patience).equal() else "one"
    except Exception:  # an observation that no world makes, or no time left
        return "one"


class KernelComparison:
    """Scenarios of two steps, so that the second has a state that is not the initial one.

    ``first`` and ``second``: their observations; ``until``: when to give up, by the monotonic clock.
    """

    def __init__(self, models: Sequence[JoinedModel], interface: Interface, until: float) -> None:
        self._models, self._until = models, until
        self._dtype, self._entries = np.dtype(interface.action.dtype), interface.action.items
        self._first = draw_observations(interface.observation, DRAWN_SCENARIOS)
        self._second = np.roll(self._first, 1, axis=0)
        self._alone: dict[int, tuple[bytes, bytes]] = {}

    def equal(self) -> bool:
        """Compare every number of rows; raise TimeoutError if it takes too long."""
        most = len(self._models)
        if not self._equal_in_calls_of(most, range(0, DRAWN_SCENARIOS, most)):  # that of nearly all calls
            return False
        near = [found for start in range(0, SEARCHES, most) for found in self._near_changes(start)]
        for first, second in near:
            self._first, self._second = np.concatenate([self._first, first]), np.concatenate([self._second, second])
        scenarios = len(self._first)
        thorough = {most, *THOROUGH_COUNTS}
        return all(
            self._equal_in_calls_of(
                count, range(0, scenarios, count) if count in thorough else [31 * count % scenarios]
            )
            for count in range(most, 1, -1)
        )

    def _equal_in_calls_of(self, count: int, starts: Sequence[int]) -> bool:
        for start in starts:
            scenarios = [at % len(self._first) for at in range(start, start + count)]
            alone = [self._of_one(scenario) for scenario in scenarios]  # before a call that takes as long as all these
            together = self._together(self._first[scenarios], self._second[scenarios])
            if together != tuple(b"".join(answers) for answers in zip(*alone, strict=True)):
                return False
        return True

    def _of_one(self, scenario: int) -> tuple[bytes, bytes]:
        """Return the actions of a scenario that is computed by itself."""
        if scenario not in self._alone:
            self._look_at_the_clock()
            model = self._models[scenario % len(self._models)]
            model.reset(scenario)
            first = model.act(self._first[scenario : scenario + 1])
            self._alone[scenario] = (first, model.act(self._second[scenario : scenario + 1]))
        return self._alone[scenario]

    def _together(self, first: "Array", second: "Array") -> tuple[bytes, bytes]:
        self._look_at_the_clock()
        models = self._models[: len(first)]
        for number, model in enumerate(models):
            model.reset(number)
        answers = models[0].act_together(models, first)
        self._look_at_the_clock()
        return answers, models[0].act_together(models, second)

    def _look_at_the_clock(self) -> None:
        if time.monotonic() > self._until:
            raise TimeoutError

    def _near_changes(self, start: int) -> "Iterator[tuple[Array, Array]]":
        """Yield scenarios like those from ``start`` on, whose second action has an entry that is about to change.

        Only entries that had the same value for two drawn observations are searched: others show each rounding.
        """
        drawn_actions = self._actions(b"".join(self._of_one(scenario)[1] for scenario in range(DRAWN_SCENARIOS)))
        choices = [len(np.unique(entry)) < DRAWN_SCENARIOS for entry in drawn_actions.T]
        if not any(choices):
            return
        part = slice(start, min(start + len(self._models), SEARCHES))
        first, low = self._first[part], self._second[part]
        lowest = self._actions(self._together(first, low)[1])
        high, entries = low, np.zeros(len(low), int)
        for shift in range(1, TRIED_OBSERVATIONS + 1):  # until an observation with another action is found for each
            tried = np.roll(self._first, 1 + shift, axis=0)[part]
            differ = (self._actions(self._together(first, tried)[1]) != lowest) & choices
            found = differ.any(axis=1) & (high == low).reshape(len(low), -1).all(axis=1)
            high, entries = np.where(_each(found, low), tried, high), np.where(found, differ.argmax(axis=1), entries)
        for _ in range(8 * low.dtype.itemsize + SPARE_HALVINGS):  # until no number is between them
            middle = _middle(low, high)
            answers = self._actions(self._together(first, middle)[1])
            same = np.take_along_axis(answers == lowest, entries[:, None], axis=1)[:, 0]
            low, high = np.where(_each(same, low), middle, low), np.where(_each(same, low), high, middle)
        yield first, high
        yield first, low
        if low.dtype.kind == "f":
            random = np.random.default_rng(start)
            for _ in range(2, NEAREST_OBSERVATIONS):
                steps = random.integers(-FARTHEST_STEP, FARTHEST_STEP, low.shape, endpoint=True)
                yield first, (low + steps * np.spacing(low)).astype(low.dtype)

    def _actions(self, answers: bytes) -> "Array":
        return np.frombuffer(answers, self._dtype).reshape(-1, self._entries)


def _each(rows: "NDArray[np.bool_]", like: "Array") -> "NDArray[np.bool_]":
    """Return a value for each row in the form of observations."""
    return rows.reshape(-1, *[1] * (like.ndim - 1))


def _middle(low: "Array", high: "Array") -> "Array":
    between = low.astype(np.float64) / 2 + high.astype(np.float64) / 2
    return (between if low.dtype.kind == "f" else np.floor(between)).astype(low.dtype)


def draw_observations(space: Space, count: int) -> "Array":
    """Draw observations: within their bounds, or a normal number where one of them is missing or huge.

    Every other observation has such numbers of another magnitude, because nothing says which one the world has.
    """
    random = np.random.default_rng(0)
    low, high = np.array(space.low), np.array(space.high)
    bounded = (np.abs(low) < 1e6) & (np.abs(high) < 1e6)
    start, end = np.where(bounded, low, 0), np.where(bounded, high, 0)
    shape = (count, space.items)
    uniform = start + random.random(shape) * (end - start)
    magnitudes = np.where(np.arange(count) % 2, 10 ** random.uniform(*MAGNITUDES, count), 1)
    normal = random.standard_normal(shape) * magnitudes[:, None]
    values = np.where(bounded, uniform, np.clip(normal, low, high))
    if np.dtype(space.dtype).kind in "iub":
        values = np.rint(values)
    return values.astype(space.dtype).reshape(count, *space.shape)
