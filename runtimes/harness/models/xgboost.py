"""XGBoost format: boosted trees or a linear booster as JSON or UBJSON, run on one thread."""

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    KeepsNothing,
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

#: The first member of a model's object, as JSON, and as UBJSON: a key with a 64-bit length.
JSON_KEY, UBJSON = b'"learner"', b"{L\0\0\0\0\0\0\0\x07learner"


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a booster by its first member."""
    return Recognition(Certainty.CONTENT) if is_booster(sample) else None


def is_booster(sample: Sample) -> bool:
    """Whether a file begins as XGBoost's JSON or UBJSON: an object with the member `learner`."""
    head = sample.head
    as_text = head.startswith(b"{") and head[1:].lstrip().startswith(JSON_KEY)
    return as_text or head.startswith(UBJSON)


class BoosterModel(KeepsNothing):
    """Predicts with a booster, which keeps nothing from one call to the next."""

    def __init__(self, assignment: Assignment) -> None:
        import xgboost

        booster = xgboost.Booster({"nthread": 1})
        try:
            booster.load_model(bytearray(assignment.source))
            features = booster.num_features()
        except xgboost.core.XGBoostError as error:
            reason = str(error).strip().splitlines()[0][:500] if str(error).strip() else "the file is damaged"
            raise Unreadable(f"XGBoost {xgboost.__version__} does not load the model: {reason}") from None
        booster.set_param({"nthread": 1, "device": "cpu"})
        check_features(features, assignment.interface.observation, "model was trained")
        self._booster = booster
        self._space = assignment.interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {
            "library": f"XGBoost {xgboost.__version__}",
            "rounds": int(booster.num_boosted_rounds()),
        }

    def act(self, observations: "NDArray[Any]") -> bytes:
        rows = observations.reshape(len(observations), -1)
        answer = self._booster.inplace_predict(rows, validate_features=False)
        return action_bytes(answer, len(rows), self._space)


FORMAT = ModelFormat(
    title="XGBoost",
    description=(
        "A booster that `save_model` wrote as .json or .ubj. Its prediction is the action, one output per number: the"
        " probability with binary:logistic, the class with multi:softmax."
    ),
    runtime="xgboost",
    environment="xgboost",
    packages=("xgboost-cpu",),
    suffixes=(".ubj",),
    ambiguous_suffixes=(".json",),
    recognise=recognise,
    preload=importer("xgboost"),
    forkable=True,
    load=BoosterModel,
)
