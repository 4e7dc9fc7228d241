"""Keras format: models in a .keras file."""

from typing import Any

from numpy.typing import NDArray

from .base import Assignment, LoadedModel, Misfit, check_batched, select_node
from .tensorflow_function import FunctionModel, tf
from .tensorflow_function import preload as preload


def load(assignment: Assignment) -> LoadedModel:
    """Load the file and compile it to one function."""
    path = assignment.folder() / "model.keras"
    path.write_bytes(assignment.source)
    try:
        model = tf.keras.models.load_model(path, compile=False)
    except Exception as error:
        raise Misfit(f"keras {tf.keras.__version__} does not load the model: {str(error)[:500]}") from None
    if inputs := model.inputs:  # a subclassed model that was never built has no inputs
        input_ = select_node(list(inputs), "observation", "input", lambda node: str(node.name), alone=True)
        check_batched(
            "input",
            str(tf.as_dtype(input_.dtype).name),
            list(input_.shape),
            assignment.interface.observation,
            "observes",
            assignment.batch,
        )
    compiled = tf.function(lambda observations: model(observations, training=False))

    def call(observations: NDArray[Any]) -> Any:
        answer = compiled(tf.constant(observations))
        if isinstance(answer, dict):
            answer = answer.get("action", next(iter(answer.values())))
        return (answer[0] if isinstance(answer, list | tuple) else answer).numpy()

    return FunctionModel(call, assignment, f"keras {tf.keras.__version__}")
