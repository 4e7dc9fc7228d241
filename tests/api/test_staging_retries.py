"""Staging with an unavailable store or package index: the simulation waits in the queue, without end."""

import shutil
import tempfile
from pathlib import Path

import pytest
import uv
from flask.testing import FlaskClient
from sqlalchemy import text

from core.domain.access.scopes import LOCAL_CALLER, PLATFORM
from core.domain.scheduling.preparation import Preparation
from core.domain.scheduling.states import State
from core.domain.submissions.records import Simulation
from core.domain.submissions.submission import Submission
from core.services.platform import Platform
from core.services.scheduling.staging import ATTEMPTS, Staging
from core.settings import Settings
from core.store import simulations
from datasets.nodecache.node_cache import NodeCache
from runtimes import environments
from tests.contracts.hostile_program import program
from tests.ports import free_ports
from tests.staged_models import stage, staging_on, unreachable_cache
from tests.system.platform_process import share_environments


@pytest.fixture
def unreachable_staging(platform: Platform, settings: Settings) -> Staging:
    """Staging on a node whose object store refuses connections."""
    share_environments(settings.home)
    return staging_on(platform, unreachable_cache(settings.home), settings.home)


def stage_often(platform: Platform, staging: Staging, model: str) -> Simulation:
    """Stage a simulation more often than a refusal would allow; assert that it is queued after each attempt."""
    simulation, _ = platform.submissions.simulations.submit(
        LOCAL_CALLER, Submission(dataset="noop", runtime="python", model=model)
    )
    for _ in range(ATTEMPTS + 2):
        stage(platform, staging, simulation.id)
        with platform.database.read() as c:
            row = simulations.find(c, PLATFORM, simulation.id)
            assert row.not_before > platform.database.now(c)
        assert (row.state, row.attempt) == ("queued", 1)
    return platform.submissions.simulations.get(LOCAL_CALLER, simulation.id)


def test_staging_is_tried_again_without_end_while_the_store_is_away(
    platform: Platform, unreachable_staging: Staging, model: str, client: FlaskClient
) -> None:
    waiting = stage_often(platform, unreachable_staging, model)
    body = client.get(f"/v1/simulations/{waiting.id}").json
    assert body["state"] == "queued" and body["next_attempt_at"] is not None
    assert body["reason"].startswith("tried again in ") and "does not answer" in body["reason"]


def test_staging_waits_for_an_unavailable_package_index_and_says_so(
    platform: Platform, settings: Settings, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("UV_CACHE_DIR", str(tmp_path / "empty"))
    monkeypatch.setenv("UV_INDEX_URL", f"http://127.0.0.1:{free_ports(1)[0]}")
    monkeypatch.setenv("UV_HTTP_RETRIES", "0")
    staging = staging_on(platform, NodeCache(tmp_path / "node", platform.store), tmp_path)
    waiting = stage_often(platform, staging, model)
    assert waiting.reason and "the environment could not be prepared: " in waiting.reason


@pytest.mark.parametrize("own", [True, False])
def test_an_installer_that_is_killed_is_tried_again_and_the_model_is_not_to_blame(
    platform: Platform,
    settings: Settings,
    client: FlaskClient,
    model: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    own: bool,
) -> None:
    """Of a model's own packages, and of the platform's."""
    if own:
        source = '# /// script\n# dependencies = ["alpha"]\n# ///\nclass Model:\n    def act(self, observation): ...\n'
        client.put("/v1/models/mine?filename=model.py", data=source.encode(), content_type="application/octet-stream")
        share_environments(settings.home)
    home = settings.home if own else tmp_path
    programs = Path(tempfile.mkdtemp(prefix="killed-uv-"))
    programs.chmod(0o755)
    killed = program(programs, {}, "os.kill(os.getpid(), 9)")
    staging = staging_on(platform, NodeCache(tmp_path / "node", platform.store), home, indexes=("http://127.0.0.1:9/",))
    simulation, _ = platform.submissions.simulations.submit(
        LOCAL_CALLER, Submission(dataset="noop", runtime="python", model=model)
    )
    monkeypatch.setattr(uv, "find_uv_bin", lambda: str(killed))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:9")  # which the program reads
    stage(platform, staging, simulation.id)
    shutil.rmtree(programs)
    waiting = platform.submissions.simulations.get(LOCAL_CALLER, simulation.id)
    assert waiting.state is State.QUEUED and waiting.reason and "uv, was killed by SIGKILL" in waiting.reason


def test_packages_that_the_index_refuses_end_a_simulation(
    platform: Platform, settings: Settings, model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object) -> None:
        raise environments.preparation_error("Hash mismatch for `numpy==2.3.4`")

    monkeypatch.setattr(environments, "ready", lambda *arguments: None)
    monkeypatch.setattr(environments, "prepare", refuse)
    simulation, _ = platform.submissions.simulations.submit(
        LOCAL_CALLER, Submission(dataset="noop", runtime="python", model=model)
    )
    for _ in range(ATTEMPTS):
        stage(platform, platform.scheduling.staging, simulation.id)
    platform.jobs.finalization.collect(simulation.id)
    ended = platform.submissions.simulations.get(LOCAL_CALLER, simulation.id)
    assert ended.state is State.ERRORED and ended.reason and "Hash mismatch" in ended.reason


@pytest.mark.parametrize(("column", "name"), [("provenance", "Provenance"), ("bundle", "PackedFiles")])
def test_a_stored_document_that_cannot_be_read_ends_a_simulation_with_the_reason(
    platform: Platform, model: str, column: str, name: str
) -> None:
    simulation, _ = platform.submissions.simulations.submit(
        LOCAL_CALLER, Submission(dataset="noop", runtime="python", model=model)
    )
    move = {"executor": "local", "preparation": Preparation.QUICK.value}
    platform.database.write(lambda c: simulations.move(c, simulation.id, State.QUEUED, State.STAGING, 0.0, **move))
    damage = text(f"UPDATE simulations SET {column}='[]'")
    platform.database.write(lambda c: c.execute(damage) and None)
    platform.scheduling.staging.stage(simulation.id)
    with platform.database.read() as c:
        row = simulations.find(c, PLATFORM, simulation.id)
    assert row.outcome == "errored" and row.reason and f"a {name} that cannot be read" in row.reason
