"""Keras format: a model's configuration and weights, in a .keras file or in an HDF5 file of earlier versions."""

import json
from collections.abc import Mapping
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
    Unreadable,
)
from .recurrence import RecurrentValues, state_shape
from .signature import Signature, described, signature_of
from .tensorflow_function import (
    ENVIRONMENT,
    PACKAGES,
    FunctionModel,
    LoadedFunction,
    function_of,
    import_tensorflow,
    start_tensorflow,
)
from .tensorflow_graph import Remedy, operations, remedy
from .tensors import Tensor, check_input, input_shape

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
        raise Unreadable(
            f"keras {tf.keras.__version__} does not load the model: {_loading_error(str(error))}"
        ) from None
    function = _named_function(model, assignment) if model.inputs else _function(model, assignment)
    if remedy(operations(function.traced.graph)) == Remedy.RELOAD:
        raise Misfit("the model has operations that only a SavedModel can be reset with; export it as one")
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


def _named_function(model: Any, assignment: Assignment) -> LoadedFunction:
    """Return a model of the functional or sequential kind as a function, with its states fed back."""
    tf = import_tensorflow()
    inputs, outputs = _inputs(model), _outputs(model)
    signature = signature_of(inputs, outputs)
    check_input(signature.observation, assignment.interface.observation, assignment.batch)
    compiled = tf.function(lambda values: tf.keras.tree.flatten(_called(model, values)))
    specs = [_spec(tensor, signature, assignment) for tensor in inputs]

    def run(values: "Mapping[str, NDArray[Any]]") -> Mapping[str, Any]:
        answers = compiled([tf.constant(values[tensor.name]) for tensor in inputs])
        return {tensor.name: answer for tensor, answer in zip(outputs, answers, strict=True)}

    traced = _traced(compiled, specs, assignment)
    info = described(signature, inputs, outputs)
    return function_of(run, signature, assignment, traced=traced, owner=model, info=info)


def _called(model: Any, values: Any) -> Any:
    """Call a model with its inputs in their order, in the structure that it was made with."""
    # Without training, no layer draws random numbers, also those that were called with `training=True`.
    keras = import_tensorflow().keras
    sequential = isinstance(model, keras.Sequential)
    structure = values[0] if sequential else keras.tree.pack_sequence_as(model.input, values)
    return model(structure, training=False)


def _inputs(model: Any) -> list[Tensor]:
    """Return the inputs in their order; their names are the keys of a dictionary, otherwise those of the layers."""
    if len(model.inputs) == 1:
        return [_tensor(model.inputs[0].name, model.inputs[0])]
    paths = import_tensorflow().keras.tree.flatten_with_path(model.input)
    return [_tensor(_key(path) or tensor.name, tensor) for path, tensor in paths]


def _outputs(model: Any) -> list[Tensor]:
    """Return the outputs in their order; their names are the keys of a dictionary, otherwise those of the layers."""
    if len(model.outputs) == 1:
        return [_tensor("action", model.outputs[0])]
    paths = import_tensorflow().keras.tree.flatten_with_path(model.output)
    return [_tensor(_key(path) or name, tensor) for name, (path, tensor) in zip(model.output_names, paths, strict=True)]


def _key(path: tuple[Any, ...]) -> str | None:
    return path[-1] if path and isinstance(path[-1], str) else None


def _tensor(name: str, node: Any) -> Tensor:
    return Tensor(name, str(import_tensorflow().as_dtype(node.dtype).name), tuple(node.shape))


def _spec(tensor: Tensor, signature: Signature, assignment: Assignment) -> Any:
    """Return the type and the shape that an input has in every call."""
    states = {state.input.name: state for state in signature.states}
    if (state := states.get(tensor.name)) is not None:
        shape = state_shape(state, signature.observation, assignment.batch)
    else:
        shape = (assignment.batch, *input_shape(tensor, assignment.interface.observation))
    return import_tensorflow().TensorSpec(shape, tensor.dtype)


def _function(model: Any, assignment: Assignment) -> LoadedFunction:
    """Return a model without declared inputs and outputs as a function."""
    tf = import_tensorflow()
    compiled = tf.function(lambda observations: model(observations, training=False))
    space = assignment.interface.observation
    traced = _traced(compiled, tf.TensorSpec((assignment.batch, *space.shape), space.dtype), assignment)

    def call(observations: "NDArray[Any]", values: RecurrentValues | None) -> Any:
        answer = compiled(tf.constant(observations))
        if isinstance(answer, dict):
            answer = answer.get("action", next(iter(answer.values())))
        return (answer[0] if isinstance(answer, list | tuple) else answer).numpy()

    return LoadedFunction(call=call, traced=traced, owner=model)


def _traced(compiled: Any, specs: Any, assignment: Assignment) -> Any:
    try:
        return compiled.get_concrete_function(specs)
    except Exception as error:
        space = assignment.interface.observation
        shape = ",".join(map(str, ("n", *space.shape)))
        raise Misfit(f"the model does not take {space.dtype}[{shape}]: {str(error)[:500]}") from None


FORMAT = ModelFormat(
    title="Keras",
    description=(
        "A .keras file, or an HDF5 file (.h5) with a whole model: an input (observation) and an output (action), both"
        " with a leading batch axis; a recurrent state is an input and an output, such as h_in and h_out."
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
