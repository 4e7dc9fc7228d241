"""FMU format: a controller for co-simulation by FMI 2.0 or 3.0, stepped once per action by fmpy."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..simulators.base import Space
from .base import Assignment, Certainty, LoadedModel, Misfit, ModelFormat, Recognition, Sample, action_bytes
from .fmi import LONGEST, Port, StepFailed, Wiring, instances
from .recurrence import names_of
from .tensors import Tensor, check_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The file that describes an FMU (FMI 2.0.4, section 2.3; FMI 3.0.2, section 2.5).
DESCRIPTION = "modelDescription.xml"
SUFFIXES = (".fmu",)
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


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a zip with a model description at its top."""
    if sample.members is not None and DESCRIPTION in sample.members:
        return Recognition(Certainty.CONTENT)
    if sample.suffix in SUFFIXES:  # not to be accepted for its name
        what = "not a zip" if sample.members is None else f"a zip without `{DESCRIPTION}` at its top"
        return Recognition(Certainty.NAME, f"The file is {what}, so it is not an FMU. Export it again ({PAGE}).")
    return None


def preload() -> None:
    """Import fmpy and the XML parser that it uses."""
    import lxml.etree  # noqa: F401


def load(assignment: Assignment) -> LoadedModel:
    """Read the description, pair its variables with the spaces, and make an instance for each row of a batch."""
    if assignment.files is None or not (assignment.files / DESCRIPTION).is_file():
        raise Misfit(
            f"the archive has no `{DESCRIPTION}` at its top; pack the files, not the folder that contains them"
        )
    return FmuModel(_described(assignment.files), assignment.files, assignment)


def _described(folder: Path) -> Any:
    """Return the description of an FMU for co-simulation that has a library for this machine."""
    import fmpy
    from fmpy.model_description import read_model_description

    try:
        try:
            described = read_model_description(str(folder), validate=False)
        except Exception:  # the reason is what the schema does not allow; exporters' FMUs that work need not be valid
            described = read_model_description(str(folder))
    except Exception as error:
        reason = " ".join(str(error).split())[:LONGEST] or type(error).__name__
        raise Misfit(f"fmpy {fmpy.__version__} does not read the FMU's {DESCRIPTION}: {reason}") from None
    if described.fmiVersion[0] not in ENUMERATIONS:
        raise Misfit(f"the FMU is of FMI {described.fmiVersion}; export it by FMI 2.0 or 3.0")
    if described.coSimulation is None:
        kinds = {"model exchange": described.modelExchange, "scheduled execution": described.scheduledExecution}
        found = " and ".join(name for name, kind in kinds.items() if kind is not None)
        raise Misfit(f"the FMU is for {found} only; export it for co-simulation, with its solver ({PAGE})")
    platform = fmpy.platform if described.fmiVersion.startswith("2") else fmpy.platform_tuple
    binaries = folder / "binaries"
    if not (binaries / platform / f"{described.coSimulation.modelIdentifier}.so").is_file():
        others = ", ".join(sorted(path.name for path in binaries.iterdir())) if binaries.is_dir() else ""
        raise Misfit(
            f"the FMU has no library for {platform}{f', only for {others}' if others else ''}; export it for Linux, or"
            f" compile its sources with `fmpy compile` ({PAGE})"
        )
    return described


def ports_of(variables: Sequence[Any], space: Space, fmi: str, what: str) -> tuple[tuple[Port, ...], str]:
    """Pair variables with the entries of a space; return ports, and how they were paired.

    By name if every entry has a variable of its name: other variables keep their start values, or are ignored. In
    order otherwise; then there have to be as many numbers as entries.
    """
    count = math.prod(space.shape)
    by_name = {variable.name: variable for variable in variables if not variable.dimensions}
    if len(space.names) == count and all(name in by_name for name in space.names):
        chosen, paired = [by_name[name] for name in space.names], "by name"
    else:
        chosen, paired = list(variables), "in order"
        if sum(map(_elements, chosen)) != count:
            found = f" ({names_of(chosen[:40])})" if chosen else ""
            raise Misfit(
                f"the FMU has {sum(map(_elements, chosen))} numbers as {what}s{found}; the dataset has {count}"
                f" ({', '.join(space.names[:40])}): name the {what}s like these, or declare as many in their order"
            )
    grouped: dict[str, tuple[str, str, list[int], list[int]]] = {}
    place = 0
    for variable in chosen:
        dtype, suffix = _type_of(variable, fmi, what)
        _, _, references, places = grouped.setdefault(suffix, (suffix, dtype, [], []))
        references.append(variable.valueReference)
        places.extend(range(place, place + _elements(variable)))
        place += _elements(variable)
    return tuple(Port(suffix, dtype, tuple(refs), tuple(at)) for suffix, dtype, refs, at in grouped.values()), paired


