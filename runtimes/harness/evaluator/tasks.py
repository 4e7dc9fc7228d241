"""Task numbers: which scenario, repetition, seed and parameters each stands for; the same wherever it is asked.

Order: the sweep's combination changes slowest, then the repetition, then the scenario. A scenario's seed does not
depend on the combination, so that two values of a parameter are compared on the same situations.
"""

import hashlib
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: More than this is refused before anything is built.
LARGEST = 10_000_000
#: Seeds are positive in every language.
BITS_63 = (1 << 63) - 1
BITS_64 = (1 << 64) - 1
ROUNDS = 6


class TooMany(ValueError):
    """The product of sweep, repetitions and scenarios is larger than a simulation may be."""


@dataclass(frozen=True, slots=True)
class Located:
    """What one task number stands for; ``params`` are all parameters, ``swept`` those that the sweep set."""

    index: int
    repeat: int
    seed: int
    params: Mapping[str, Any]
    swept: Mapping[str, Any]


class Plan:
    """A task plan, read once and asked often."""

    def __init__(self, plan: Mapping[str, Any]) -> None:
        self._select = plan["select"]
        self._repeat = int(plan.get("repeat", 1))
        self._params: Mapping[str, Any] = plan.get("params") or {}
        self._sweep: Mapping[str, list[Any]] = plan.get("sweep") or {}
        self.scenarios = _chosen(self._select)
        self.count = self.scenarios * self._repeat * math.prod(len(values) for values in self._sweep.values())
        if self.count > LARGEST:
            raise TooMany(f"{self.count:,} tasks; a simulation has at most {LARGEST:,}")
        self._index = _chooser(self._select, plan.get("total_scenarios"))
        source = f"{plan['seed']}\n{plan['dataset']}\n".encode()
        self._seeds = hashlib.blake2b(source, digest_size=8, person=b"windtunnel.task")
        self._model_seeds = hashlib.blake2b(f"{plan['seed']}\n".encode(), digest_size=8, person=b"windtunnel.host")
        self._combination = -1
        self._swept: Mapping[str, Any] = {}
        self._all: Mapping[str, Any] = self._params

    def locate(self, task: int) -> Located:
        """Tell what a task stands for, in constant time."""
        if not 0 <= task < self.count:
            raise IndexError(f"task {task} of {self.count}")
        rest, at = divmod(task, self.scenarios)
        combination, repeat = divmod(rest, self._repeat)
        if combination != self._combination:
            self._combine(combination)
        index = self._index(at)
        return Located(index, repeat, self.seed(index, repeat), self._all, self._swept)

    def _combine(self, number: int) -> None:
        swept: dict[str, Any] = {}
        rest = number
        for name in reversed(list(self._sweep)):
            values = self._sweep[name]
            rest, at = divmod(rest, len(values))
            swept[name] = values[at]
        self._swept = {name: swept[name] for name in self._sweep}
        self._all = {**self._params, **self._swept}
        self._combination = number

    def seed(self, index: int, repeat: int) -> int:
        """Return the seed of a situation: all of its chance."""
        hasher = self._seeds.copy()
        hasher.update(b"%d\n%d" % (index, repeat))
        return int.from_bytes(hasher.digest(), "little") & BITS_63

    def model_server_seed(self, task: int) -> int:
        """Return the seed that a model's model server is given, from which the situation's cannot be told."""
        hasher = self._model_seeds.copy()
        hasher.update(b"%d" % task)
        return int.from_bytes(hasher.digest(), "little") & BITS_63


def count(plan: Mapping[str, Any]) -> int:
    """Return the number of tasks; raise TooMany before building anything."""
    return Plan(plan).count


def locate(plan: Mapping[str, Any], task: int) -> Located:
    """Tell what one task stands for."""
    return Plan(plan).locate(task)


def _chosen(select: Mapping[str, Any]) -> int:
    if "tasks" in select:
        return len(select["tasks"])
    if "sample" in select:
        return int(select["sample"])
    first, end = select["range"]
    return max(0, int(end) - int(first))


def _chooser(select: Mapping[str, Any], total: int | None) -> Callable[[int], int]:
    if "tasks" in select:
        tasks: list[int] = list(select["tasks"])
        return tasks.__getitem__
    if "sample" in select:
        if total is None or not 0 <= select["sample"] <= total:
            raise ValueError("a sample is drawn from a known number of scenarios, none of them twice")
        return Permutation(total, f"{select.get('seed', 0)}").__getitem__
    first = int(select["range"][0])
    return first.__add__


class Permutation:
    """A keyed shuffling of [0, size) of which any element is had in constant time and no memory.

    A balanced Feistel network of six rounds over the next even number of bits, walked in cycles until it lands inside
    (Black and Rogaway, Ciphers with Arbitrary Finite Domains, 2002). The round function is the finaliser of splitmix64
    under a key from BLAKE2b. It serves statistics, not secrecy.
    """

    def __init__(self, size: int, key: str) -> None:
        self._size = size
        self._half = max(1, (max(1, size - 1).bit_length() + 1) // 2)
        self._mask = (1 << self._half) - 1
        digest = hashlib.blake2b(key.encode(), digest_size=8 * ROUNDS, person=b"windtunnel.pick").digest()
        self._keys = [int.from_bytes(digest[8 * i : 8 * i + 8], "little") for i in range(ROUNDS)]

    def __getitem__(self, at: int) -> int:
        if not 0 <= at < self._size:
            raise IndexError(at)
        while True:
            left, right = at >> self._half, at & self._mask
            for key in self._keys:
                left, right = right, left ^ (_mixed(right + key) & self._mask)
            at = left << self._half | right
            if at < self._size:
                return at


def _mixed(value: int) -> int:
    value &= BITS_64
    value = ((value ^ (value >> 30)) * 0xBF58476D1CE4E5B9) & BITS_64
    value = ((value ^ (value >> 27)) * 0x94D049BB133111EB) & BITS_64
    return value ^ (value >> 31)
