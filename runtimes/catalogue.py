"""Catalogue of runtimes and simulators, read from manifests; detection of a model's format from its bytes."""

import difflib
import functools
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from errors import UnknownFormat, UnknownRuntime
from runtimes import archives
from runtimes.environments import Environment

FOLDER = Path(__file__).parent
#: Bytes at the start of a file that are inspected.
HEAD = 1024


@dataclass(frozen=True, kw_only=True, slots=True)
class RuntimeFormat:
    """A format of a runtime. ``isolation`` is how long a model server lives: for a "scenario" or for a "launch"."""

    name: str
    environment: Environment
    isolation: str


@dataclass(frozen=True, kw_only=True, slots=True)
class Runtime:
    """A runtime loads and calls models; ``baselines`` maps a dataset to the model used if a submission has none."""

    name: str
    title: str
    description: str
    formats: Mapping[str, RuntimeFormat]
    baselines: Mapping[str, str]

    def describe(self) -> dict[str, Any]:
        """Return the description in the API's form."""
        return {
            "name": self.name,
            "title": self.title,
            "description": self.description,
            "formats": list(self.formats),
            "baselines": dict(self.baselines),
        }


@functools.cache
def runtimes() -> Mapping[str, Runtime]:
    """Return every runtime by name."""
    by_name = {}
    for path in sorted((FOLDER / "manifests").glob("*.yaml")):
        manifest = yaml.safe_load(path.read_text())
        formats = {
            name: RuntimeFormat(
                name=name,
                environment=_environment(path.parent / f"{entry['environment']}.lock"),
                isolation=entry["isolation"],
            )
            for name, entry in manifest["formats"].items()
        }
        by_name[manifest["name"]] = Runtime(
            name=manifest["name"],
            title=manifest["title"],
            description=manifest["description"],
            formats=formats,
            baselines=manifest.get("baselines") or {},
        )
    return by_name


@functools.cache
def simulators() -> Mapping[str, Environment]:
    """Return the environment of every simulator by name."""
    return {path.stem: _environment(path) for path in sorted((FOLDER / "simulators").glob("*.lock"))}


@functools.cache
def _environment(lock: Path) -> Environment:
    return Environment(lock.stem, lock.read_text())


def runtime(name: str) -> Runtime:
    """Return a runtime by name; raise UnknownRuntime with the nearest names."""
    match = runtimes().get(name)
    if match is None:
        near = difflib.get_close_matches(name, runtimes(), 3)
        hint = f"Did you mean {' or '.join(near)}?" if near else f"There are: {', '.join(runtimes())}."
        raise UnknownRuntime(f"There is no runtime {name[:100]!r}. {hint}", nearest=near or list(runtimes()))
    return match


def formats() -> frozenset[str]:
    """Return the formats that any runtime accepts."""
    return frozenset(name for each in runtimes().values() for name in each.formats)


def sniff(path: Path, filename: str | None = None) -> str | None:
    """Detect a model's format from its first bytes, the names in a zip, or its file name; None if unknown.

    Models are not parsed here, not even for their shapes: only a sandboxed model server does that.
    """
    with open(path, "rb") as file:
        head = file.read(HEAD)
    if head[4:8] == b"TFL3":
        return "tflite"
    if head.startswith((b"PK\x03\x04", b"PK\x05\x06")):
        return _sniff_zip(path)
    if _is_onnx(head):
        return "onnx"
    suffix = Path(filename or "").suffix.lower()
    if suffix in {".py", ".onnx", ".tflite"}:
        return {".py": "python"}.get(suffix, suffix[1:])
    return "python" if _is_python(head) else None


def _sniff_zip(path: Path) -> str | None:
    """Detect the format of a zip by its names; raise BadArchive if it must not be unpacked."""
    names = {entry.name for entry in archives.entries(path)}
    if "model.py" in names:
        return "python"
    if any(name.rpartition("/")[2] == "saved_model.pb" for name in names):
        return "savedmodel"
    return "keras" if {"config.json", "metadata.json"} <= names else None


def unknown(path: Path) -> UnknownFormat:
    """Return the error for a file that `sniff` does not recognise, with a hint if its zip shows the cause."""
    with open(path, "rb") as file:
        if not file.read(4).startswith((b"PK\x03\x04", b"PK\x05\x06")):
            return UnknownFormat()
    deeper = [entry.name for entry in archives.entries(path) if entry.name.endswith("/model.py")]
    if deeper:
        return UnknownFormat(
            f"`{deeper[0]}` lies in a folder of the zip: zip the contents of the folder, not the folder."
        )
    return UnknownFormat(
        "The zip has neither `model.py` at its top, nor a `saved_model.pb`, nor the files of a .keras model."
    )


def _is_onnx(head: bytes) -> bool:
    """A ModelProto begins with ir_version (field 1, a small varint), followed by another field (onnx.proto3)."""
    return (
        len(head) > 8
        and head[0] == 0x08
        and 1 <= head[1] <= 32
        and head[2] in {0x12, 0x1A, 0x22, 0x28, 0x32, 0x3A, 0x42}
    )


def _is_python(head: bytes) -> bool:
    try:
        text = head.decode(errors="strict") if len(head) < HEAD else head[:-4].decode(errors="strict")
    except UnicodeDecodeError:
        return False
    return "\0" not in text and any(word in text for word in ("class Model", "import ", "def "))
