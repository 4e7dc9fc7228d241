"""scikit-learn format: a fitted estimator as a skops, joblib or pickle file, asked by `predict`."""

import io
import os
import warnings
import zlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .base import (
    Assignment,
    Certainty,
    LoadedModel,
    Misfit,
    ModelFormat,
    NoAction,
    Recognition,
    Sample,
    Unreadable,
    action_bytes,
)
from .tensors import check_features

if TYPE_CHECKING:
    from numpy.typing import NDArray

#: The member that every skops file has, a zip.
SCHEMA = "schema.json"
#: The beginning of pickles of protocols 2 to 5.
PICKLES = tuple(bytes([0x80, protocol]) for protocol in (2, 3, 4, 5))
#: Modules that a pickle of an estimator names, within its first bytes.
MODULES = (b"sklearn", b"joblib.numpy_pickle")
INSIDE = 512
PINNED = (
    "another version is pinned by a zip with a `model.py` that loads the file and a `requirements.txt`"
    " (docs/exporting.md#scikit-learn)"
)


def recognise(sample: Sample) -> Recognition | None:
    """Recognise a skops file by its schema, and a pickle, compressed or not, by the modules that it names."""
    if sample.members is not None:
        return Recognition(Certainty.CONTENT) if SCHEMA in sample.members else None
    return Recognition(Certainty.CONTENT) if is_estimator(sample) else None


def is_estimator(sample: Sample) -> bool:
    """Whether a file is a pickle, compressed or not, that names scikit-learn or joblib within its first bytes."""
    pickled = _pickled(sample.head)
    return pickled.startswith(PICKLES) and any(name in pickled for name in MODULES)


def _pickled(head: bytes) -> bytes:
    """Return the first bytes of a pickle that may be compressed with zlib or gzip, as `joblib.dump` does it."""
    for magic, bits in ((b"\x1f\x8b\x08", 31), (b"\x78", 15)):
        if head.startswith(magic):
            try:
                return zlib.decompressobj(wbits=bits).decompress(head, INSIDE)
            except zlib.error:
                return b""
    return head


def preload() -> None:
    """Import scikit-learn with the modules that most estimators need, so that a scenario's process does not have to."""
    os.environ["JOBLIB_MULTIPROCESSING"] = "0"  # the sandbox starts no processes; joblib warns when it finds that out
    import joblib  # noqa: F401
    import sklearn.ensemble
    import sklearn.linear_model
    import sklearn.neighbors
    import sklearn.neural_network
    import sklearn.pipeline
    import sklearn.svm  # noqa: F401
    import skops.io  # noqa: F401


def load(assignment: Assignment) -> LoadedModel:
    """Load the estimator, check its features, and make it compute on one thread."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        estimator = _estimator(assignment.source)
    return EstimatorModel(estimator, assignment, _other_version(caught))


def _estimator(source: bytes) -> Any:
    import sklearn

    read: Callable[[bytes], Any] = _read_skops if source.startswith(b"PK") else _read_pickle
    try:
        return read(source)
    except Misfit:
        raise
    except Exception as error:
        reason = f"{type(error).__name__}: {str(error)[:500]}"
        raise Unreadable(
            f"scikit-learn {sklearn.__version__} does not load the estimator: {reason}. If it was saved by another"
            f" version or needs another package, {PINNED}"
        ) from None


def _read_pickle(source: bytes) -> Any:
    import joblib

    return joblib.load(io.BytesIO(source))


def _read_skops(source: bytes) -> Any:
    from skops.io import get_untrusted_types, loads

    types = get_untrusted_types(data=source)
    own = [name for name in types if name.startswith("sklearn.")]  # trees; a damaged one harms only its own process
    if unknown := sorted(set(types) - set(own)):
        raise Misfit(
            f"the skops file has types that are not trusted: {', '.join(unknown)[:500]}; send the estimator as a joblib"
            " file, or a zip with a `model.py` that loads it"
        )
    return loads(source, trusted=own)


def _other_version(caught: list[warnings.WarningMessage]) -> str | None:
    """Return the version of scikit-learn that a file was saved by, if it warns that it is another one than here."""
    from sklearn.exceptions import InconsistentVersionWarning

    for item in caught:
        if isinstance(item.message, InconsistentVersionWarning):
            return str(item.message.original_sklearn_version)
    return None


class EstimatorModel:
    """Calls `predict` with rows of features. ``saved_by``: another version of scikit-learn, which saved the file."""

    def __init__(self, estimator: Any, assignment: Assignment, saved_by: str | None) -> None:
        import sklearn

        self._predict = getattr(estimator, "predict", None)
        if not callable(self._predict):
            raise Misfit(f"the file has a {type(estimator).__name__}, which has no `predict`; save a fitted estimator")
        if (features := getattr(estimator, "n_features_in_", None)) is not None:
            check_features(features, assignment.interface.observation, "estimator was fitted")
        _use_one_thread(estimator)
        names = getattr(estimator, "feature_names_in_", None)
        self._names = None if names is None else [str(name) for name in names]
        self._space = assignment.interface.action
        self.info: Mapping[str, str | int | float | bool | None] = {
            "estimator": type(estimator).__name__,
            "library": f"scikit-learn {sklearn.__version__}",
        }
        if saved_by is not None:
            self.info = {**self.info, "saved_by": f"scikit-learn {saved_by}"}
            print(
                f"The estimator was saved by scikit-learn {saved_by} and runs in {sklearn.__version__}: its predictions"
                f" may differ; {PINNED}.",
                flush=True,
            )

    def reset(self, seed: int) -> None:
        """Do nothing: the process is new for each scenario, and numpy's generator is seeded."""

    def act(self, observations: "NDArray[Any]") -> bytes:
        rows = observations.reshape(len(observations), -1).copy()  # the estimator may keep it
        assert self._predict is not None
        with warnings.catch_warnings():
            # An estimator that was fitted with a table warns of rows without column names, in every step.
            warnings.filterwarnings("ignore", message="X does not have valid feature names")
            answer = self._predict(rows)
        if isinstance(answer, tuple):
            raise NoAction("`predict` answered a tuple; the estimator has to predict actions alone")
        return action_bytes(answer, len(rows), self._space)


def _use_one_thread(estimator: Any) -> None:
    """Set every `n_jobs` to 1, also of the parts of a pipeline: sums over several threads differ from run to run."""
    parameters = getattr(estimator, "get_params", None)
    names = [name for name in parameters() if name == "n_jobs" or name.endswith("__n_jobs")] if parameters else []
    if names:
        estimator.set_params(**dict.fromkeys(names, 1))


FORMAT = ModelFormat(
    title="scikit-learn",
    description=(
        "A fitted estimator or pipeline, saved by skops (.skops), joblib (.joblib) or pickle (.pkl). `predict` gets"
        " rows of features and answers actions: numbers of a regressor, or the labels of a classifier."
    ),
    runtime="scikit-learn",
    environment="scikit-learn",
    packages=("joblib", "scikit-learn", "skops"),
    isolation="scenario",  # a pickle is code, and may have memory of its own
    suffixes=(".joblib", ".skops"),
    ambiguous_suffixes=(".pkl", ".pickle"),  # most are of other libraries
    recognise=recognise,
    zip_contents=f"`{SCHEMA}` (skops)",
    preload=preload,
    forkable=True,
    load=load,
)
