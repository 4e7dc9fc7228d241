"""FMU description: the modelDescription.xml of an untrusted FMU, read by one scan; none of its code is run."""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common.printable import printable
from datasets.versions import xml_scan
from datasets.versions.xml_scan import BadXml

#: The file that describes an FMU (FMI 2.0.4, section 2.3; FMI 3.0.2, section 2.5).
DESCRIPTION = "modelDescription.xml"
#: The folder of the libraries for Linux on x86-64, by major version of FMI.
PLATFORMS: Mapping[str, str] = {"2": "linux64", "3": "x86_64-linux"}
#: Variables of an FMU, and numbers of an array, at most.
VARIABLES, ELEMENTS = 200_000, 4096
#: Types of numbers: the ranges of whole ones; None: any number. An enumeration's range follows from its items.
TYPES: Mapping[str, tuple[int, int] | None] = {
    "Real": None,
    "Float32": None,
    "Float64": None,
    "Integer": (-(2**31), 2**31 - 1),
    "Boolean": (0, 1),
    "Enumeration": (-(2**31), 2**31 - 1),
    **{f"Int{bits}": (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32)},
    **{f"UInt{bits}": (0, 2**bits - 1) for bits in (8, 16, 32)},
    # Values travel as doubles, which are exact up to here.
    "Int64": (-(2**53), 2**53),
    "UInt64": (0, 2**53),
}
_IDENTIFIER = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,199}")
_KINDS = {
    "CoSimulation": "co-simulation",
    "ModelExchange": "model exchange",
    "ScheduledExecution": "scheduled execution",
}
_SHAPED = {"Dimension"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Variable:
    """A variable of an FMU. ``low`` and ``high`` are None without a bound; ``shape`` is None unless it is an array.

    ``start``: its start values as they are written; None: it has none.
    """

    name: str
    type: str
    reference: int
    causality: str
    variability: str
    initial: str
    unit: str
    low: float | None
    high: float | None
    start: str | None
    shape: tuple[int, ...] | None

    @property
    def size(self) -> int:
        """Number of its numbers."""
        return math.prod(self.shape or ())

    @property
    def whole(self) -> bool:
        """Whether it takes whole numbers only."""
        return TYPES[self.type] is not None

    @property
    def settable(self) -> bool:
        """Whether it may be set before the initialization (FMI 2.0.4, table of section 2.2.7; FMI 3.0.2, 2.4.7.4)."""
        if self.causality in {"independent", "calculatedParameter", "structuralParameter"}:
            return False
        return self.variability != "constant" and self.initial != "calculated" and self.start is not None

    def starts(self) -> list[float]:
        """Return the start values, zeros without any. Raises BadXml."""
        words = (self.start or "").split()
        try:
            values = [1.0 if word == "true" else 0.0 if word == "false" else float(word) for word in words]
        except ValueError:
            raise BadXml(f"the start value of its variable {printable(self.name)} is not a number") from None
        if not all(map(math.isfinite, values)):
            raise BadXml(f"the start value of its variable {printable(self.name)} is not finite")
        return values * self.size if len(values) == 1 else (values + [0.0] * self.size)[: self.size]


@dataclass(frozen=True, kw_only=True, slots=True)
class FmuDescription:
    """What an FMU for co-simulation declares. ``step`` and ``start`` in seconds; 0 without a step size."""

    fmi: str
    guid: str
    identifier: str
    name: str
    tool: str
    step: float
    start: float
    variables: Mapping[str, Variable]

    @property
    def library(self) -> str:
        """Path of its library within the FMU."""
        return f"binaries/{PLATFORMS[self.fmi]}/{self.identifier}.so"


@dataclass(slots=True)
class _Draft:
    """A variable while its element is read: attributes, those of its type's element, dimensions."""

    kind: str
    attributes: dict[str, str]
    dimensions: list[Mapping[str, str]] = field(default_factory=list)


class _Reader:
    """Visitor of a model description of FMI 2.0 or 3.0."""

    def __init__(self) -> None:
        self.root: Mapping[str, str] = {}
        self.kinds: dict[str, Mapping[str, str]] = {}
        self.experiment: Mapping[str, str] = {}
        self.types: dict[str, dict[str, str]] = {}
        self.items: dict[str, list[str]] = {}  # values of an enumeration's items, by its name
        self.variables: list[_Draft] = []
        self._type = ""
        self._open = False

    def start(self, name: str, attributes: Mapping[str, str], parents: list[str]) -> None:
        depth, above = len(parents), parents[1] if len(parents) > 1 else ""
        if depth == 0:
            if name != "fmiModelDescription":
                raise BadXml(f"its root is <{printable(name)}>, not <fmiModelDescription>")
            self.root = dict(attributes)
        elif depth == 1 and name in _KINDS:
            self.kinds[name] = dict(attributes)
        elif depth == 1 and name == "DefaultExperiment":
            self.experiment = dict(attributes)
        elif above == "TypeDefinitions":
            self._type_element(name, attributes, depth)
        elif above == "ModelVariables":
            self._variable_element(name, attributes, depth)

    def _type_element(self, name: str, attributes: Mapping[str, str], depth: int) -> None:
        if depth == 2:
            self._type = attributes.get("name", "")
            self.types[self._type] = dict(attributes)
        elif name == "Item":
            self.items.setdefault(self._type, []).append(attributes.get("value", ""))
        elif depth == 3 and self._type in self.types:  # FMI 2.0: the element of the type
            self.types[self._type] |= dict(attributes)

    def _variable_element(self, name: str, attributes: Mapping[str, str], depth: int) -> None:
        if depth == 2:
            if len(self.variables) >= VARIABLES:
                raise BadXml(f"it has more than {VARIABLES:,} variables")
            self.variables.append(_Draft(name, dict(attributes)))
        elif depth == 3 and name in _SHAPED:
            self.variables[-1].dimensions.append(dict(attributes))
        elif depth == 3 and self.variables[-1].kind == "ScalarVariable" and name in (*TYPES, "String"):
            self.variables[-1].kind = name
            self.variables[-1].attributes = {**attributes, **self.variables[-1].attributes}

    def end(self, name: str) -> None:
        """Nothing is done at an element's end."""


def read(chunks: Iterable[bytes]) -> FmuDescription:
    """Read a model description. Raises BadXml if it is not one of an FMU for co-simulation by FMI 2.0 or 3.0."""
    reader = _Reader()
    xml_scan.scan(chunks, reader)
    version = reader.root.get("fmiVersion", "")
    fmi = version.partition(".")[0]
    if fmi not in PLATFORMS:
        raise BadXml(f"it is of FMI {printable(version[:20]) or 'an unknown version'}; export it by FMI 2.0 or 3.0")
    if "CoSimulation" not in reader.kinds:
        found = " and ".join(_KINDS[kind] for kind in reader.kinds) or "nothing"
        raise BadXml(f"it is for {found} only; export it for co-simulation, with its solver")
    identifier = reader.kinds["CoSimulation"].get("modelIdentifier", "")
    if not _IDENTIFIER.fullmatch(identifier):
        raise BadXml(f"its modelIdentifier {printable(identifier)} is not an identifier of C")
    return FmuDescription(
        fmi=fmi,
        guid=reader.root.get("guid" if fmi == "2" else "instantiationToken", ""),
        identifier=identifier,
        name=reader.root.get("modelName", ""),
        tool=reader.root.get("generationTool", ""),
        step=_number(reader.experiment, "stepSize", "DefaultExperiment") or 0.0,
        start=_number(reader.experiment, "startTime", "DefaultExperiment") or 0.0,
        variables=_variables(reader, fmi),
    )


def _variables(reader: _Reader, fmi: str) -> Mapping[str, Variable]:
    starts = {
        draft.attributes.get("valueReference"): draft.attributes.get("start")
        for draft in reader.variables
        if draft.kind.startswith(("Int", "UInt"))
    }
    found: dict[str, Variable] = {}
    for draft in reader.variables:
        name = draft.attributes.get("name", "")
        if name in found:
            raise BadXml(f"it has two variables with the name {printable(name)}")
        found[name] = _variable(draft, name, reader, starts, fmi)
    return found


def _variable(draft: _Draft, name: str, reader: _Reader, starts: Mapping[str | None, str | None], fmi: str) -> Variable:
    declared = reader.types.get(draft.attributes.get("declaredType", ""), {})
    values = {**declared, **draft.attributes}
    low, high = (_number(values, bound, name) for bound in ("min", "max"))
    if draft.kind == "Enumeration":
        items = [int(item) for item in reader.items.get(draft.attributes.get("declaredType", ""), ()) if _whole(item)]
        if items:
            low, high = low if low is not None else min(items), high if high is not None else max(items)
    limits = TYPES.get(draft.kind)
    if draft.kind == "Boolean" and limits is not None:
        low, high = map(float, limits)
    try:
        reference = int(draft.attributes.get("valueReference", ""))
        shape = tuple(_length(dimension, starts) for dimension in draft.dimensions)
    except ValueError:
        raise BadXml(f"the valueReference or a dimension of its variable {printable(name)} is not a number") from None
    if not 0 <= reference < 2**32 or math.prod(shape) > ELEMENTS or any(length < 1 for length in shape):
        raise BadXml(
            f"its variable {printable(name)} has a valueReference or dimensions out of range; an array has 1 to"
            f" {ELEMENTS:,} numbers"
        )
    causality = draft.attributes.get("causality", "local")
    continuous = draft.kind in {"Real", "Float32", "Float64"} and causality not in {"parameter", "structuralParameter"}
    return Variable(
        name=name,
        type=draft.kind,
        reference=reference,
        causality=causality,
        variability=draft.attributes.get("variability", "continuous" if continuous else "discrete"),
        initial=draft.attributes.get("initial", ""),
        unit=values.get("unit", ""),
        low=low,
        high=high,
        start=draft.attributes.get("start"),
        shape=shape or None,
    )


def _length(dimension: Mapping[str, str], starts: Mapping[str | None, str | None]) -> int:
    """Return the length of a dimension: its own, or the start value of the structural parameter that it names."""
    return int(dimension.get("start") or starts.get(dimension.get("valueReference")) or "")


def _whole(text: str) -> bool:
    return re.fullmatch(r"[+-]?[0-9]{1,18}", text) is not None


def _number(values: Mapping[str, Any], name: str, owner: str) -> float | None:
    """Return an attribute as a number; None if it is missing or infinite. Raises BadXml."""
    text = values.get(name)
    if text is None:
        return None
    try:
        number = float(text)
    except ValueError:
        raise BadXml(f"the attribute `{name}` of {printable(owner)} is not a number") from None
    return number if math.isfinite(number) else None
