"""SavedModel format: a zipped TensorFlow SavedModel."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

from . import unpacking
from .base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
    check_batched,
    select_node,
)
from .tensorflow_function import (
    ENVIRONMENT,
    PACKAGES,
    FunctionModel,
    LoadedFunction,
    import_tensorflow,
    start_tensorflow,
)
from .tensorflow_graph import RANDOM, seed_random_operations

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The file that every SavedModel has, in whichever folder of the zip.
GRAPH = "saved_model.pb"


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a zip with a SavedModel in it."""
    names = {name.rpartition("/")[2] for name in sample.members or ()}
    return Recognition(Certainty.CONTENT) if GRAPH in names else None


def load(assignment: Assignment) -> LoadedModel:
    """Unpack the folder and call its serving function."""
    folder = assignment.folder()
    unpacking.unpack(assignment.source, folder)
    saved = next((path.parent for path in sorted(folder.rglob(GRAPH))), None)
    if saved is None:
        raise Misfit(f"the zip has no `{GRAPH}`; zip the folder that `tf.saved_model.save` wrote")
    source = (saved / GRAPH).read_bytes()

    def load_function(seed: int) -> LoadedFunction:
        _write_seeded(saved / GRAPH, source, seed)
        return _function(saved, assignment)

    return FunctionModel(load_function, assignment, f"tensorflow {import_tensorflow().__version__}")


def _write_seeded(path: Path, source: bytes, seed: int) -> None:
    """Write the graph with seeds in the random operations that have none."""
    if not any(name.encode() in source for name in RANDOM):
        return
    from tensorflow.core.protobuf import saved_model_pb2

    try:
        message = saved_model_pb2.SavedModel.FromString(source)
    except Exception:
        return  # not a message: TensorFlow refuses it with a reason
    seed_random_operations(message, seed)
    path.write_bytes(message.SerializeToString())


def _function(folder: Path, assignment: Assignment) -> LoadedFunction:
    tf = import_tensorflow()
    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as error:
        raise Misfit(f"tensorflow {tf.__version__} does not load the model: {str(error)[:500]}") from None
    signatures = loaded.signatures
    serving = signatures.get("serving_default") or next(iter(signatures.values()), None)
    if serving is None:
        raise Misfit("the SavedModel has no serving signature; export it with `serving_default`")
    _, inputs = serving.structured_input_signature
    input_name = select_node(list(inputs), "observation", "input", str, alone=True)
    spec = inputs[input_name]
    if spec.shape.rank is not None:
        observation = assignment.interface.observation
        check_batched("input", spec.dtype.name, spec.shape.as_list(), observation, "observes", assignment.batch)
    output_name = select_node(list(serving.structured_outputs), "action", "output", str)

    def call(observations: "NDArray[Any]") -> Any:
        return serving(**{input_name: tf.constant(observations)})[output_name].numpy()

    return LoadedFunction(call=call, traced=serving, owner=loaded)


FORMAT = ModelFormat(
    title="SavedModel",
    description="A zipped TensorFlow SavedModel with the signature `serving_default`.",
    runtime="tensorflow",
    environment=ENVIRONMENT,
    packages=PACKAGES,
    recognise=recognise,
    zip_contents=f"a `{GRAPH}`",
    preload=start_tensorflow,
    load=load,
)
