"""Keras format: a zip with a model's configuration and weights, in a .keras file."""

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
from .signature import Tensor, check_input
from .tensorflow_function import (
    ENVIRONMENT,
    PACKAGES,
    FunctionModel,
    LoadedFunction,
    import_tensorflow,
    start_tensorflow,
)
from .tensorflow_graph import Remedy, operations, remedy

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The members of every .keras file besides the weights.
MEMBERS = frozenset({"config.json", "metadata.json"})


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a .keras file by its members."""
    return Recognition(Certainty.CONTENT) if sample.members is not None and set(sample.members) >= MEMBERS else None


def load(assignment: Assignment) -> LoadedModel:
    """Load the file and compile it to one function."""
    tf = import_tensorflow()
    path = assignment.folder() / "model.keras"
    path.write_bytes(assignment.source)
    try:
        model = tf.keras.models.load_model(path, compile=False)
    except Exception as error:
        raise Misfit(f"keras {tf.keras.__version__} does not load the model: {str(error)[:500]}") from None
    if inputs := model.inputs:  # a subclassed model that was never built has no inputs
        input_ = select_node(list(inputs), "observation", "input", lambda node: str(node.name), alone=True)
        declared = Tensor(str(input_.name), str(tf.as_dtype(input_.dtype).name), tuple(input_.shape))
        check_input(declared, assignment.interface.observation, assignment.batch)
    function = _function(model, assignment)
    return FunctionModel(lambda seed: function, assignment, f"keras {tf.keras.__version__}")


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
    description="A .keras file with one input and one output, both with a leading batch axis.",
    runtime="tensorflow",
    environment=ENVIRONMENT,
    packages=PACKAGES,
    suffixes=(".keras",),
    recognise=recognise,
    zip_contents="`config.json` and `metadata.json`",
    preload=start_tensorflow,
    load=load,
)
