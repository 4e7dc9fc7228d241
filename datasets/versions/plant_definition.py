"""Plant definition: what a `dataset.json` says of its plant, checked against the FMU's description.

The definition replaces members of the template dataset's: interface, metrics, parameters, score, and `plant`, which the
simulator reads.
"""

import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from typing import Any

import msgspec

from common.errors import BadScenario
from common.near_names import near_names, suggestion
from common.printable import printable
from datasets.catalogue.definitions import PARAMS, clipping_metric, metric, steps_metric
from datasets.versions.fmu_description import TYPES, FmuDescription, Variable
from datasets.versions.plants import AGGREGATIONS, Combination, Entry, Plant, PlantMetric, kind_of

#: Numbers of an observation and of an action, steps of a scenario, and entries of every other list, at most.
OBSERVED, ACTED, STEPS, ENTRIES = 4096, 1024, 1_000_000, 200
#: Variables among which a name is looked for that was meant by a misspelt one.
COMPARED = 5000
#: Substeps per step at most, and the longest time that a step may take, in seconds.
SUBSTEPS, LONGEST_STEP = 10_000, 600.0
#: The least of the simulated time of a step, in seconds; the most is its reciprocal.
SHORTEST_STEP = 1e-9
#: The name of the simulated time among signals, and names of metrics that every plant has.
TIME, METRICS = "time", ("return", "length", "clipped_actions", "outcome")
#: Outcomes that tell how a model broke off.
FAULTS = ("failed", "crashed", "timed_out", "invalid")
#: A parameter of integers with this name gets the scenario's seed.
SEED = "seed"

#: Where metrics of a plant come from.
OWNER = "the dataset's owner"
_NAME = re.compile(r"[a-z][a-z0-9_]{0,39}")


Chosen = tuple[Variable, Entry]
Bounds = Callable[[Variable, Entry], tuple[float | None, float | None]]


def definition(plant: Plant, fmu: FmuDescription) -> dict[str, Any]:
    """Return the members of a dataset's definition that follow from its plant. Raises BadScenario."""
    resolver = _Resolver(plant, fmu)
    step, steps = _times(plant, fmu)
    observed, acted = resolver.observation(), resolver.action()
    settable = resolver.parameters({variable.name for variable, _ in acted})
    signals = resolver.signals(acted)
    metrics = resolver.metrics()
    reward = _reward(plant)
    conditions = _conditions(plant)
    read = resolver.read(observed, acted, reward)
    failing = sorted({end.outcome for end in plant.ends if end.failure})
    described: dict[str, Any] = {
        "interface": {
            "observation": _space(observed, "float64", _range, OBSERVED),
            "action": _space(acted, "float32", _allowed, ACTED),
        },
        "metrics": _metrics(plant, steps, resolver.outcomes()),
        "params": {**PARAMS, **{entry.name: _parameter(v, entry) for v, entry in settable if v.shape is None}},
        "score": _score(plant),
        "dt": step,
        "deadline": plant.deadline,
        "plant": {
            "name": fmu.name[:200],
            "tool": fmu.tool[:200],
            "file": plant.file,
            "fmi": fmu.fmi,
            "guid": fmu.guid,
            "identifier": fmu.identifier,
            "step": step,
            "substeps": plant.substeps,
            "steps": steps,
            "start": fmu.start,
            "patience": plant.patience,
            "observation": [name for variable, _ in observed for name, _ in _numbers(variable)],
            "read": [_port(variable) for variable in read],
            "inputs": [_port(variable) for variable, _ in acted],
            "initial": [value for variable, _ in acted for value in variable.starts()],
            "whole": _whole_places(variable for variable, _ in acted),
            "parameters": [_settable(variable, entry) for variable, entry in settable],
            "seed": resolver.seed(),
            "signals": {name: msgspec.to_builtins(signals[name]) for name in signals},
            "reward": msgspec.to_builtins(reward) if reward is not None else None,
            "metrics": {own.name: [own.of, own.by] for own in metrics},
            "ends": conditions,
            "finished": plant.finished,
            "ended": plant.ended,
        },
    }
    if failing:
        described["failure"] = {"metric": "outcome", "in": failing}
    return described


