"""SavedModel format: an archive with a TensorFlow SavedModel."""

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base import (
    MAX_UNPACKED,
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
    Unreadable,
)
from .signature import described, signature_of
from .tensorflow_function import (
    ENVIRONMENT,
    PACKAGES,
    FunctionModel,
    LoadedFunction,
    function_of,
    import_tensorflow,
    start_tensorflow,
)
from .tensorflow_graph import RANDOM, check_loading, seed_random_operations
from .tensors import Tensor, check_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The file that every SavedModel has, in whichever folder of the zip.
GRAPH = "saved_model.pb"


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a zip with a SavedModel in it."""
    names = {name.rpartition("/")[2] for name in sample.members or ()}
    return Recognition(Certainty.CONTENT) if GRAPH in names else None


def load(assignment: Assignment) -> LoadedModel:
    """Find the SavedModel in the archive's files and call its serving function."""
    if assignment.files is None:
        raise Misfit("a SavedModel is a folder: send a zip or tar of the folder that `tf.saved_model.save` wrote")
    saved = next((path.parent for path in sorted(assignment.files.rglob(GRAPH))), None)
    if saved is None:
        raise Misfit(f"the archive has no `{GRAPH}`; pack the folder that `tf.saved_model.save` wrote")
    source = (saved / GRAPH).read_bytes()
    message = _message(source)
    if message is not None:  # otherwise TensorFlow refuses it with a reason
        check_loading(message)
    seeded = _Seeded(saved, source, assignment) if any(name.encode() in source for name in RANDOM) else None

    def load_function(seed: int) -> LoadedFunction:
        return _function(seeded.write(seed) if seeded is not None else saved, assignment)

    return FunctionModel(load_function, assignment, f"tensorflow {import_tensorflow().__version__}")


class _Seeded:
    """A writable copy of a SavedModel, whose random operations without a seed get seeds."""

    def __init__(self, saved: Path, source: bytes, assignment: Assignment) -> None:
        self._source = source
        size = sum(path.stat().st_size for path in saved.rglob("*") if path.is_file())
        if size > MAX_UNPACKED:
            raise Misfit(
                f"the SavedModel has random operations without seeds, and {size:,} bytes; with more than"
                f" {MAX_UNPACKED:,} bytes they cannot be seeded here: give them seeds, or numbers from the observation"
            )
        self._saved = saved
        self._assignment = assignment

    def write(self, seed: int) -> Path:
        """Copy the model again, so that nothing is kept in it, with seeds derived from this one; return the folder."""
        folder = self._assignment.folder()
        for above, _, names in os.walk(self._saved):  # not copytree: the sandbox forbids it to change modes and times
            target = folder / Path(above).relative_to(self._saved)
            target.mkdir(exist_ok=True)
            for name in names:
                shutil.copyfile(os.path.join(above, name), target / name)
        if (message := _message(self._source)) is not None:
            seed_random_operations((meta_graph.graph_def for meta_graph in message.meta_graphs), seed)
            (folder / GRAPH).write_bytes(message.SerializeToString())
        return folder


def _message(source: bytes) -> Any:
    """Return the message of a SavedModel; None if it is not one."""
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        return saved_model_pb2.SavedModel.FromString(source)
    except Exception:
        return None


def _function(folder: Path, assignment: Assignment) -> LoadedFunction:
    tf = import_tensorflow()
    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as error:
        raise Unreadable(f"tensorflow {tf.__version__} does not load the model: {str(error)[:500]}") from None
    signatures = loaded.signatures
    serving = signatures.get("serving_default") or next(iter(signatures.values()), None)
    if serving is None:
        raise Misfit("the SavedModel has no serving signature; export it with `serving_default`")
    inputs, outputs = _tensors(serving)
    signature = signature_of(inputs, outputs)
    check_input(signature.observation, assignment.interface.observation, assignment.batch)

    def run(values: "Mapping[str, NDArray[Any]]") -> Mapping[str, Any]:
        answers: Mapping[str, Any] = serving(**{name: tf.constant(value) for name, value in values.items()})
        return answers

    info = described(signature, inputs, outputs)
    return function_of(run, signature, assignment, traced=serving, owner=loaded, info=info)


def _tensors(serving: Any) -> tuple[list[Tensor], list[Tensor]]:
    """Return the inputs and outputs of a signature, which all have names."""
    _, inputs = serving.structured_input_signature
    return [_tensor(*item) for item in inputs.items()], [_tensor(*item) for item in serving.structured_outputs.items()]


def _tensor(name: str, spec: Any) -> Tensor:
    return Tensor(name, spec.dtype.name, None if spec.shape.rank is None else tuple(spec.shape.as_list()))


FORMAT = ModelFormat(
    title="SavedModel",
    description=(
        "A zip or tar (.tar.gz) of a TensorFlow SavedModel with the signature `serving_default`: an input (observation)"
        " and an output (action), both with a leading batch axis; a recurrent state is an input and an output, such as"
        " h_in and h_out."
    ),
    runtime="tensorflow",
    environment=ENVIRONMENT,
    packages=PACKAGES,
    recognise=recognise,
    unpacked=True,
    zip_contents=f"a `{GRAPH}`",
    preload=start_tensorflow,
    load=load,
)
