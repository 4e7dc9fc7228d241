"""LightGBM format: boosted trees as the text that `save_model` writes, run on one thread."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    KeepsNothing,
    LoadedModel,
    Misfit,
    ModelFormat,
    Recognition,
    Sample,
    Unreadable,
    action_bytes,
    importer,
)
from .tensors import check_features

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The first lines of every model, before the version's number.
BEGINNINGS = (b"tree\nversion=v", b"tree\r\nversion=v")
#: The line behind the last tree.
END = b"\nend of trees"


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a model by its first lines."""
    return Recognition(Certainty.CONTENT) if sample.head.startswith(BEGINNINGS) else None


def load(assignment: Assignment) -> LoadedModel:
    """Load the booster and check its features."""
    if END not in assignment.source:  # LightGBM loads the trees that are there
        raise Misfit("the file is truncated: it has no line `end of trees`; send the whole file")
    return BoosterModel(assignment)


class BoosterModel(KeepsNothing):
    """Predicts with a booster, which keeps nothing from one call to the next."""

    def __init__(self, assignment: Assignment) -> None:
        import lightgbm

        try:
            booster = lightgbm.Booster(model_str=assignment.source.decode(), params={"num_threads": 1})
            features = booster.num_feature()
        except (lightgbm.basic.LightGBMError, UnicodeDecodeError) as error:
            raise Unreadable(f"LightGBM {lightgbm.__version__} does not load the model: {str(error)[:500]}") from None
        check_features(features, assignment.interface.observation, "model was trained")
        self._booster = booster
        self._space = assignment.interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"LightGBM {lightgbm.__version__}",
            "trees": int(booster.num_trees()),
        }

    def act(self, observations: "NDArray[Any]") -> bytes:
        rows = observations.reshape(len(observations), -1)
        return action_bytes(self._booster.predict(rows, num_threads=1), len(rows), self._space)


FORMAT = ModelFormat(
    title="LightGBM",
    description=(
        "A booster that `save_model` wrote (.txt). Its prediction is the action, one output per number: the value of a"
        " regression, the probability of a binary classifier."
    ),
    runtime="lightgbm",
    environment="lightgbm",
    packages=("lightgbm",),
    ambiguous_suffixes=(".txt",),
    recognise=recognise,
    preload=importer("lightgbm"),
    forkable=True,
    load=load,
)
