"""FMU format: a controller for co-simulation by FMI 2.0 or 3.0, stepped once per action by fmpy."""

import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..fmi.description import DESCRIPTION, PAGE, BadFmu, by_causality, described, elements, ports, seed_port, times
from ..fmi.instances import LONGEST, Binary, Port, StepFailed, Wiring, instances
from ..simulators.base import Space
from .base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
    action_bytes,
    importer,
)
from .recurrence import names_of
from .tensors import Tensor, check_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

SUFFIXES = (".fmu",)


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a zip with a model description at its top."""
    if sample.members is not None and DESCRIPTION in sample.members:
        return Recognition(Certainty.CONTENT)
    if sample.suffix in SUFFIXES:  # not to be accepted for its name
        what = "not a zip" if sample.members is None else f"a zip without `{DESCRIPTION}` at its top"
        return Recognition(Certainty.NAME, f"The file is {what}, so it is not an FMU. Export it again ({PAGE}).")
    return None


def load(assignment: Assignment) -> LoadedModel:
    """Read the description, pair its variables with the spaces, and make an instance for each row of a batch."""
    if assignment.files is None or not (assignment.files / DESCRIPTION).is_file():
        raise Misfit(f"the archive has no `{DESCRIPTION}` at its top; pack the folder that it lies in")
    try:
        return FmuModel(described(assignment.files), assignment.files, assignment)
    except (BadFmu, StepFailed) as error:
        raise Misfit(str(error)) from None


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
        if sum(map(elements, chosen)) != count:
            found = f" ({names_of(chosen[:40])})" if chosen else ""
            raise Misfit(
                f"the FMU has {sum(map(elements, chosen))} numbers as {what}s{found}; the dataset has {count}"
                f" ({', '.join(space.names[:40])}): name the {what}s like these, or declare as many in their order"
            )
    return ports(chosen, fmi, what), paired


class FmuModel:
    """Steps an instance per row of a batch: inputs are set, a step is done, outputs are got."""

    def __init__(self, description: Any, folder: Path, assignment: Assignment) -> None:
        import fmpy

        interface, fmi, batch = assignment.interface, description.fmiVersion[0], assignment.batch
        if description.coSimulation.canBeInstantiatedOnlyOncePerProcess and batch > 1:
            raise Misfit("the FMU can have only one instance in a process; run it with a batch of 1")
        read, written, parameters = by_causality(description, "input", "output", "parameter")
        inputs, observed = ports_of(read, interface.observation, fmi, "input")
        outputs, acted = ports_of(written, interface.action, fmi, "output")
        for port in inputs:
            tensor = Tensor(port.suffix, port.dtype, (None, *interface.observation.shape))
            check_input(tensor, interface.observation, batch)
        step, start = times(description.defaultExperiment, assignment.step)
        seed = seed_port(parameters)
        binary = Binary(fmi, description.guid, description.coSimulation.modelIdentifier)
        self._rows = instances(binary, folder, Wiring(inputs, outputs, step, start, seed), batch)
        self._space = interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"fmpy {fmpy.__version__}",
            "fmi": description.fmiVersion,
            "name": str(description.modelName)[:LONGEST],
            "tool": str(description.generationTool or "unknown")[:LONGEST],
            "inputs": f"{names_of(read)[:LONGEST]} ({observed})",
            "outputs": f"{names_of(written)[:LONGEST]} ({acted})",
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
    preload=importer("lxml.etree"),
    forkable=True,
    load=load,
)