def _elements(variable: Any) -> int:
    return math.prod(variable.shape or ())


def _type_of(variable: Any, fmi: str, what: str) -> tuple[str, str]:
    found = ENUMERATIONS[fmi] if variable.type == "Enumeration" else TYPES.get(variable.type)
    if found is None:
        raise Misfit(f"the FMU's {what} {variable.name} is of the type {variable.type}, which is not a type of numbers")
    return found


class FmuModel:
    """Steps an instance per row of a batch: inputs are set, a step is done, outputs are got."""

    def __init__(self, described: Any, folder: Path, assignment: Assignment) -> None:
        import fmpy

        interface, fmi, batch = assignment.interface, described.fmiVersion[0], assignment.batch
        if described.coSimulation.canBeInstantiatedOnlyOncePerProcess and batch > 1:
            raise Misfit("the FMU can have only one instance in a process; run it with a batch of 1")
        causes: dict[str, list[Any]] = {"input": [], "output": [], "parameter": []}
        for variable in described.modelVariables:
            causes.get(variable.causality, []).append(variable)
        inputs, observed = ports_of(causes["input"], interface.observation, fmi, "input")
        outputs, acted = ports_of(causes["output"], interface.action, fmi, "output")
        for port in inputs:
            tensor = Tensor(port.suffix, port.dtype, (None, *interface.observation.shape))
            check_input(tensor, interface.observation, batch)
        step, start = _times(described.defaultExperiment, assignment.step)
        seed = _seed_port(causes["parameter"])
        try:
            self._rows = instances(described, folder, Wiring(inputs, outputs, step, start, seed), batch)
        except StepFailed as error:
            raise Misfit(str(error)) from None
        self._space = interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"fmpy {fmpy.__version__}",
            "fmi": described.fmiVersion,
            "name": str(described.modelName)[:LONGEST],
            "tool": str(described.generationTool or "unknown")[:LONGEST],
            "inputs": f"{names_of(causes['input'])[:LONGEST]} ({observed})",
            "outputs": f"{names_of(causes['output'])[:LONGEST]} ({acted})",
            "step": step,
            "seed": seed is not None,
        }

    def reset(self, seed: int) -> None:
        for index, row in enumerate(self._rows):
            row.reset(seed + index)

    def act(self, observations: "NDArray[Any]") -> bytes:
        import numpy as np  # the server reads formats without it

        rows = observations.reshape(len(observations), -1)
        actions = np.array([instance.act(row) for instance, row in zip(self._rows, rows, strict=True)])
        with np.errstate(over="ignore"):  # what is too large for the type is infinite, which is not an action
            return action_bytes(actions, len(rows), self._space)


def _times(experiment: Any, step: float | None) -> tuple[float, float]:
    """Return the step size, the dataset's or else the FMU's own, and the start time, both in seconds."""
    try:
        own, start = (
            (float(experiment.stepSize or 0), float(experiment.startTime or 0))
            if experiment is not None
            else (0.0, 0.0)
        )
    except ValueError as error:
        raise Misfit(f"the DefaultExperiment of the FMU's {DESCRIPTION} is not valid: {error}") from None
    chosen = step or own
    if not math.isfinite(chosen) or chosen <= 0:
        raise Misfit(f"neither the dataset nor the FMU has a step size: add a `stepSize` to the FMU's {DESCRIPTION}")
    return chosen, start


def _seed_port(parameters: Sequence[Any]) -> Port | None:
    for variable in parameters:
        dtype, suffix = TYPES.get(variable.type, ("", ""))
        if variable.name == SEED and not variable.dimensions and "int" in dtype and variable.variability != "constant":
            return Port(suffix, dtype, (variable.valueReference,), (0,))
    return None


FORMAT = ModelFormat(
    title="FMU",
    description=(
        "A Functional Mock-up Unit for co-simulation by FMI 2.0 or 3.0, with a library for Linux. Its inputs get the"
        " observation and its outputs are the action, by name or in order; one step is done per action."
    ),
    runtime="fmu",
    environment="fmu",
    packages=("fmpy",),
    isolation="scenario",  # code with memory of its own, like a Python model
    suffixes=SUFFIXES,
    recognise=recognise,
    unpacked=True,
    zip_contents=f"`{DESCRIPTION}` at its top",
    preload=preload,
    load=load,
)
