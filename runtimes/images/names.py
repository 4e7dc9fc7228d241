"""Which images there are, what of ours each holds, and what each is called; see docs/images.md."""

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

#: Where our code lies: a checkout, or /opt/windtunnel/src in an image.
ROOT = Path(__file__).parents[2]
#: What every role of the server needs of ours.
SERVER = ("app.py", "api", "cli", "core", "datasets", "errors.py", "runtimes", "server", "workers")
#: What an evaluator and a model server need of ours.
HARNESS = ("runtimes/__init__.py", "runtimes/harness")
DATASETS = "datasets/catalogue"
#: How images are made; what was made in another way has another tag.
RECIPE = "runtimes/images"
#: How an environment's image is called unless told otherwise.
PREFIX = "windtunnel-"


@dataclass(frozen=True, kw_only=True, slots=True)
class Image:
    """One image. ``environment`` is None where packages are the server's; ``brings``: environments laid beside them."""

    name: str
    description: str
    sources: tuple[str, ...]
    environment: Environment | None = None
    brings: tuple[Environment, ...] = ()


@functools.cache
def images() -> dict[str, Image]:
    """Return every image by its name, without any prefix."""
    simulators = catalogue.simulators()
    found = [
        Image(name="server", description="Windtunnel's server: every role, and the runner", sources=SERVER),
        Image(
            name="jobs",
            description="Windtunnel's server with the simulators that draw replays",
            sources=SERVER,
            brings=tuple(simulators.values()),
        ),
    ]
    model_servers = {
        one.environment.name: one.environment for each in catalogue.runtimes().values() for one in each.formats.values()
    }
    for name, environment in sorted(model_servers.items()):
        words = f"Model servers models of Windtunnel's environment {name}"
        found.append(Image(name=name, description=words, sources=HARNESS, environment=environment))
    for name, environment in simulators.items():
        words = f"Plays Windtunnel's datasets of the simulator {name}"
        sources = (*HARNESS, *_datasets(name))
        found.append(Image(name=name, description=words, sources=sources, environment=environment))
    named = {image.name: image for image in found}
    assert len(named) == len(found), "a format's environment and a simulator share a name"
    return named


def _datasets(simulator: str) -> Iterator[str]:
    for path in sorted((ROOT / DATASETS).glob("*/dataset.json")):
        if json.loads(path.read_text())["simulator"] == simulator:
            yield f"{DATASETS}/{path.parent.name}"


def files(sources: tuple[str, ...], root: Path = ROOT) -> Iterator[str]:
    """Yield the files of some sources, relative to ``root``, in order; no bytecode, nothing hidden."""
    for source in sorted(sources):
        if (root / source).is_file():
            yield source
            continue
        for path in sorted((root / source).rglob("*")):
            parts = path.relative_to(root).parts
            if path.is_file() and not any(part.startswith(".") or part == "__pycache__" for part in parts):
                yield "/".join(parts)


def digest(sources: tuple[str, ...], root: Path = ROOT) -> str:
    """Name the content of some sources."""
    whole = hashlib.sha256()
    for name in files(sources, root):
        content = (root / name).read_bytes()
        whole.update(f"{name} {len(content)}\n".encode() + content)
    return whole.hexdigest()


def tag(image: Image, lock: str) -> str:
    """Return an image's tag: what of ours and of its lock is inside, for which Python, and how it was put together.

    A server that holds the same code computes the same, so it needs no list of the images that go with it.
    The machine's own libraries beneath are not in it; they are in the manifest's digest.
    """
    told = [sys.implementation.cache_tag or "", platform.machine(), lock, digest(image.sources), digest((RECIPE,))]
    told += [one.digest for one in image.brings]
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:12]


def image_of(environment: Environment | str, prefix: str = PREFIX, tag: str = "") -> str:
    """Return what a pod calls the image of an environment; without a tag, the one made from the code at hand."""
    name = environment if isinstance(environment, str) else environment.name
    return f"{prefix}{name}:{tag or _tag(name)}"


@functools.cache
def _tag(name: str) -> str:
    image = images()[name]
    assert image.environment is not None, "the server's packages are not known here"
    return tag(image, image.environment.lock)
