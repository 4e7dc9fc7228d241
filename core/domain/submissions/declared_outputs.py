"""Declared outputs: which files of a simulation's program become models or datasets at its end. Pure decisions."""

from collections.abc import Mapping, Sequence
from typing import Literal, NamedTuple

import msgspec

from common.errors import Invalid
from core.domain.submissions.stored_documents import decode_document

#: Most outputs that a submission declares.
MOST_OUTPUTS = 20


class DeclaredOutput(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "as"}):
    """A file in `$WINDTUNNEL_OUTPUT`, and what it becomes; without a ``file`` all results and artifacts, as a dataset.

    ``name``: of the model or the dataset; None: the name of the file, of a dataset the name of the output. ``task``:
    whose file it is; None: of any, as long as all that leave it leave the same bytes. ``format`` and ``runtime``: of a
    model.
    """

    file: str | None = None
    kind: Literal["model", "dataset"]
    name: str | None = None
    format: str | None = None
    runtime: str | None = None
    task: int | None = None
    tags: Sequence[str] = ()


class LeftFile(NamedTuple):
    """A file that a task left; ``digest``: `sha256:` and hexadecimal digits."""

    task: int
    digest: str


class MadeOutput(msgspec.Struct, frozen=True, kw_only=True, rename={"kind": "as"}):
    """The model or the dataset that an output became, or why there is none.

    ``task`` and ``digest``: of the ``file``; ``id``: of the model or of the dataset's version; ``reference``: by which
    requests name exactly this model or dataset.
    """

    kind: Literal["model", "dataset"]
    file: str | None
    task: int | None = None
    digest: str | None = None
    id: str | None = None
    name: str | None = None
    reference: str | None = None
    error: str | None = None


def declared_outputs(outputs: Mapping[str, object]) -> dict[str, DeclaredOutput]:
    """Return the outputs of a submission. Raise Invalid for what cannot be made."""
    try:
        declared = msgspec.convert(outputs, dict[str, DeclaredOutput])
    except msgspec.ValidationError as error:
        raise Invalid(f"`outputs`: {error}") from None
    for name, output in declared.items():
        if output.kind == "dataset" and (output.format or output.runtime):
            raise Invalid(f"`outputs.{name}`: `format` and `runtime` are of models; a dataset has neither.")
        if output.file is None and (output.kind == "model" or output.task is not None):
            raise Invalid(
                f"`outputs.{name}`: name the `file` in $WINDTUNNEL_OUTPUT; without one it is all results, as a dataset."
            )
        if output.file is not None and {"", ".", ".."} & {*output.file.split("/")}:
            raise Invalid(f"`outputs.{name}.file`: write the path in $WINDTUNNEL_OUTPUT, such as out/policy.onnx.")
    return declared


def made_outputs(text: str | None) -> dict[str, MadeOutput]:
    """Return the outputs that a simulation's row stores. Raise UnreadableRow if they cannot be read."""
    return decode_document(text, dict[str, MadeOutput]) if text else {}


def choose_file(output: DeclaredOutput, left: Sequence[LeftFile]) -> LeftFile:
    """Return the file that becomes an output, of those that tasks which are `ok` left under its name.

    Raise Invalid without one, and for several with different bytes.
    """
    candidates = [file for file in left if output.task in {None, file.task}]
    if not candidates:
        if output.task is None:
            raise Invalid(f"No task that is ok has left a file {output.file!r} in $WINDTUNNEL_OUTPUT.")
        raise Invalid(f"Task {output.task} is not ok, or has left no file {output.file!r} in $WINDTUNNEL_OUTPUT.")
    first = candidates[0]
    if other := next((file for file in candidates if file.digest != first.digest), None):
        raise Invalid(
            f"The tasks {first.task} and {other.task} left different files {output.file!r}: name the `task` of the"
            " output."
        )
    return first


def failures_of(made: Mapping[str, MadeOutput]) -> str | None:
    """Return the sentence about outputs that were not made; None: all were."""
    failed = [f"{name}: {output.error}" for name, output in made.items() if output.error is not None]
    return f"not every output was made: {'; '.join(failed)}" if failed else None
