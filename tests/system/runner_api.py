"""The runner API over a real database and object store, with one simulation that waits for a runner."""

import json
import socket
import subprocess
import threading
from collections.abc import Iterable, Mapping
from pathlib import Path
from socketserver import ThreadingMixIn
from typing import Any
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

import msgspec
from sqlalchemy import text

from api import runner_api as runner_api_routes
from common.ids import digest_of, hashed
from core.domain.access.scopes import PLATFORM
from core.domain.scheduling.states import State
from core.domain.usage.granted_resources import GrantedResources
from core.notifications.change_notifier import ChangeNotifier
from core.notifications.local_notifier import LocalNotifier
from core.services.scheduling.leases import CACHE_TTL, CachedLaunch, LeaseOptions, Leases
from core.services.simulations.looks import TaskLooks
from core.services.uploads.models import key_of
from core.store import launches, leases, simulations
from datasets.objectstore.filesystem import FilesystemStore
from tests.databases import sqlite_database
from tests.provenances import provenance
from tests.waiting import TIMEOUT, until

SIMULATION, LAUNCH, TOKEN = "s1", "s1x1x0", "secret"


class _Server(ThreadingMixIn, WSGIServer):
    daemon_threads = True


class _QuietRequestHandler(WSGIRequestHandler):
    def log_message(self, format: str, *args: Any) -> None:
        return


def _bundle_key(data: bytes) -> str:
    return f"plays/{digest_of(data).removeprefix('sha256:')}"


class _LeasesOfTestDatasets(Leases):
    """Leases that describe datasets which exist in tests only."""

    def describe(self, launch: CachedLaunch) -> dict[str, Any]:
        with self._database.read() as c:
            row = simulations.find(c, PLATFORM, launch.simulation)
        document = json.loads(row.provenance)
        play = {"definition": {"task_patience": 1.0}} | document["play"]
        files = self.files.describe(row)  # most tests need none
        model = self.describe_model(row.digest, document["model"]["format"])
        return {
            "launch": launch.id,
            "workers": launch.workers,
            "play": play,
            "model": model,
            "files": files,
            "largest_output": 1 << 30,
            "shown": self.looks.allowed,
        }


