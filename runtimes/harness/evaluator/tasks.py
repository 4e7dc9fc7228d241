"""Task plan: maps a task number to scenario, repetition, seed and parameters, deterministically and without a table.

Order: the sweep's combination changes slowest, then the repetition, then the scenario. A scenario's seed does not
depend on the combination, so that two values of a parameter are compared on equal scenarios.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

#: The most tasks of a simulation; larger plans are refused before any memory is allocated.
LARGEST = 10_000_000
#: Seeds have 63 bits, so that they are positive as signed 64-bit integers.
BITS_63 = (1 << 63) - 1
BITS_64 = (1 << 64) - 1
ROUNDS = 6
#: `model_seeds` of a plan whose models' seeds follow from scenarios and repetitions.
BY_SCENARIO: Final = "scenario"


class TooMany(ValueError):
    """The product of sweep, repetitions and scenarios exceeds the limit for one simulation."""


class Located(msgspec.Struct, frozen=True, kw_only=True):
    """A resolved task number; ``params`` are all parameters, ``swept`` those set by the sweep."""

    index: int
    repeat: int
    seed: int
    params: Mapping[str, Any]
    swept: Mapping[str, Any]


class TaskPlan:
    """A simulation's task plan, parsed from its JSON form. Raises TooMany for more tasks than a simulation has."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._select = plan["select"]
        self._repeat = int(plan.get("repeat", 1))
        self._params: Mapping[str, Any] = plan.get("params") or {}
        self._sweep: Mapping[str, list[Any]] = plan.get("sweep") or {}
        self.scenarios = _selected_count(self._select)
        self.count = self.scenarios * self._repeat * math.prod(len(values) for values in self._sweep.values())
        if self.count > LARGEST:
            raise TooMany(f"{self.count:,} tasks; a simulation has at most {LARGEST:,}")
        self._index = _index_function(self._select, plan.get("total_scenarios"))
        source = f"{plan['seed']}\n{plan['dataset']}\n".encode()
        self._seeds = hashlib.blake2b(source, digest_size=8, person=b"windtunnel.task")
        self._model_seeds = hashlib.blake2b(f"{plan['seed']}\n".encode(), digest_size=8, person=b"windtunnel.host")
        self._by_scenario = plan.get("model_seeds") == BY_SCENARIO
        self._combination = -1
        self._swept: Mapping[str, Any] = {}
        self._all_params: Mapping[str, Any] = self._params

    @property
    def per_combination(self) -> int:
        """Number of consecutive tasks with the same values of the swept parameters."""
        return self.scenarios * self._repeat

    def locate(self, task: int) -> Located:
        """Resolve a task number in constant time; raise IndexError if there is no such task."""
        if not 0 <= task < self.count:
            raise IndexError(f"task {task} of {self.count}")
        quotient, position = divmod(task, self.scenarios)
        combination, repeat = divmod(quotient, self._repeat)
        if combination != self._combination:
            self._set_combination(combination)
        index = self._index(position)
        seed = self.seed(index, repeat)
        return Located(index=index, repeat=repeat, seed=seed, params=self._all_params, swept=self._swept)

    def _set_combination(self, number: int) -> None:
        swept: dict[str, Any] = {}
        quotient = number
        for name in reversed(list(self._sweep)):
            values = self._sweep[name]
            quotient, position = divmod(quotient, len(values))
            swept[name] = values[position]
        self._swept = {name: swept[name] for name in self._sweep}
        self._all_params = {**self._params, **self._swept}
        self._combination = number

    def seed(self, index: int, repeat: int) -> int:
        """Return the seed of a scenario's repetition, the only source of its randomness."""
        hasher = self._seeds.copy()
        hasher.update(b"%d\n%d" % (index, repeat))
        return int.from_bytes(hasher.digest(), "little") & BITS_63

    def model_server_seed(self, task: int) -> int:
        """Return the model server's seed for a task; the scenario's seed cannot be derived from it.

        By the plan's ``model_seeds`` it follows from the scenario and the repetition instead of the number of the task,
        which begins again in each batch of a comparison: else scenarios of different batches share a stream of noise.
        """
        hasher = self._model_seeds.copy()
        if self._by_scenario:
            quotient, position = divmod(task, self.scenarios)
            hasher.update(b"%d\n%d" % (self._index(position), quotient % self._repeat))
        else:
            hasher.update(b"%d" % task)
        return int.from_bytes(hasher.digest(), "little") & BITS_63


def _selected_count(select: Mapping[str, Any]) -> int:
    if "tasks" in select:
        return len(select["tasks"])
    if "sample" in select:
        return int(select["sample"])
    first, end = select["range"]
    return max(0, int(end) - int(first))


def _index_function(select: Mapping[str, Any], total: int | None) -> Callable[[int], int]:
    if "tasks" in select:
        tasks: list[int] = list(select["tasks"])
        return tasks.__getitem__
    if "sample" in select:
        if total is None or not 0 <= select["sample"] <= total:
            raise ValueError("a sample needs a known number of scenarios, at least as many as it draws")
        return Permutation(total, f"{select.get('seed', 0)}").__getitem__
    first = int(select["range"][0])
    return first.__add__


class Permutation:
    """A keyed permutation of [0, size); each element is computed in constant time and without a table.

    A balanced Feistel network of six rounds over the next even number of bits, walked in cycles until it lands inside
    (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002). The round function is the finaliser of splitmix64
    under a key from BLAKE2b. It is for sampling, not for secrecy.
    """

    def __init__(self, size: int, key: str) -> None:
        self._size = size
        self._half = max(1, (max(1, size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        digest = hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS, person=b"windtunnel.pick").digest()
        self._keys = [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(ROUNDS)]

    def __getitem__(self, index: int) -> int:
        if not 0 <= index < self._size:
            raise IndexError(index)
        while True:
            left, right = index >> self._half, index & self._mask
            for key in self._keys:
                left, right = right, left ^ (_mixed(right + key) & self._mask)
            index = left << self._half | right
            if index < self._size:
                return index


def _mixed(value: int) -> int:
    value &= BITS_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & BITS_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & BITS_64
    return value ^ (value >> 31)
