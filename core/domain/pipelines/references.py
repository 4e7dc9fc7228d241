"""References: `{"from": STEP, "output": NAME}` where a submission or a comparison names a model or a dataset."""

from collections.abc import Callable, Mapping
from typing import NamedTuple

import msgspec

from common.errors import Invalid

#: Members that may be a reference, or a list of names and references. All but `dataset` name models.
PLACES = ("model", "dataset", "models", "reference")


class OutputReference(NamedTuple):
    """An output of a step; ``place``: the member of the document where it stands."""

    step: str
    output: str
    place: str

    @property
    def output_of_step(self) -> str:
        """The output, as people name it."""
        return f"{self.output!r} of step {self.step!r}"

    @property
    def kind(self) -> str:
        """Kind that the output has to have: `model` or `dataset`."""
        return "dataset" if self.place == "dataset" else "model"


class _WrittenReference(msgspec.Struct, forbid_unknown_fields=True, rename={"step": "from"}):
    step: str
    output: str


def replace_references(
    document: Mapping[str, object], replacement: Callable[[OutputReference], object]
) -> dict[str, object]:
    """Return a document with something else in place of each reference; the rest is as it was."""
    replaced = dict(document)
    for place in PLACES:
        value = document.get(place)
        if isinstance(value, list):
            replaced[place] = [_replace_one(item, place, replacement) for item in value]
        elif place in document:
            replaced[place] = _replace_one(value, place, replacement)
    return replaced


def _replace_one(value: object, place: str, replacement: Callable[[OutputReference], object]) -> object:
    if not isinstance(value, Mapping):
        return value
    try:
        written = msgspec.convert(value, _WrittenReference)
    except msgspec.ValidationError as error:
        form = '{"from": STEP, "output": NAME}'
        raise Invalid(f"`{place}`: a reference to an output of a step is {form}: {error}.") from None
    return replacement(OutputReference(written.step, written.output, place))


def references_of(document: Mapping[str, object]) -> list[OutputReference]:
    """Return the references of a document, in the order of PLACES."""
    found: list[OutputReference] = []
    replace_references(document, found.append)
    return found


class Placeholders:
    """Names that stand for references while a document is checked by the schema of one without references."""

    def __init__(self) -> None:
        self._names: dict[tuple[str, str], str] = {}
        self._references: dict[object, Mapping[str, str]] = {}

    def insert(self, document: Mapping[str, object]) -> dict[str, object]:
        """Return a document with a name in place of each reference; equal references have equal names."""
        return replace_references(document, self._name)

    def _name(self, reference: OutputReference) -> str:
        key = (reference.step, reference.output)
        name = self._names.setdefault(key, f"output-{len(self._names)}-of-a-step")
        self._references[name] = {"from": reference.step, "output": reference.output}
        return name

    def restore(self, document: Mapping[str, object]) -> dict[str, object]:
        """Return a document with the references again in place of their names."""
        restored = dict(document)
        for place in PLACES:
            value = restored.get(place)
            if isinstance(value, (list, tuple)):
                restored[place] = [self._references.get(item, item) for item in value]
            elif isinstance(value, str):
                restored[place] = self._references.get(value, value)
        return restored
