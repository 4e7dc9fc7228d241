"""Images without a daemon: parts made by ``scripts/install``, in layers that are kept by what went into them."""

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
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import certifi

from runtimes.images import interpreter, layers, names, parts
from runtimes.images.facts import Facts
from runtimes.images.layers import Layer
from runtimes.images.names import Image

#: What Go, and so every registry, calls machines.
MACHINES = {"x86_64": "amd64", "aarch64": "arm64"}
PYTHON = "/opt/windtunnel/python/bin/python"
#: Of every image. Bytecode is in it already; nothing may be written, and nothing is imported from where one stands.
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
#: Of the server's.
HOME = {"WINDTUNNEL_HOME": "/var/lib/windtunnel"}
USER = "10001:10001"
#: How often an image is made anew because our code was changed meanwhile.
TRIES = 5
DRAFT = ".draft-"
#: Seconds after which a layer that no image uses is removed.
UNUSED = 14 * 86400
#: What decides what a layer holds, beside what it is made of.
MADE_BY = tuple(
    f"{names.RECIPE}/{name}.py" for name in ("facts", "interpreter", "layers", "libraries", "packages", "parts", "sbom")
)


class CannotBuild(Exception):
    """An image was not made."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Built:
    """An image that lies there. ``fresh``: made just now, not found."""

    reference: str
    digest: str
    archive: Path
    size: int
    layers: tuple[str, ...]
    fresh: bool


def config(image: Image, tag: str) -> dict[str, Any]:
    """Return how an image is run when nobody says otherwise, and what its labels say."""
    server = image.environment is None
    environ = ENVIRON | (HOME if server else {})
    return {
        "User": USER,
        "Env": [f"{key}={value}" for key, value in environ.items()],
        "Entrypoint": [PYTHON, "-m", "server"] if server else [PYTHON],
        "WorkingDir": "/opt/windtunnel/src",
        "Labels": {
            "org.opencontainers.image.title": f"{names.PREFIX}{image.name}",
            "org.opencontainers.image.version": tag,
        },
    }


def build(
    image: Image, out: Path, *, kept: Path | None = None, prefix: str = names.PREFIX, packed: bool = False
) -> Built:
    """Make an image's archive in ``out`` unless it lies there; several may ask at once.

    ``kept`` is the folder of layers, named by what went into them; several checkouts may share it.
    """
    out = out.resolve()
    kept = (kept or out / "layers").resolve()
    with _alone(out), _alone(kept):
        lock = parts.lock(image)
        tag, made = _still(image, lock, kept, packed)
        manifest, configured = layers.manifest(made, config(image, tag), MACHINES[platform.machine()])
        reference = f"{prefix}{image.name}:{tag}"
        path = out / f"{names.PREFIX}{image.name}.tar"
        digest = f"sha256:{hashlib.sha256(manifest).hexdigest()}"
        told = {"reference": reference, "digest": digest, "layers": [one.digest for one in made]}
        note = path.with_suffix(".json")
        fresh = not (path.exists() and note.exists() and json.loads(note.read_text()) == told)
        if fresh:
            note.unlink(missing_ok=True)
            layers.archive(path, reference, made, manifest, configured)
            _bill(path, made[-1])
            note.write_text(json.dumps(told, indent=1) + "\n")
            _sweep(kept)
        sizes = tuple(f"{one.path.name.split('-')[0]} {one.size / 1e6:.0f}" for one in made)
        size = path.stat().st_size
    return Built(reference=reference, digest=digest, archive=path, size=size, layers=sizes, fresh=fresh)


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    out.mkdir(parents=True, exist_ok=True)
    with open(out / ".lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for left in out.glob(f"{DRAFT}*"):  # by whoever was killed
            shutil.rmtree(left)
        yield


def _still(image: Image, lock: str, kept: Path, packed: bool) -> tuple[str, list[Layer]]:
    """Return the layers of a moment at which nobody was changing our code, and the tag it had."""
    for _ in range(TRIES):
        tag = names.tag(image, lock)
        made = _layers(image, lock, kept, packed)
        if names.tag(image, lock) == tag:
            return tag, made
        made[-1].path.with_suffix(".json").unlink()
    raise CannotBuild("Our code is being changed while it is packed.")


def _layers(image: Image, lock: str, kept: Path, packed: bool) -> list[Layer]:
    made: list[Layer] = []
    beneath = names.digest(MADE_BY)
    with tempfile.TemporaryDirectory(prefix=DRAFT, dir=kept) as draft:
        for part in parts.PARTS:
            if part == "environments" and not image.brings:
                Facts().write(Path(draft) / f"{part}.json")
                continue
            told = [part, packed, _of(image, part, lock), beneath]
            beneath = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
            layer, facts = _layer(image, part, kept / f"{part}-{beneath}.tar", Path(draft), packed)
            facts.write(Path(draft) / f"{part}.json")
            made.append(layer)
    return made


def _of(image: Image, part: str, lock: str) -> Any:
    """Return what a part is made of, beside the parts beneath it."""
    match part:
        case "python":
            return _machine()
        case "site":
            return lock
        case "environments":
            return [one.digest for one in image.brings]
        case _:
            return [image.name, names.digest(image.sources)]


def _machine() -> list[Any]:
    found = interpreter.needed()
    paths = sorted({interpreter.executable(), *found.libraries.values()})
    trusted = hashlib.sha256(Path(certifi.where()).read_bytes()).hexdigest()
    looks = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]
    return [*looks, trusted, shutil.which("strip")]


def _layer(image: Image, part: str, path: Path, draft: Path, packed: bool) -> tuple[Layer, Facts]:
    note, facts = path.with_suffix(".json"), path.with_suffix(".facts.json")
    if note.exists():
        os.utime(note)
        told = json.loads(note.read_text())
        return Layer(**told | {"path": path}), Facts.read(facts)
    try:
        subprocess.run([names.ROOT / "scripts/install", image.name, part, str(draft)], check=True, cwd=names.ROOT)
    except subprocess.CalledProcessError:
        raise CannotBuild(
            f"{names.PREFIX}{image.name} was not made: what was missing for its {part} is said above."
        ) from None
    made = layers.write(draft / part, path, packed=packed)
    if part == "code":
        shutil.copyfile(draft / part / parts.HOME / "sbom.json", path.with_suffix(".sbom.json"))
    shutil.rmtree(draft / part)
    shutil.copyfile(draft / f"{part}.json", facts)
    # Last: whoever finds it finds the rest as well.
    rough = path.with_suffix(".rough")
    rough.write_text(json.dumps(asdict(made) | {"path": path.name}))
    os.replace(rough, note)
    return made, Facts.read(facts)


def _sweep(kept: Path) -> None:
    """Remove layers without a note, left by a killed build, and those that no image has used for a while."""
    for layer in list(kept.glob("*.tar")):
        note = layer.with_suffix(".json")
        if not note.exists() or note.stat().st_mtime < time.time() - UNUSED:
            for suffix in (".json", ".tar", ".facts.json", ".sbom.json"):
                layer.with_suffix(suffix).unlink(missing_ok=True)


def _bill(path: Path, code: Layer) -> None:
    shutil.copyfile(code.path.with_suffix(".sbom.json"), path.with_suffix(".sbom.json"))


def tags(images: Sequence[Image]) -> dict[str, str]:
    """Return the tags that images have now, made or not."""
    return {image.name: names.tag(image, parts.lock(image)) for image in images}