class _Resolver:
    """Finds the variables and signals that a plant names."""

    def __init__(self, plant: Plant, fmu: FmuDescription) -> None:
        self._plant, self._fmu = plant, fmu
        self._names: set[str] = {TIME}  # of numbers that signals, metrics and ends may use
        self._used: list[Variable] = []
        self._acted: set[str] = set()

    def observation(self) -> list[Chosen]:
        return self._chosen(self._plant.observation, "observation", "output")

    def action(self) -> list[Chosen]:
        chosen = self._chosen(self._plant.action, "action", "input")
        for variable, _ in chosen:
            if (variable.causality, variable.variability) != ("parameter", "tunable") and variable.causality != "input":
                raise _bad(
                    f"`action`: {printable(variable.name)} is neither an input of the FMU nor a tunable parameter, but"
                    f" of the causality {printable(variable.causality)}"
                )
        self._acted = {variable.name for variable, _ in chosen}
        return chosen

    def _chosen(self, entries: Sequence[str | Entry] | None, what: str, causality: str) -> list[Chosen]:
        """Return the variables of the list in `dataset.json`, or else all of the FMU's of this causality."""
        if entries is None:
            entries = [
                variable.name
                for variable in self._fmu.variables.values()
                if variable.causality == causality and variable.type in TYPES
            ]
        if not entries:
            others = "any other variables" if causality == "output" else "tunable parameters"
            raise _bad(
                f"`{what}` lists no variable, and the FMU may have no {causality}s of numbers: export it with"
                f" {causality}s, or let `{what}` name {others}"
            )
        chosen = [self._variable(entry, what) for entry in entries]
        names = [variable.name for variable, _ in chosen]
        for name in names:
            if names.count(name) > 1:
                raise _bad(f"`{what}` lists {printable(name)} twice")
        return chosen

    def _variable(self, entry: str | Entry, what: str) -> tuple[Variable, Entry]:
        entry = Entry(entry) if isinstance(entry, str) else entry
        variable = self.variable(entry.name, what)
        if entry.unit is not None and not _is_text(entry.unit, 60):
            raise _bad(f"`{what}`: `unit` of {printable(entry.name)} has up to 60 characters with glyphs")
        low, high = _allowed(variable, entry)
        if low is not None and high is not None and low > high:
            raise _bad(f"`{what}`: the range of {printable(entry.name)} is empty, {low:g} to {high:g}")
        return variable, entry

    def variable(self, name: str, what: str) -> Variable:
        """Return a variable of numbers by its name. Raises BadScenario with similar names."""
        variable = self._fmu.variables.get(name)
        if variable is None:
            near = near_names(name, islice(self._fmu.variables, COMPARED))
            raise _bad(f"`{what}`: the FMU has no variable {printable(name)}", suggestion(near, ""))
        if variable.type not in TYPES:
            raise _bad(f"`{what}`: {printable(name)} is of the type {printable(variable.type)}, which has no numbers")
        if not (_is_text(name, 200) and _is_text(variable.unit, 60)):
            raise _bad(
                f"`{what}`: the name or unit of {printable(name)} is too long, or has characters without a glyph"
            )
        return variable

    def parameters(self, acted: set[str]) -> list[Chosen]:
        """Return what scenarios may set: parameters and start values."""
        chosen = [self._variable(entry, "parameters") for entry in self._plant.parameters]
        _most(chosen, "parameters")
        for variable, entry in chosen:
            if not variable.settable or variable.name in acted:
                reason = "the action sets it" if variable.name in acted else "it has no start value that may be set"
                raise _bad(f"`parameters`: {printable(entry.name)} cannot be set by scenarios: {reason}")
            if variable.name in PARAMS:
                raise _bad(f"`parameters`: every dataset has a parameter {variable.name}; rename the FMU's")
        return chosen

    def signals(self, acted: Sequence[Chosen]) -> Mapping[str, Combination]:
        """Return the named signals, each of which uses variables and those before it."""
        _most(self._plant.signals, "signals")
        self._names |= {name for variable, _ in acted for name, _ in _numbers(variable)}
        for name, combination in self._plant.signals.items():
            if not _NAME.fullmatch(name):
                raise _bad(f"`signals`: {printable(name)} is not a name; it has lower-case letters, digits and _")
            if name in self._fmu.variables or name == TIME:
                raise _bad(f"`signals`: the FMU has a variable {name}, or it is the time; choose another name")
            for used in (*combination.linear, *combination.quadratic):
                self.need(used, f"signals.{name}")
            self._names.add(name)
        return self._plant.signals

    def need(self, name: str, what: str) -> None:
        """Add the variable that a number belongs to, unless it is known. Raises BadScenario if there is none."""
        if name in self._names:
            return
        variable = self.variable(name if name in self._fmu.variables else name.rpartition("[")[0] or name, what)
        numbers = [number for number, _ in _numbers(variable)]
        if name not in numbers:
            raise _bad(f"`{what}`: {printable(name)} is an array; name a number of it, such as {printable(numbers[0])}")
        self._names |= set(numbers)
        self._used.append(variable)

    def metrics(self) -> Sequence[PlantMetric]:
        metrics = self._plant.metrics
        _most(metrics, "metrics")
        names = [own.name for own in metrics]
        for own in metrics:
            if not _NAME.fullmatch(own.name):
                raise _bad(f"`metrics`: {printable(own.name)} is not a name: lower-case letters, digits and _")
            if own.name in METRICS or names.count(own.name) > 1:
                raise _bad(f"`metrics`: {own.name} is there already; every plant has {', '.join(METRICS)}")
            if own.by not in AGGREGATIONS:
                raise _bad(f"`metrics`: `by` is one of {', '.join(AGGREGATIONS)}; not {printable(own.by)}")
            if not (_is_text(own.title, 100) and _is_text(own.unit, 60)):
                raise _bad(f"`metrics`: `title` of {own.name} has up to 100 characters with glyphs, `unit` up to 60")
            self.need(own.of, f"metrics.{own.name}")
        return metrics

    def read(
        self,
        observed: Sequence[Chosen],
        acted: Sequence[Chosen],
        reward: Combination | None,
    ) -> list[Variable]:
        """Return the variables that are got after each step."""
        for name in (*reward.linear, *reward.quadratic) if reward is not None else ():
            self.need(name, "reward")
        for end in self._plant.ends:
            self.need(end.of, "ends")
        inputs = {variable.name for variable, _ in acted}
        chosen = {variable.name: variable for variable, _ in observed}
        chosen |= {variable.name: variable for variable in self._used}
        if both := sorted(inputs & chosen.keys()):
            raise _bad(f"`observation`: {printable(both[0])} is set by the action; observe an output in its place")
        return list(chosen.values())

    def outcomes(self) -> list[str]:
        """Return the names of a scenario's ends."""
        own = [end.outcome for end in self._plant.ends]
        names = dict.fromkeys([*own, self._plant.finished, *([self._plant.ended] if self._plant.ended else [])])
        for name in names:
            if not _NAME.fullmatch(name) or name in FAULTS:
                raise _bad(
                    f"{printable(name)} is not a name of an outcome: it has lower-case letters, digits and _, and is"
                    f" none of {', '.join(FAULTS)}, which tell of models"
                )
        return list(names)

    def seed(self) -> dict[str, Any] | None:
        """Return the parameter that gets a scenario's seed, if the FMU has it and scenarios do not set it."""
        variable = self._fmu.variables.get(SEED)
        own = {entry if isinstance(entry, str) else entry.name for entry in self._plant.parameters}
        if variable is None or SEED in own or variable.causality != "parameter" or variable.shape:
            return None
        fits = variable.settable and "Int" in variable.type and (TYPES[variable.type] or (0, 0))[1] >= 2**31 - 1
        return _port(variable) if fits else None


