"""Keras format: a model's configuration and weights, in a .keras file or in an HDF5 file of earlier versions."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
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
from .tensorflow_graph import Remedy, operations, remedy
from .tensors import Tensor, check_input

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The members of every .keras file besides the weights.
MEMBERS = frozenset({"config.json", "metadata.json"})


#: The first bytes of every HDF5 file.
HDF5 = b"\x89HDF\r\n\x1a\n"


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a .keras file by its members, and an HDF5 file by its first bytes."""
    if sample.head.startswith(HDF5):
        return Recognition(Certainty.CONTENT)
    return Recognition(Certainty.CONTENT) if sample.members is not None and set(sample.members) >= MEMBERS else None


def load(assignment: Assignment) -> LoadedModel:
    """Load the file and compile it to one function."""
    tf = import_tensorflow()
    hdf5 = assignment.source.startswith(HDF5)
    path = assignment.folder() / ("model.h5" if hdf5 else "model.keras")
    path.write_bytes(assignment.source)
    try:
        if hdf5:
            _prepare_hdf5(path)
        model = tf.keras.models.load_model(path, compile=False)
    except Misfit:
        raise
    except Exception as error:
        raise Misfit(f"keras {tf.keras.__version__} does not load the model: {_loading_error(str(error))}") from None
    if inputs := model.inputs:  # a subclassed model that was never built has no inputs
        input_ = select_node(list(inputs), "observation", "input", lambda node: str(node.name), alone=True)
        declared = Tensor(str(input_.name), str(tf.as_dtype(input_.dtype).name), tuple(input_.shape))
        check_input(declared, assignment.interface.observation, assignment.batch)
    function = _function(model, assignment)
    return FunctionModel(lambda seed: function, assignment, f"keras {tf.keras.__version__}")


def _prepare_hdf5(path: Path) -> None:
    """Refuse a file without a model's configuration, and remove what only Keras 2 wrote into it."""
    import h5py

    with h5py.File(path, "r+") as file:
        configuration = file.attrs.get("model_config")
        if configuration is None:
            raise Misfit(
                "the HDF5 file has no model, at most its weights: save the whole model with"
                ' model.save("model.keras"), not with save_weights'
            )
        text = configuration.decode() if isinstance(configuration, bytes) else configuration
        if '"time_major": false' in text:
            file.attrs["model_config"] = json.dumps(json.loads(text, object_hook=_without_time_major)).encode()


def _loading_error(text: str) -> str:
    """Return Keras's error for people: it advises to allow the code of Lambda layers, which is never allowed here."""
    if "safe_mode" in text:
        return "it has a Lambda layer, whose code is not loaded; use other layers, or export it as a SavedModel"
    return f"{text[:500]}; if another version saved it, export it as a SavedModel there"


def _without_time_major(values: dict[str, Any]) -> dict[str, Any]:
    """Remove Keras 2's option of recurrent layers; Keras 3 does what `False` meant, and refuses the name."""
    return {name: value for name, value in values.items() if (name, value) != ("time_major", False)}


def _function(model: Any, assignment: Assignment) -> LoadedFunction:
    tf = import_tensorflow()
    # Without training, no layer draws random numbers, also those that were called with `training=True`.
    compiled = tf.function(lambda observations: model(observations, training=False))
    space = assignment.interface.observation
    try:
        traced = compiled.get_concrete_function(tf.TensorSpec((assignment.batch, *space.shape), space.dtype))
    except Exception as error:
        shape = ",".join(map(str, ("n", *space.shape)))
        raise Misfit(f"the model does not take {space.dtype}[{shape}]: {str(error)[:500]}") from None
    if remedy(operations(traced.graph)) == Remedy.RELOAD:
        raise Misfit("the model has operations that only a SavedModel can be reset with; export it as one")

    def call(observations: "NDArray[Any]") -> Any:
        answer = compiled(tf.constant(observations))
        if isinstance(answer, dict):
            answer = answer.get("action", next(iter(answer.values())))
        return (answer[0] if isinstance(answer, list | tuple) else answer).numpy()

    return LoadedFunction(call=call, traced=traced, owner=model)


FORMAT = ModelFormat(
    title="Keras",
    description=(
        "A .keras file, or an HDF5 file (.h5) with a whole model, with one input and one output, both with a leading"
        " batch axis."
    ),
    runtime="tensorflow",
    environment=ENVIRONMENT,
    packages=PACKAGES,
    suffixes=(".keras", ".h5", ".hdf5"),
    recognise=recognise,
    zip_contents="`config.json` and `metadata.json`",
    preload=start_tensorflow,
    load=load,
)