class RunnerApi:
    """One simulation with ``total`` tasks, and the runner API on which a runner processes it.

    With a ``gang``, its tasks may be looked into.
    """

    def __init__(
        self,
        folder: Path,
        *,
        total: int,
        play: Mapping[str, Any],
        workers: int = 2,
        ttl: float = 10.0,
        model: bytes | None = None,
        packed: bytes | None = None,
        environment: bytes | None = None,
        described: Mapping[str, Any] | None = None,
        host: str = "127.0.0.1",
        launched: bool = True,
        cache_ttl: float = CACHE_TTL,
        gang: Mapping[str, Any] | None = None,
    ) -> None:
        self._gang = gang
        self._host = host
        self._launched = launched
        self.database = sqlite_database(folder / "runner_api.db")
        self.store = FilesystemStore(folder / "objects")
        self.notifier = LocalNotifier()
        options = LeaseOptions(ttl=ttl, cache_ttl=cache_ttl, looks=gang is not None)
        self.leases = _LeasesOfTestDatasets(self.database, self.store, self.notifier, options=options)
        changes = ChangeNotifier(self.database, LocalNotifier(), interval=0.1)
        self.looks = TaskLooks(self.database, self.notifier, changes, allowed=gang is not None, slots=8)
        self.requests: list[str] = []
        self.application = runner_api_routes.create(self.leases)
        self._server: _Server | None = None
        self._port = 0
        bundles = self._store_bundles(packed, environment)
        described = {**(described or {}), "digest": self._store_model(model)}
        self._insert_simulation(total, play, workers, described, bundles)
        self.listen()

    def _store_model(self, model: bytes | None) -> str:
        """Store a model for runners that download it; return its digest."""
        if model is None:
            return "d"
        digest = digest_of(model)
        self.store.put(key_of(digest), (model,))
        return digest

    def _store_bundles(self, play: bytes | None, environment: bytes | None) -> str | None:
        """Store what a runner downloads, packed as staging packs it; return the simulation's `bundle` column."""
        bundles = {name: data for name, data in (("play", play), ("environment", environment)) if data is not None}
        for data in bundles.values():
            self.store.put(_bundle_key(data), (data,))
        described = {
            name: {"key": _bundle_key(data), "digest": digest_of(data), "size": len(data)}
            for name, data in bundles.items()
        }
        return json.dumps(described) if described else None

    def _insert_simulation(
        self,
        total: int,
        play: Mapping[str, Any],
        workers: int,
        model: Mapping[str, Any],
        bundle: str | None = None,
    ) -> None:
        tasks = {"seed": 0, "dataset": "d", "total_scenarios": total, "select": {"range": [0, total]}}
        plan = tasks | {"sweep": {}, "repeat": 1, "params": {}}
        document = provenance(model=model, play={"tasks": plan}).document()
        document["play"] |= play
        spec = json.dumps({"gang": self._gang} if self._gang else {})
        row = {"id": SIMULATION, "project": "default", "state": "launching", "spec": spec, "labels": "{}"}
        row |= {
            "provenance": json.dumps(document),
            "dataset": "d",
            "runtime": "python",
            "model": "m",
            "digest": model["digest"],
            "bundle": bundle,
        }
        stage = {"id": "s1.0", "simulation_id": SIMULATION, "ordinal": 0, "total": total, "state": "open", "align": 1}
        self._row = {"id": LAUNCH, "simulation_id": SIMULATION, "attempt": 1, "executor": "local", "state": "live"}
        self._row |= {"token_hash": "", "resources": json.dumps({"cpu": workers, "done": 0})}
        self.database.write(lambda c: simulations.add(c, row | {"created_at": 0.0}, stage))
        if self._launched:
            self.launch()

    def launch(self, token: str = TOKEN, *, id: str = LAUNCH, token_hash: str = "") -> None:
        """Insert the launch, as the dispatcher does, and notify the runners that wait for it."""
        self._row |= {"id": id, "token_hash": token_hash or hashed(token)}
        self.database.write(lambda c: launches.add(c, id, 0.0, self._row, GrantedResources()))
        self.notifier.publish(id)

    @property
    def url(self) -> str:
        """The URL of the runner API."""
        return f"http://{self._host}:{self._port}"

    def listen(self) -> None:
        """Listen, on the same port as before if there was one."""
        self._server = make_server(self._host, self._port, self._application, _Server, _QuietRequestHandler)
        self._port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    def stop_listening(self) -> None:
        """Stop listening: connections are refused."""
        assert self._server is not None
        self._server.shutdown()
        self._server.server_close()

    def close_connections(self, times: int) -> None:
        """Listen in the server's place; close this number of connections without a response."""
        with socket.create_server((self._host, self._port)) as listener:
            listener.settimeout(TIMEOUT)
            for _ in range(times):
                listener.accept()[0].close()

    def _application(self, environ: dict[str, Any], start: Any) -> Iterable[bytes]:
        self.requests.append(environ["PATH_INFO"].rpartition("/")[2])
        return self.application(environ, start)

    def results(self) -> list[dict[str, Any]]:
        """Return every result line in task order, after checking that segments neither overlap nor leave a gap."""
        with self.database.read() as c:
            rows = c.execute(text('SELECT start, stop, object, "offset", bytes FROM segments ORDER BY start')).all()
        results: list[dict[str, Any]] = []
        for start, stop, key, offset, size in rows:
            data = b"".join(self.store.get(key, offset, size))
            results += msgspec.json.Decoder().decode_lines(data)
            assert len(results) == stop and start == stop - data.count(b"\n")
        return results

    def state(self) -> tuple[str, str | None]:
        """Return the simulation's state, or the state in which it is to end, and the reason."""
        with self.database.read() as c:
            row = simulations.find(c, PLATFORM, SIMULATION)
        return row.outcome or row.state, row.reason

    def logs(self) -> str:
        """Return the output of all processes."""
        with self.database.read() as c:
            rows = c.execute(text("SELECT name, object FROM logs ORDER BY seq")).all()
        return "".join(f"{name}: {b''.join(self.store.get(key)).decode()}" for name, key in rows)

    def cancel(self) -> None:
        """End the simulation, so that its launch is over."""

        def end(c: Any) -> None:
            state = State(simulations.find(c, PLATFORM, SIMULATION).state)
            simulations.move(c, SIMULATION, state, State.CANCELLING, 0.0)
            launches.end(c, self._row["id"], 0.0)

        self.database.write(end)

    def count_leases(self) -> int:
        """Return the number of active leases of the launch."""
        with self.database.read() as c:
            return len(leases.of_launch(c, SIMULATION, LAUNCH))

    def release(self) -> None:
        """Release the leases of the launch, as the dispatcher does when a launch has ended."""

        def release_all(c: Any) -> None:
            for stage, start, fencing_token in leases.of_launch(c, SIMULATION, LAUNCH):
                leases.release(c, stage, start, fencing_token, blame=False)

        self.database.write(release_all)

    def settle(self) -> None:
        """Do one pass of the dispatcher: settle poisoned tasks, and close the stage when all its tasks are done."""
        self.leases.settle()
        self.database.write(
            lambda c: c.execute(
                text(
                    "UPDATE stages SET state='done' WHERE state='open' AND next=total"
                    " AND NOT EXISTS(SELECT 1 FROM ranges WHERE state<>'done')"
                )
            )
        )

    def settle_until_exit(self, process: "subprocess.Popen[Any]", timeout: float = 120.0) -> None:
        """Repeat the dispatcher's pass until a process has exited."""

        def exited() -> bool:
            if process.poll() is None:
                self.settle()
                return False
            return True

        until(exited, timeout, lambda: f"process {process.pid} still runs; last requests: {self.requests[-20:]}")

    def close(self) -> None:
        """Stop the server and close the database."""
        self.stop_listening()
        self.database.close()