def _bad(reason: str, hint: str = "") -> BadScenario:
    return BadScenario(f"dataset.json, plant: {reason}.{f' {hint}' if hint else ''}")


def _is_text(text: str, most: int) -> bool:
    """Return whether a text is short enough for pictures, and has no characters that could act."""
    return len(text) <= most and text.isprintable()


def _most(entries: Sequence[Any] | Mapping[str, Any], what: str) -> None:
    if len(entries) > ENTRIES:
        raise _bad(f"`{what}` has {len(entries)} entries; {ENTRIES} at most")


def _times(plant: Plant, fmu: FmuDescription) -> tuple[float, int]:
    """Return the seconds of a step and the number of steps. Raises BadScenario."""
    step = plant.step if plant.step is not None else fmu.step
    if not SHORTEST_STEP <= step <= 1 / SHORTEST_STEP:
        if plant.step is not None:
            raise _bad(f"`step` is {SHORTEST_STEP:g} to {1 / SHORTEST_STEP:g} seconds; not {step:g}")
        raise _bad("neither `step` nor the FMU's DefaultExperiment has a step size in seconds; add a `step`")
    if not 1 <= plant.substeps <= SUBSTEPS:
        raise _bad(f"`substeps` is 1 to {SUBSTEPS:,}")
    if not 0 < plant.patience <= LONGEST_STEP or not 0 < plant.deadline <= LONGEST_STEP:
        raise _bad(
            "`patience` and `deadline`, the seconds that a step of the plant and an action of the model may take, are"
            f" more than 0 and at most {LONGEST_STEP:g}"
        )
    if (plant.steps is None) == (plant.duration is None):
        raise _bad("it has `steps`, their number, or `duration`, in seconds, and not both")
    exact = plant.steps if plant.steps is not None else (plant.duration or 0.0) / step
    exact = min(exact, sys.float_info.max)  # the quotient may be infinite, and the number of steps larger than a float
    steps = round(exact)
    if not 1 <= steps <= STEPS or abs(steps - exact) > 1e-6 * steps:
        raise _bad(f"a scenario has 1 to {STEPS:,} whole steps; `steps` or `duration` / `step` is {exact:g}")
    return step, steps


def _range(variable: Variable, entry: Entry) -> tuple[float | None, float | None]:
    """Return the bounds of a variable, the dataset's or else the FMU's."""
    low, high = variable.low, variable.high
    return entry.low if entry.low is not None else low, entry.high if entry.high is not None else high


