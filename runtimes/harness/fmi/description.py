"""Description of an FMU: what its modelDescription.xml declares, checked against what this machine can run."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .instances import LONGEST, Port

#: The file that describes an FMU (FMI 2.0.4, section 2.3; FMI 3.0.2, section 2.5).
DESCRIPTION = "modelDescription.xml"
#: Numpy's type of each type of variables, and the ending of the functions that set and get them. FMI 2.0 has Real and
#: Integer, and its enumerations are of the type Integer; those of FMI 3.0 are of the type Int64.
TYPES: Mapping[str, tuple[str, str]] = {
    "Real": ("float64", "Real"),
    "Integer": ("int32", "Integer"),
    "Boolean": ("bool", "Boolean"),
    "Float32": ("float32", "Float32"),
    "Float64": ("float64", "Float64"),
    **{
        name: (name.lower(), name)
        for name in ("Int8", "UInt8", "Int16", "UInt16", "Int32", "UInt32", "Int64", "UInt64")
    },
}
ENUMERATIONS: Mapping[str, tuple[str, str]] = {"2": ("int32", "Integer"), "3": ("int64", "Int64")}
#: A parameter of integers with this name gets the scenario's seed.
SEED = "seed"
PAGE = "docs/exporting.md#fmu"


class BadFmu(Exception):
    """The FMU cannot be used; the text is for its author."""


def described(folder: Path) -> Any:
    """Return the description of an FMU for co-simulation that has a library for this machine. Raises BadFmu."""
    import fmpy
    from fmpy.model_description import read_model_description

    try:
        try:
            description = read_model_description(str(folder), validate=False)
        except Exception:  # the reason is what the schema does not allow; exporters' FMUs that work need not be valid
            description = read_model_description(str(folder))
    except Exception as error:
        reason = " ".join(str(error).split())[:LONGEST] or type(error).__name__
        raise BadFmu(f"fmpy {fmpy.__version__} does not read the FMU's {DESCRIPTION}: {reason}") from None
    if description.fmiVersion[0] not in ENUMERATIONS:
        raise BadFmu(f"the FMU is of FMI {description.fmiVersion}; export it by FMI 2.0 or 3.0")
    if description.coSimulation is None:
        kinds = {"model exchange": description.modelExchange, "scheduled execution": description.scheduledExecution}
        found = " and ".join(name for name, kind in kinds.items() if kind is not None)
        raise BadFmu(f"the FMU is for {found} only; export it for co-simulation, with its solver ({PAGE})")
    platform = fmpy.platform if description.fmiVersion.startswith("2") else fmpy.platform_tuple
    binaries = folder / "binaries"
    if not (binaries / platform / f"{description.coSimulation.modelIdentifier}.so").is_file():
        others = ", ".join(sorted(path.name for path in binaries.iterdir())) if binaries.is_dir() else ""
        raise BadFmu(
            f"the FMU has no library for {platform}{f', only for {others}' if others else ''}; export it for Linux, or"
            f" compile its sources with `fmpy compile` ({PAGE})"
        )
    return description


def by_causality(description: Any, *causalities: str) -> tuple[list[Any], ...]:
    """Return the variables of each causality, in the order of the file."""
    found: dict[str, list[Any]] = {causality: [] for causality in causalities}
    for variable in description.modelVariables:
        found.get(variable.causality, []).append(variable)
    return tuple(found.values())


def elements(variable: Any) -> int:
    """Return the number of numbers of a variable."""
    return math.prod(variable.shape or ())


def type_of(variable: Any, fmi: str, what: str) -> tuple[str, str]:
    """Return numpy's type of a variable, and the ending of its functions. Raises BadFmu for what is not a number."""
    found = ENUMERATIONS[fmi] if variable.type == "Enumeration" else TYPES.get(variable.type)
    if found is None:
        raise BadFmu(f"the FMU's {what} {variable.name} is of the type {variable.type}, which is not a type of numbers")
    return found


def ports(variables: Sequence[Any], fmi: str, what: str) -> tuple[Port, ...]:
    """Group variables by type; their numbers have the places in a row that follow from their order. Raises BadFmu."""
    grouped: dict[str, tuple[str, str, list[int], list[int]]] = {}
    place = 0
    for variable in variables:
        dtype, suffix = type_of(variable, fmi, what)
        _, _, references, places = grouped.setdefault(suffix, (suffix, dtype, [], []))
        references.append(variable.valueReference)
        places.extend(range(place, place + elements(variable)))
        place += elements(variable)
    return tuple(Port(suffix, dtype, tuple(refs), tuple(at)) for suffix, dtype, refs, at in grouped.values())


def times(experiment: Any, step: float | None) -> tuple[float, float]:
    """Return the step size, the dataset's or else the FMU's own, and the start time, in seconds. Raises BadFmu."""
    try:
        own, start = (
            (float(experiment.stepSize or 0), float(experiment.startTime or 0))
            if experiment is not None
            else (0.0, 0.0)
        )
    except ValueError as error:
        raise BadFmu(f"the DefaultExperiment of the FMU's {DESCRIPTION} is not valid: {error}") from None
    chosen = step or own
    if not math.isfinite(chosen) or chosen <= 0:
        raise BadFmu(f"neither the dataset nor the FMU has a step size: add a `stepSize` to the FMU's {DESCRIPTION}")
    return chosen, start


def seed_port(parameters: Sequence[Any]) -> Port | None:
    """Return the parameter that gets a scenario's seed, if the FMU has it."""
    for variable in parameters:
        dtype, suffix = TYPES.get(variable.type, ("", ""))
        if variable.name == SEED and not variable.dimensions and "int" in dtype and variable.variability != "constant":
            return Port(suffix, dtype, (variable.valueReference,), (0,))
    return None
