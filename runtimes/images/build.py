"""Image build without a container daemon: parts from ``scripts/install``, in layers cached by their inputs."""

import contextlib
import fcntl
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import certifi

from common.ages import is_old_enough
from runtimes.images import image_names, interpreter, layers, parts
from runtimes.images.facts import Facts
from runtimes.images.image_names import Image
from runtimes.images.layers import Layer

#: Machine architectures by the names that Go and the OCI specification use.
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PYTHON = "/opt/windtunnel/python/bin/python"
#: Environment of every image: bytecode is precompiled, so none is written; the working directory is not imported from.
ENVIRON = {
    "PATH": "/opt/windtunnel/python/bin",
    "PYTHONPATH": "/opt/windtunnel/src:/opt/windtunnel/site",
    "PYTHONSAFEPATH": "1",
    "PYTHONDONTWRITEBYTECODE": "1",
    "PYTHONUNBUFFERED": "1",
    "HOME": "/tmp",
    "LANG": "C.UTF-8",
    "SSL_CERT_FILE": "/etc/ssl/certs/ca-certificates.crt",
}
#: Additional environment of the server's images.
HOME = {"WINDTUNNEL_HOME": "/var/lib/windtunnel"}
USER = "10001:10001"
#: How often a build is repeated because the code changed during it.
TRIES = 5
DRAFT = ".draft-"
#: Seconds after which an unused layer is removed.
UNUSED = 14 * 86400
#: Build code whose digest is part of every layer's key.
MADE_BY = tuple(
    f"{image_names.RECIPE}/{name}.py"
    for name in ("facts", "interpreter", "layers", "libraries", "packages", "parts", "sbom")
)


class CannotBuild(Exception):
    """The build of an image failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """A built image; ``size`` in bytes. ``fresh`` is False if the archive existed already."""

    reference: str
    digest: str
    archive: Path
    size: int
    layers: tuple[str, ...]
    fresh: bool


def config(image: Image, tag: str) -> dict[str, Any]:
    """Return the image configuration: default user, environment, entry point and labels."""
    server = image.environment is None
    environ = ENVIRON | (HOME if server else {})
    return {
        "User": USER,
        "Env": [f"{key}={value}" for key, value in environ.items()],
        "Entrypoint": [PYTHON, "-m", "server"] if server else [PYTHON],
        "WorkingDir": "/opt/windtunnel/src",
        "Labels": {
            "org.opencontainers.image.title": f"{image_names.PREFIX}{image.name}",
            "org.opencontainers.image.licenses": image_names.LICENCE,
            "org.opencontainers.image.version": tag,
        },
    }


def build(
    image: Image, out: Path, *, kept: Path | None = None, prefix: str = image_names.PREFIX, packed: bool = False
) -> Built:
    """Build an image's archive in ``out`` unless it exists; a file lock serialises concurrent builds.

    ``kept`` is the folder of cached layers, keyed by their inputs; several checkouts may share it. With ``packed``
    layers are gzip-compressed. Raises CannotBuild.
    """
    out = out.resolve()
    kept = (kept or out / "layers").resolve()
    with _locked(out), _locked(kept):
        lock = parts.lock(image)
        tag, built = _consistent_layers(image, lock, kept, packed)
        manifest, configured = layers.manifest(built, config(image, tag), MACHINES[platform.machine()])
        reference = f"{prefix}{image.name}:{tag}"
        path = out / f"{image_names.PREFIX}{image.name}.tar"
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        record = {"reference": reference, "digest": digest, "layers": [layer.digest for layer in built]}
        note = path.with_suffix(".json")
        fresh = not (path.exists() and note.exists() and json.loads(note.read_text()) == record)
        if fresh:
            note.unlink(missing_ok=True)
            layers.archive(path, reference, built, manifest, configured)
            shutil.copyfile(built[-1].path.with_suffix(".sbom.json"), path.with_suffix(".sbom.json"))
            note.write_text(json.dumps(record, indent=1) + "\n")
            _remove_unused_layers(kept)
        sizes = tuple(f"{layer.path.name.split('-')[0]} {layer.size / 1e6:.0f}" for layer in built)
        size = path.stat().st_size
    return Built(reference=reference, digest=digest, archive=path, size=size, layers=sizes, fresh=fresh)


@contextlib.contextmanager
def _locked(out: Path) -> Iterator[None]:
    out.mkdir(parents=True, exist_ok=True)
    with open(out / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in out.glob(f"{DRAFT}*"):  # drafts of killed builds
            shutil.rmtree(left)
        yield


def _consistent_layers(image: Image, lock: str, kept: Path, packed: bool) -> tuple[str, list[Layer]]:
    """Return the tag and the layers of a consistent state of the code: the tag is equal before and after."""
    for _ in range(TRIES):
        tag = image_names.tag(image, lock)
        built = _layers(image, lock, kept, packed)
        if image_names.tag(image, lock) == tag:
            return tag, built
        built[-1].path.with_suffix(".json").unlink()
    raise CannotBuild(f"The code changed during each of {TRIES} builds. Build again when no file changes.")


def _layers(image: Image, lock: str, kept: Path, packed: bool) -> list[Layer]:
    built: list[Layer] = []
    beneath = image_names.digest(MADE_BY)
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=kept) as draft:
        for part in parts.PARTS:
            if part == "environments" and not image.brings:
                Facts().write(Path(draft) / f"{part}.json")
                continue
            key = [part, packed, _inputs(image, part, lock), beneath]
            beneath = hashlib.sha256(json.dumps(key).encode()).hexdigest()[:16]
            layer, facts = _layer(image, part, kept / f"{part}-{beneath}.tar", Path(draft), packed)
            facts.write(Path(draft) / f"{part}.json")
            built.append(layer)
    return built


def _inputs(image: Image, part: str, lock: str) -> Any:
    """Return a part's inputs, besides the parts beneath it."""
    match part:
        case "python":
            return _interpreter_inputs()
        case "site":
            return lock if image.environment is None else image.environment.digest
        case "environments":
            return [environment.digest for environment in image.brings]
        case _:
            return [image.name, image_names.digest(image.sources)]