def _allowed(variable: Variable, entry: Entry) -> tuple[float | None, float | None]:
    """Return the bounds of what a variable may be set to: whole numbers do not exceed their type."""
    low, high = _range(variable, entry)
    if (limits := TYPES[variable.type]) is None:
        return low, high
    least, most = limits
    return max(least, low) if low is not None else least, min(most, high) if high is not None else most


def _numbers(variable: Variable) -> Iterator[tuple[str, int]]:
    """Yield names and places of a variable's numbers: `x`, or `x[1]`, `x[2]` of an array, counted as Modelica does."""
    if variable.shape is None:
        yield variable.name, 0
        return
    for place, indices in enumerate(product(*(range(1, length + 1) for length in variable.shape))):
        yield f"{variable.name}[{','.join(map(str, indices))}]", place


def _space(chosen: Sequence[Chosen], dtype: str, bounds: Bounds, most: int) -> dict[str, Any]:
    """Return a space of the numbers of variables."""
    names: list[str] = []
    units: list[str] = []
    lows: list[float | None] = []
    highs: list[float | None] = []
    for variable, entry in chosen:
        unit = entry.unit if entry.unit is not None else variable.unit
        low, high = bounds(variable, entry)
        names += [name for name, _ in _numbers(variable)]
        units += [unit[:60]] * variable.size
        lows += [low] * variable.size
        highs += [high] * variable.size
    if len(names) > most:
        raise _bad(f"an observation has up to {OBSERVED:,} numbers, an action {ACTED:,}; name those that are needed")
    return {"dtype": dtype, "shape": [len(names)], "names": names, "units": units, "low": lows, "high": highs}


def _whole_places(variables: Iterable[Variable]) -> list[int]:
    whole = [variable.whole for variable in variables for _ in range(variable.size)]
    return [place for place, is_whole in enumerate(whole) if is_whole]


def _port(variable: Variable) -> dict[str, Any]:
    """Return a variable as the simulator needs it."""
    return {
        "name": variable.name,
        "type": variable.type,
        "valueReference": variable.reference,
        "shape": list(variable.shape) if variable.shape is not None else None,
    }


def _settable(variable: Variable, entry: Entry) -> dict[str, Any]:
    low, high = _allowed(variable, entry)
    return _port(variable) | {"low": low, "high": high}


def _parameter(variable: Variable, entry: Entry) -> dict[str, Any]:
    """Return the parameter of simulations that sets a variable; an array has none."""
    low, high = (None, None) if variable.type == "Boolean" else _allowed(variable, entry)
    unit = entry.unit if entry.unit is not None else variable.unit
    described = f"The FMU's {variable.causality} {variable.name}{f' in {unit}' if unit else ''}, in all scenarios."
    return {"type": kind_of(variable.type), "default": None, "low": low, "high": high, "description": described}


def _reward(plant: Plant) -> Combination | None:
    return Combination(linear={plant.reward: 1.0}) if isinstance(plant.reward, str) else plant.reward


def _conditions(plant: Plant) -> list[dict[str, Any]]:
    _most(plant.ends, "ends")
    for end in plant.ends:
        if end.above is None and end.below is None:
            raise _bad(f"`ends`: the condition on {printable(end.of)} has neither `above` nor `below`")
    return [{"of": end.of, "outcome": end.outcome, "above": end.above, "below": end.below} for end in plant.ends]


def _score(plant: Plant) -> dict[str, Any] | None:
    names = [*(["return"] if plant.reward is not None else []), *(own.name for own in plant.metrics)]
    if plant.score and plant.score not in names:
        raise _bad(
            f"`score` is the name of a metric ({', '.join(names) or 'there is none'}), not {printable(plant.score)}"
        )
    chosen = plant.score or (names[0] if names else "")
    return {"name": chosen, "metric": chosen, "formula": f"the metric {chosen}"} if chosen else None


def _metrics(plant: Plant, steps: int, outcomes: Sequence[str]) -> list[dict[str, Any]]:
    """Return the metrics of every plant around those of this one."""
    found: list[dict[str, Any]] = []
    if plant.reward is not None:
        formula = f"sum of {plant.reward} over the steps" if isinstance(plant.reward, str) else "sum of the rewards"
        found.append(metric("return", "Return", "", formula, "higher", source=OWNER))
    for own in plant.metrics:
        title = own.title or own.name.replace("_", " ").capitalize()
        formula = AGGREGATIONS[own.by].format(own.of)
        found.append(metric(own.name, title, own.unit, formula, own.better, source=OWNER, worst=own.worst))
    outcome = metric("outcome", "Outcome", "", ", ".join(outcomes), source=OWNER)
    return [*found, steps_metric(steps), clipping_metric(), outcome]
