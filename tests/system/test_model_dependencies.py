"""Python models with dependencies, from the upload to the results: resolved once, installed once, kept for ever."""

import io
import tarfile
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.contracts.package_index import PackageIndex, wheel
from tests.system.conftest import StartPlatform
from tests.system.platform_process import PlatformProcess, has_one_result_per_task
from tests.waiting import until

#: Reports the version of its package as an action of noop.
MODEL = """
import alpha
class Model:
    def act(self, observation):
        return [alpha.VERSION, 0.0, 0.0, 0.0]
"""
SCRIPT = f"""# /// script
# dependencies = ["alpha"]
# ///
{MODEL}"""


def archive(**files: str) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as packed:
        for name, text in files.items():
            packed.writestr(name.replace("_", "."), text)
    return buffer.getvalue()


def alpha(version: float) -> tuple[str, bytes]:
    return wheel("alpha", str(version), {"alpha.py": f"VERSION = {version}\n".encode()})


@pytest.fixture
def index() -> Iterator[PackageIndex]:
    server = PackageIndex(alpha(1.0))
    yield server
    server.close()


@pytest.fixture
def platform_of(index: PackageIndex, start_platform: StartPlatform) -> PlatformProcess:
    """A platform whose first index is the test's own; numpy and msgspec come from the public one."""
    return start_platform(workers=2, package_indexes=f"{index.url},https://pypi.org/simple")


def values(results: list[dict[str, Any]]) -> set[float]:
    return {result["metrics"]["value"] for result in results}


def run(platform: PlatformProcess, model: bytes, filename: str, **fields: Any) -> dict[str, Any]:
    fields = {"dataset": "noop", "scenarios": {"range": [0, 20]}} | fields
    return platform.run(model=model, filename=filename, **fields)


def test_a_models_packages_are_resolved_once_and_every_later_run_uses_the_same_lock(
    platform_of: PlatformProcess, index: PackageIndex, tmp_path: Path
) -> None:
    model = archive(model_py=MODEL, requirements_txt="alpha\n")
    first = run(platform_of, model, "policy.zip")
    assert first["state"] == "succeeded", first
    results = platform_of.results(first["id"])
    assert has_one_result_per_task(results, 20) and values(results) == {1.0}
    events = platform_of.http.get(f"/v1/simulations/{first['id']}/events", headers={"Accept": "text/event-stream"}).text
    assert "resolving 1 requirements of requirements.txt" in events and "installing" in events
    record = platform_of.http.get("/v1/models/policy").json()
    assert record["dependencies"] == {"file": "requirements.txt", "requirements": ["alpha"], "python": None}
    lock = platform_of.http.get("/v1/models/policy/lock").text
    assert "alpha==1.0" in lock and "numpy==" in lock and "--hash=sha256:" in lock

    index.packages |= dict([alpha(2.0)])
    again = run(platform_of, model, "policy.zip")
    assert values(platform_of.results(again["id"])) == {1.0}, "the kept lock, not today's index"
    assert platform_of.summary(again["id"])["results_digest"] == platform_of.summary(first["id"])["results_digest"]
    assert again["provenance"] == first["provenance"]
    other = run(platform_of, archive(model_py=MODEL + "\n", requirements_txt="alpha\n"), "other.zip")
    assert values(platform_of.results(other["id"])) == {2.0}, "another content is resolved when it is first used"

    with io.BytesIO(platform_of.http.get(f"/v1/simulations/{first['id']}/archive").content) as raw:
        names = zipfile.ZipFile(raw).namelist() if zipfile.is_zipfile(raw) else tarfile.open(fileobj=raw).getnames()
    assert any(name.endswith("lock.txt") for name in names)


def test_models_with_equal_locks_share_an_environment(platform_of: PlatformProcess) -> None:
    script = run(platform_of, SCRIPT.encode(), "script.py")
    packed = run(platform_of, archive(model_py=MODEL, requirements_txt="alpha==1.*\n"), "packed.zip")
    assert script["state"] == packed["state"] == "succeeded"
    assert script["provenance"]["runtime"]["environment"] == packed["provenance"]["runtime"]["environment"]
    trees = list((platform_of.home / "cache" / "trees").glob("*/site"))
    assert len(trees) == 1


@pytest.mark.parametrize(
    ("requirements", "reason"),
    [("alpha>=7\n", "only alpha==1.0 is available"), ("nonexistent-package-of-a-test\n", "was not found")],
)
def test_dependencies_that_cannot_be_had_end_the_simulation_with_the_resolvers_reason(
    platform_of: PlatformProcess, requirements: str, reason: str
) -> None:
    ended = run(platform_of, archive(model_py=MODEL, requirements_txt=requirements), "policy.zip")
    assert ended["state"] == "failed" and reason in ended["reason"], ended
    assert ended["tasks"]["done"] == 0


def test_a_declaration_that_is_not_accepted_is_refused_at_the_upload(platform_of: PlatformProcess) -> None:
    model = archive(model_py=MODEL, requirements_txt="alpha\n--index-url https://example.com/simple\n")
    answer = platform_of.http.post("/v1/models", files={"file": ("policy.zip", model)})
    assert answer.status_code == 422
    problem = answer.json()
    assert problem["type"].endswith("bad-requirements") and "line 2" in problem["detail"]


def test_a_simulation_waits_while_the_index_is_away_and_goes_on_when_it_is_back(
    platform_of: PlatformProcess, index: PackageIndex
) -> None:
    index.failing = 503
    model = archive(model_py=MODEL, requirements_txt="alpha\n")
    id = platform_of.submit(model=model, filename="policy.zip", dataset="noop", scenarios={"range": [0, 20]})["id"]
    until(lambda: platform_of.get(id)["reason"] is not None, message="the simulation does not say what it waits for")
    assert platform_of.get(id)["state"] in {"queued", "staging"}
    index.failing = 0
    assert platform_of.wait_for_end(id)["state"] == "succeeded"
