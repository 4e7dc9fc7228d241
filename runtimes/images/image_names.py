"""Image names: the list of images, the project files in each, and their tags; see docs/images.md."""

import functools
import hashlib
import json
import platform
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from runtimes import catalogue
from runtimes.environments import Environment

#: Root of the project's code: a checkout, or /opt/windtunnel/src in an image.
ROOT = Path(__file__).parents[2]
#: SPDX identifier of the project's licence; the packages in an image have their own, which its bill of materials lists.
LICENCE = "Apache-2.0"
#: Project files that every role of the server needs.
SERVER = (
    "LICENSE",
    "app.py",
    "api",
    "common",
    "core",
    "datasets",
    "halo",
    "kube",
    "runtimes",
    "server",
    "web",
    "workers",
)
#: Project files that evaluators and model servers need.
HARNESS = ("LICENSE", "runtimes/__init__.py", "runtimes/harness")
DATASETS = "datasets/catalogue"
#: The code that builds images; a change of it changes every tag.
RECIPE = "runtimes/images"
#: Default prefix of image names.
PREFIX = "windtunnel-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """An image. ``environment`` is None for the server's packages; ``brings`` are environments beside them."""

    name: str
    description: str
    sources: tuple[str, ...]
    environment: Environment | None = None
    brings: tuple[Environment, ...] = ()


@functools.cache
def images() -> dict[str, Image]:
    """Return every image by its name without prefix."""
    simulators, converters = catalogue.simulators(), catalogue.converters()
    entries = [
        Image(
            name="server",
            description="Windtunnel's server: every role, and the runner, with the packages that it sends to gangs",
            sources=SERVER,
            brings=tuple(catalogue.sent_environments()),
        ),
        Image(
            name="jobs",
            description="Windtunnel's server with the simulators that draw replays and the converters of maps",
            sources=SERVER,
            # Simulators with the same packages have one folder.
            brings=tuple({each.digest: each for each in (*simulators.values(), *converters.values())}.values()),
        ),
    ]
    model_servers = {
        format.environment.name: format.environment
        for runtime in catalogue.runtimes().values()
        for format in runtime.formats.values()
    }
    for name, environment in sorted(model_servers.items()):
        description = f"Model servers of Windtunnel's environment {name}"
        entries.append(Image(name=name, description=description, sources=HARNESS, environment=environment))
    for name, environment in simulators.items():
        description = f"Evaluators of Windtunnel's simulator {name}, with its datasets"
        sources = (*HARNESS, *_datasets(name))
        entries.append(Image(name=name, description=description, sources=sources, environment=environment))
    named = {image.name: image for image in entries}
    assert len(named) == len(entries), "a format's environment and a simulator share a name"
    return named


def _datasets(simulator: str) -> Iterator[str]:
    for path in sorted((ROOT / DATASETS).glob("*/dataset.json")):
        if json.loads(path.read_text())["simulator"] == simulator:
            yield f"{DATASETS}/{path.parent.name}"


def files(sources: tuple[str, ...], root: Path = ROOT) -> Iterator[str]:
    """Yield the files of sources, relative to ``root``, in order; no bytecode, no hidden files."""
    for source in sorted(sources):
        if (root / source).is_file():
            yield source
            continue
        for path in sorted((root / source).rglob("*")):
            parts = path.relative_to(root).parts
            if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
                yield "/".join(parts)


def digest(sources: tuple[str, ...], root: Path = ROOT) -> str:
    """Return the SHA-256 of the names and contents of the sources' files."""
    whole = hashlib.sha256()
    for name in files(sources, root):
        content = (root / name).read_bytes()
        whole.update(f"{name} {len(content)}\n".encode() + content)
    return whole.hexdigest()


def tag(image: Image, lock: str) -> str:
    """Return an image's tag: a digest of its project files, its lock, the Python version and the build code.

    A server with the same code computes the same tag, so it needs no list of matching images.
    The build machine's libraries are not part of the tag, but of the manifest's digest.
    """
    inputs = [sys.implementation.cache_tag or "", platform.machine(), lock, digest(image.sources), digest((RECIPE,))]
    inputs += [environment.digest for environment in image.brings]
    return hashlib.sha256("\n".join(inputs).encode()).hexdigest()[:12]


def image_of(environment: Environment | str, prefix: str = PREFIX, tag: str = "") -> str:
    """Return the image reference of an environment; without a tag, that of the image built from this code."""
    name = environment if isinstance(environment, str) else environment.name
    return f"{prefix}{name}:{tag or _tag(name)}"


@functools.cache
def _tag(name: str) -> str:
    image = images()[name]
    assert image.environment is not None, "the server's packages are not known here"
    return tag(image, image.environment.lock)
