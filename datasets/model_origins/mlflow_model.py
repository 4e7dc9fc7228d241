"""MLflow models: which file or folder of a logged model is taken, by its flavours (`MLmodel`); no I/O.

An `MLmodel` is written by every user of the server, so it is untrusted: it has plain values only, and paths that stay
in the model's folder.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from common import plain_yaml
from common.errors import Invalid, OriginRefused
from datasets.model_origins.model_references import confined

#: Name of the file that describes a model, and its most bytes.
MLMODEL, LARGEST = "MLmodel", plain_yaml.LARGEST
#: Files that MLflow writes beside each model; others beside an ONNX model are its weights (`save_as_external_data`).
_COMMON = frozenset(
    {MLMODEL, "conda.yaml", "python_env.yaml", "requirements.txt", "input_example.json", "serving_input_example.json"}
    | {"registered_model_meta", "metadata", "code", "uv.lock", "pyproject.toml"}
)


@dataclass(frozen=True, slots=True)
class Flavour:
    """How a flavour names its file: the member of its configuration, the name if that is missing, and its version."""

    member: str
    default: str
    version: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Choice:
    """What is taken of a model: a file, or a folder in which the file of one of ``suffixes`` or a SavedModel is."""

    flavour: str
    path: str
    version: str | None
    details: Mapping[str, Any] = field(default_factory=dict)


#: The flavours that are taken, in the order in which they are preferred.
FLAVOURS: Mapping[str, Flavour] = {
    "onnx": Flavour("data", "model.onnx", "onnx_version"),
    "sklearn": Flavour("pickled_model", "model.pkl", "sklearn_version"),
    "xgboost": Flavour("data", "model.xgb", "xgb_version"),
    "lightgbm": Flavour("data", "model.lgb", "lgb_version"),
    "keras": Flavour("data", "data", "keras_version"),
    "tensorflow": Flavour("data", "data", "tensorflow_version"),
    "pytorch": Flavour("model_data", "data", "pytorch_version"),
}
#: What to log instead of a flavour that is not taken.
INSTEAD = (
    "Log it as ONNX (`mlflow.onnx.log_model`), or upload a zip with a `model.py` and its `requirements.txt`"
    " (docs/dependencies.md)."
)


def choose(text: bytes) -> Choice:
    """Return what is taken of a model with this `MLmodel`. Raise OriginRefused with what to log instead."""
    flavours = _flavours(text)
    name = next((name for name in FLAVOURS if name in flavours), None)
    if name is None:
        listed = ", ".join(sorted(str(key)[:40] for key in flavours)) or "none"
        raise OriginRefused(f"The model has the flavours {listed}; taken are {', '.join(FLAVOURS)}. {INSTEAD}")
    flavour, config = FLAVOURS[name], flavours[name]
    config = config if isinstance(config, dict) else {}
    path = config.get(flavour.member) or flavour.default
    if name == "tensorflow":
        path = config.get("saved_model_dir") or path
    if not isinstance(path, str):
        raise OriginRefused(f"The MLmodel is not valid: `{flavour.member}` of the flavour {name} is not a path.")
    try:
        path = confined(path)
    except Invalid as error:
        raise OriginRefused(f"The MLmodel is not valid: {error.detail}") from None
    version = config.get(flavour.version)
    return Choice(flavour=name, path=path, version=str(version)[:40] if version is not None else None)


def _flavours(text: bytes) -> dict[str, Any]:
    try:
        document = plain_yaml.load(text)
    except plain_yaml.BadYaml as error:
        raise OriginRefused(f"The MLmodel cannot be read: {error}.") from None
    flavours = document.get("flavors") if isinstance(document, dict) else None
    if not isinstance(flavours, dict):
        raise OriginRefused("The MLmodel lists no flavours; is the reference the folder of a model?")
    return {str(key): value for key, value in flavours.items()}


def weights_beside(choice: Choice, names: Iterable[str]) -> list[str]:
    """Return the files and folders with the weights of an ONNX model. ``names``: those at the logged model's top."""
    if choice.flavour != "onnx" or "/" in choice.path:
        return []
    return sorted(set(names) - _COMMON - {choice.path})
