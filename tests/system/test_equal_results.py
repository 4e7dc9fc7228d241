"""Equal requests have equal results, for every format: on any number of workers and worlds, trusted, after a kill.

The tests of each format also run the same tasks in other orders.
"""

import io
import random
import shutil
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from runtimes import catalogue, environments, formats
from tests.cached import ENVIRONMENTS
from tests.system.format_models import MODELS
from tests.system.platform_process import PlatformProcess
from tests.waiting import until

#: Scenarios of each dataset, and parameters that make each of them last long enough to be interrupted.
SCENARIOS: Mapping[str, tuple[int, Mapping[str, Any]]] = {
    "cartpole": (60, {"latency_steps": 5}),
    "noop": (120, {"sleep_ms": 25}),
}
#: The name that a model of one file has in an archive of its format.
ENTRIES: Mapping[str, str] = {
    "native": "model.so",
    "onnx": "policy.onnx",
    "program": "program",
    "python": "model.py",
}
#: Formats whose models are zips: archives that are unpacked, and files that a library reads itself.
ZIPS = ("fmu", "keras", "savedmodel", "stable_baselines3", "torch_export", "torchscript")
#: Formats of what a gang runs in place of a world and its model: test_gang_kills.py compares their results.
OF_GANGS = ("gang_program", "package_case")
#: Formats whose models are processes of their own.
NEVER_TRUSTED = ("program",)
#: Seconds for the first simulation of a format, which may install PyTorch.
FIRST = 900.0


@pytest.fixture(scope="module")
def mortal_platform(prepared_environments: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """A platform whose runners may be killed."""
    home = tmp_path_factory.mktemp("mortal")
    process = PlatformProcess(home)
    try:
        yield process.start()
    finally:
        process.stop()
        shutil.rmtree(home)  # 16 GB of packages, which the tests after these need


def prepared(format: str) -> None:
    runtime = next(runtime for runtime in catalogue.runtimes().values() if format in runtime.formats)
    environments.prepare(runtime.formats[format].environment, ENVIRONMENTS, lambda message, fraction: None)


def test_every_format_but_those_of_gangs_has_a_model_here() -> None:
    assert {name.split()[0] for name in MODELS} == set(formats.formats()) - set(OF_GANGS)


@pytest.mark.timeout(FIRST + 600)
@pytest.mark.parametrize("name", sorted(MODELS))
def test_equal_requests_have_equal_results_on_any_number_of_workers_and_worlds_trusted_and_after_a_kill(
    name: str, mortal_platform: PlatformProcess, tmp_path: Path
) -> None:
    platform, made, format = mortal_platform, MODELS[name], name.split()[0]
    prepared(format)
    count, params = SCENARIOS[made.dataset]
    fields: dict[str, Any] = {"dataset": made.dataset, "params": dict(params), "seed": 5, "record": "none"}
    fields |= {"model": made.make(tmp_path), "filename": made.filename}

    def digest(id: str, timeout: float = 240.0) -> str:
        ended = platform.wait_for_end(id, timeout)
        assert ended["state"] == "succeeded", ended["reason"]
        assert ended["tasks"] == {"total": count, "done": count, "failed": 0}
        return str(platform.summary(id)["results_digest"])

    def begin(workers: int, **changes: object) -> dict[str, Any]:
        return platform.submit(**fields | changes, workers=workers, scenarios={"range": [0, count]})

    first = begin(1)
    assert first["model"]["format"] == format
    expected = digest(first["id"], FIRST)
    assert len({str(result["metrics"]) for result in platform.results(first["id"])}) > 2

    for workers in (1, 2, 3):
        assert digest(begin(workers)["id"]) == expected, f"on {workers} workers"

    killed = begin(2)["id"]
    until(lambda: platform.get(killed)["tasks"]["done"] > 0, message="no task has been done")
    assert platform.get(killed)["state"] == "running", "it has ended before the kill"
    for role in ("evaluator", "runner"):
        platform.kill(role, random.Random(name))
    assert digest(killed) == expected, "after kills of an evaluator and of a runner"

    for worlds in (1, 7, 64):
        assert digest(begin(1, worlds=worlds)["id"]) == expected, f"in {worlds} worlds"

    if format not in NEVER_TRUSTED:
        assert digest(begin(2, trusted=True)["id"]) == expected, "in the evaluator's process"


def in_a_folder(files: Mapping[str, bytes]) -> bytes:
    """Pack a folder as macOS does, with what it adds."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(f"my policy/{name}")
            entry.external_attr = 0o755 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        archive.writestr("my policy/.DS_Store", b"Bud1")
        archive.writestr("__MACOSX/my policy/._fork", b"fork")
    return buffer.getvalue()


def unpacked(content: bytes) -> Mapping[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist() if not name.endswith("/")}


@pytest.mark.parametrize("name", sorted((*ENTRIES, *ZIPS)))
def test_a_model_in_the_one_folder_of_a_zip_has_the_same_results(
    name: str, mortal_platform: PlatformProcess, tmp_path: Path
) -> None:
    made = next(made for key, made in MODELS.items() if key.split()[0] == name)
    prepared(name)
    content = made.make(tmp_path)
    folder = in_a_folder({ENTRIES[name]: content} if name in ENTRIES else unpacked(content))
    digests = set()
    for model, filename in ((content, made.filename), (folder, "my policy.zip")):
        simulation = mortal_platform.submit(
            dataset=made.dataset, model=model, filename=filename, scenarios={"range": [0, 4]}, record="none"
        )
        assert simulation["model"]["format"] == name
        ended = mortal_platform.wait_for_end(simulation["id"], FIRST)
        assert ended["state"] == "succeeded" and ended["tasks"]["failed"] == 0, ended["reason"]
        digests.add(mortal_platform.summary(simulation["id"])["results_digest"])
    assert len(digests) == 1