def _interpreter_inputs() -> list[Any]:
    linked = interpreter.needed()
    paths = sorted({interpreter.executable(), *linked.libraries.values()})
    trusted = hashlib.sha256(Path(certifi.where()).read_bytes()).hexdigest()
    states = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return [*states, trusted, shutil.which("strip")]


def _layer(image: Image, part: str, path: Path, draft: Path, packed: bool) -> tuple[Layer, Facts]:
    note, facts = path.with_suffix(".json"), path.with_suffix(".facts.json")
    if note.exists():
        os.utime(note)
        record = json.loads(note.read_text())
        return Layer(**record | {"path": path}), Facts.read(facts)
    try:
        subprocess.run(
            [image_names.ROOT / "scripts/install", image.name, part, str(draft)], check=True, cwd=image_names.ROOT
        )
    except subprocess.CalledProcessError:
        raise CannotBuild(
            f"{image_names.PREFIX}{image.name} was not built: the output above says what its part {part!r} lacks."
        ) from None
    built = layers.write(draft / part, path, packed=packed)
    if part == "code":
        shutil.copyfile(draft / part / parts.HOME / "sbom.json", path.with_suffix(".sbom.json"))
    shutil.rmtree(draft / part)
    shutil.copyfile(draft / f"{part}.json", facts)
    # The note is written last: a layer with a note is complete.
    temporary = path.with_suffix(".temporary")
    temporary.write_text(json.dumps(asdict(built) | {"path": path.name}))
    os.replace(temporary, note)
    return built, Facts.read(facts)


def _remove_unused_layers(kept: Path) -> None:
    """Remove layers without a note, left by a killed build, and layers that no build has used for two weeks."""
    for layer in list(kept.glob("*.tar")):
        note = layer.with_suffix(".json")
        if not note.exists() or is_old_enough(note.stat().st_mtime, UNUSED, time.time()):
            for suffix in (".json", ".tar", ".facts.json", ".sbom.json"):
                layer.with_suffix(suffix).unlink(missing_ok=True)
