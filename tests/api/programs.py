"""Programs of API tests: submissions with a gang, whose tasks leave the files that a test names."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask.testing import FlaskClient

from core.domain.scheduling.executor_config import ExecutorConfig, GangSupport
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.services.scheduling.dispatch import Dispatch
from core.services.scheduling.reports import TaskReport
from core.store.database import Database
from datasets.objectstore import open_store
from tests.api.answers import MODEL, line
from tests.dispatching import unended
from tests.reports import report_of

BENCH = ExecutorConfig(name="bench", kind="local", workers=4, gangs=GangSupport(crowds=True))
OTHER = MODEL.replace(b"0.0", b"1.0")


@dataclass(frozen=True)
class Programs:
    """Submits programs with outputs, and reports what their tasks left."""

    client: FlaskClient
    platform: Platform

    def submit(self, outputs: Any, tasks: int = 1) -> Any:
        gang = {"size": 1, "command": ["python", "model.py"]}
        document = {"dataset": "program", "model": "mine", "scenarios": {"range": [0, tasks]}, "gang": gang}
        return self.client.post("/v1/simulations", json=document | {"outputs": outputs})

    def play(self, id: str, left: Sequence[Mapping[str, bytes]], failed: Sequence[int] = ()) -> None:
        """Report each task's files; the tasks in ``failed`` have crashed."""
        dispatch = Dispatch(
            self.platform.database, self.platform.notifier, executor_configs=[BENCH], runner_api_url="http://x"
        )
        assert dispatch.admit(next(each for each in unended(dispatch) if each.id == id), "bench")
        created = dispatch.launch(next(each for each in unended(dispatch) if each.id == id))
        assert created is not None
        leases = self.platform.scheduling.leases
        launch = leases.authenticate(created.id, created.token)
        lease: Any = None
        for task, files in enumerate(left):
            if lease is None or task >= lease.stop:
                lease = leases.lease(launch, "d", None)
            named = [{"name": name, "bytes": len(body), "digest": digest_of(body)} for name, body in files.items()]
            result = json.loads(line(task, "crashed" if task in failed else "ok")) | {"artifacts": named}
            timing = {"timing": result.pop("timing")}
            text = json.dumps(result | timing, separators=(",", ":")).encode() + b"\n"
            blobs = b"".join(files.values())
            described = [(task, name, "application/octet-stream", len(body)) for name, body in files.items()]
            report: TaskReport = report_of(lease, task, task + 1, text, artifacts=described, blobs=blobs)
            assert leases.report(launch, report).accepted
        dispatch.close(id)

    def collect(self, id: str) -> Any:
        """Finalize a simulation, once the claim of an earlier attempt has expired; return it."""
        self.platform.database.write(
            lambda c: c.exec_driver_sql("UPDATE simulations SET claim=NULL, claim_until=0 WHERE ended_at IS NULL")
        )
        self.platform.jobs.finalization.collect(id)
        return self.client.get(f"/v1/simulations/{id}").json

    def run(self, outputs: Any, left: Sequence[Mapping[str, bytes]], **options: Any) -> Any:
        """Submit, play and finalize; return the simulation."""
        submitted = self.submit(outputs, len(left))
        assert submitted.status_code == 201, submitted.json
        id = submitted.json["id"]
        self.play(id, left, **options)
        return self.collect(id)


def bench_platform(home: Path, database: Database) -> Platform:
    """Return a platform with an executor that starts gangs."""
    options = PlatformOptions(home=home, executor_configs=[BENCH], sandbox={"level": 3}, max_upload=1 << 20)
    return build(database, open_store(f"file://{home.resolve() / 'objects'}"), LocalNotifier(), options)


def digest_of(body: bytes) -> str:
    return f"sha256:{hashlib.sha256(body).hexdigest()}"
