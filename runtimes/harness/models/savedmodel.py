"""Models as a zipped TensorFlow SavedModel."""

from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from . import unpacking
from .base import Assignment, Misfit, Model, check_batched, chosen
from .saved import Called, tf
from .saved import preload as preload


def load(assignment: Assignment) -> Model:
    """Unpack the folder and call its serving function."""
    folder = assignment.folder()
    unpacking.unpack(assignment.source, folder)
    where = next((path.parent for path in sorted(folder.rglob("saved_model.pb"))), None)
    if where is None:
        raise Misfit("the zip has no `saved_model.pb`")
    return Called(_function(where, assignment), assignment, f"tensorflow {tf.__version__}")


def _function(folder: Path, assignment: Assignment) -> Any:
    try:
        loaded = tf.saved_model.load(str(folder))
    except Exception as error:
        raise Misfit(f"tensorflow {tf.__version__} does not load the model: {str(error)[:500]}") from None
    signatures = loaded.signatures
    serving = signatures.get("serving_default") or next(iter(signatures.values()), None)
    if serving is None:
        raise Misfit("the SavedModel has no serving signature")
    _, inputs = serving.structured_input_signature
    entry = chosen(list(inputs), "observation", "input", str, alone=True)
    told = inputs[entry]
    if told.shape.rank is not None:
        seen = assignment.interface.observation
        check_batched("input", told.dtype.name, told.shape.as_list(), seen, "observes", assignment.batch)
    exit_ = chosen(list(serving.structured_outputs), "action", "output", str)

    def call(observations: NDArray[Any]) -> Any:
        return serving(**{entry: tf.constant(observations)})[exit_].numpy()

    call.keeps = loaded  # type: ignore[attr-defined]  # the signature holds its variables weakly
    return call
