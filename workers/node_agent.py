"""Node agent: keeps warm runners ready on this machine, starts launches on them and supervises these.

One thread, one event loop. A launch is running as long as its runner holds the lock in the launch's folder.
"""

import asyncio
import contextlib
import fcntl
import json
import logging
import os
import random
import shutil
import socket
import struct
import time
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from typing import Any

import msgspec

from common.ages import is_old_enough
from common.errors import NotPrepared, PlatformError, StoreUnavailable, Unsafe
from core.domain.scheduling.launches import Launch, LaunchStatus, Note, Phase
from core.services.scheduling.compiled_models import stored_model
from datasets.nodecache.model_files import ModelFiles
from runtimes import formats
from workers.local_gangs import GangProcess, local_gang_spec
from workers.warm_runner_pool import WarmRunnerOptions, WarmRunnerPool
from workers.warm_runners import ControlledRunner, PreparedFolders, WarmKind

logger = logging.getLogger(__name__)

#: Seconds a runner has to end before it is killed.
DISMISS_TIMEOUT = 2.0
#: Seconds in which a model has to arrive; staging fetches it without this limit, and says what it waits for.
FETCH_TIMEOUT = 10.0
#: Folders of ended launches that are kept: this many, and all younger than this many seconds.
KEPT, KEPT_FOR = 50, 3600.0
#: Seconds between two searches for such folders.
REMOVAL_INTERVAL = 10.0
#: The most bytes of a request line.
MAX_REQUEST = 1 << 20
#: Properties of a launch that decide which warm runner can take it.
WARM_FIELDS = tuple(field.name for field in fields(WarmKind))
_CREDENTIALS = struct.Struct("3i")


class AlreadyRunning(Exception):
    """Another node agent serves this home."""


@dataclass(slots=True, eq=False)
class RunningLaunch:
    """A launch on this machine; it has no runner while its model is being downloaded."""

    workers: int
    folder: Path
    runner: ControlledRunner | None = None
    notes: tuple[Note, ...] = ()
    cores: tuple[int, ...] = ()


class Agent:
    """Serves the local executor's requests and owns the runners. ``refusal``: why no launch may be started, if so."""

    def __init__(
        self,
        *,
        home: Path,
        models: ModelFiles,
        cores: int,
        sandbox: int | None,
        refusal: str | None,
        warm: WarmRunnerOptions,
        fetch_timeout: float = FETCH_TIMEOUT,
    ) -> None:
        self._launches = home / "launches"
        self._models = models
        self._run = home / "run"
        self._cores = cores
        self._refusal = refusal
        self._sandbox = sandbox
        self._prepared = PreparedFolders.below(home)
        self._fetch_timeout = fetch_timeout
        self._running: dict[str, RunningLaunch] = {}
        self._inherited: set[str] = set()  # launches of a previous agent process whose runners may still run
        self._remove_at = 0.0
        self._lock: int | None = None  # descriptor of the locked file; closing it would release the lock
        self._pool = WarmRunnerPool(
            home=home,
            cores=cores,
            sandbox=sandbox,
            options=warm,
            on_end=self._on_end,
        )

    # -- life

    async def serve(self, stop: asyncio.Event) -> None:
        """Serve requests until ``stop`` is set; then end every runner and remove the socket.

        Raise AlreadyRunning, before anything is changed, if another process is the agent of this home.
        """
        for folder in (self._launches, self._run):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        self._lock = self._acquire_lock()
        self._inherited = {folder.name for folder in self._launches.iterdir()}
        self._pool.prepare()
        path = self._run / "agent.sock"
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._serve_connection, path, limit=MAX_REQUEST)
        logger.info("node agent is ready with %d cores", self._cores)
        refilling = asyncio.create_task(self._keep_warm())
        await stop.wait()
        server.close()
        refilling.cancel()
        in_use = [launch.runner for launch in self._running.values() if launch.runner]
        await asyncio.gather(*(self._end(runner) for runner in in_use))
        await self._pool.close(self._end)
        path.unlink(missing_ok=True)

    def _acquire_lock(self) -> int:
        """Lock this home for the life of this process. The lock is the process's: no child of it keeps it."""
        lock = os.open(self._run / "agent.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except (BlockingIOError, PermissionError):
            pid = os.pread(lock, 20, 0).decode() or "unknown"
            os.close(lock)
            raise AlreadyRunning(
                f"A node agent of this home runs already (process {pid}). Stop it first, or set WINDTUNNEL_HOME to"
                " another home."
            ) from None
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
        return lock

    async def _keep_warm(self) -> None:
        if self._refusal is None:
            await self._pool.keep()

    async def _serve_connection(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve a connection: one JSON object per line. Only this user and root may connect."""
        peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(peer)[1] not in {os.getuid(), 0}:
            writer.close()
            return
        # CancelledError: at the agent's end, whose streams would log a cancelled task as an error.
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError, asyncio.CancelledError):
            while line := await reader.readline():
                writer.write(json.dumps(await self._execute(line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _execute(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            return {"answer": await self._VERBS[request.pop("verb")](self, **request)}
        except PlatformError as error:
            return {"error": error.slug, "detail": error.detail}
        except Exception as error:
            logger.exception("node agent: a request failed")
            return {"error": PlatformError.slug, "detail": f"The node agent failed: {type(error).__name__}."}

    # -- requests

    async def submit(self, launch: Mapping[str, Any]) -> None:
        """Download the model and start the launch on a warm runner; no-op if the launch is known already."""
        if self._refusal is not None:
            raise Unsafe(self._refusal)
        id = launch["id"]
        folder = self._launches / id
        if id in self._running or folder.exists():
            return
        is_gang = launch.get("gang") is not None
        take = self._take_gang if is_gang else self._take_runner
        self._running[id] = running = RunningLaunch(launch["workers"], folder)
        try:
            model = await self._model_of(launch, placed=not is_gang)
            if self._running.get(id) is running:  # it was not cancelled in the meantime
                self._start(launch, running, model, *take(launch, model))
        except BaseException:
            self._running.pop(id, None)
            shutil.rmtree(folder, ignore_errors=True)
            raise

    async def _model_of(self, launch: Mapping[str, Any], *, placed: bool) -> Path:
        """Return the file of a launch's model, or its folder. Raise StoreUnavailable if it does not arrive in time.

        The executor's other calls wait for this one. The thread goes on: what it fetches is there for the next attempt.
        ``placed``: as its format has it; else, whatever its format is, a program's command alone reads it.
        """
        model = stored_model(launch["runtime"], launch["format"], launch["model_digest"], launch["model_key"])
        if not placed:
            model = replace(model, placed="", toolchain="")
        fetched = asyncio.to_thread(self._models.path, model, holder=launch["simulation_id"])
        try:
            return await asyncio.wait_for(fetched, self._fetch_timeout)
        except TimeoutError:
            raise StoreUnavailable(
                f"the model has not arrived from the object store within {self._fetch_timeout:g} s"
            ) from None

    def _take_runner(self, launch: Mapping[str, Any], _: Path) -> tuple[ControlledRunner, tuple[Note, ...]]:
        """Return a warm runner for a launch, and what is to be noted of it."""
        kind = WarmKind(**{field: launch[field] for field in WARM_FIELDS})
        cold = kind not in self._pool.kinds
        runner = self._pool.take(kind, launch["workers"])
        if runner is None:
            raise NotPrepared(
                f"The environments of runtime {kind.runtime}, or the scenarios of dataset {kind.dataset}, are not on"
                " this machine; they are staged again."
            )
        self._pool.record_use(kind)
        return runner, (cold_start(kind),) if cold else ()

    def _take_gang(self, launch: Mapping[str, Any], model: Path) -> tuple[ControlledRunner, tuple[Note, ...]]:
        """Return the runner of a gang."""
        if self._sandbox is not None and self._sandbox < 3:
            raise Unsafe(
                "This machine has no namespaces in which a gang could have a network of its own. Set"
                " WINDTUNNEL_SANDBOX=none to run gangs unconfined, or run them on Kubernetes."
            )
        gang = local_gang_spec(msgspec.convert(launch, Launch), self._prepared, self._sandbox, model)
        if gang is None:
            raise NotPrepared(
                f"What the program of simulation {launch['simulation_id']} needs is not on this machine; it is staged"
                " again."
            )
        runner = GangProcess(gang, self._run / f"{launch['id']}.log")
        loop = asyncio.get_running_loop()
        loop.add_reader(runner.end, self._on_gang_end, loop, runner)
        return runner, tuple(self._crowded_notes(gang.ranks))

    def _crowded_notes(self, ranks: int) -> Iterator[Note]:
        """Yield a note if a gang has more ranks than this machine has processors for it."""
        if ranks > self._cores:
            yield Note(
                key="crowded",
                message=f"{ranks} ranks share {self._cores} processors: each waits for the others' turns, so times say"
                " nothing of how the program scales",
            )

    def _on_gang_end(self, loop: asyncio.AbstractEventLoop, runner: GangProcess) -> None:
        if runner.ended:
            loop.remove_reader(runner.end)
            runner.reap()
            self._on_end(runner)

    def _start(
        self,
        launch: Mapping[str, Any],
        running: RunningLaunch,
        model: Path,
        runner: ControlledRunner,
        notes: tuple[Note, ...],
    ) -> None:
        running.runner, running.notes = runner, notes
        running.folder.mkdir()
        runner.log = runner.log.rename(running.folder / "runner.log")
        lock = os.open(running.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            running.cores = self._free_cores(running.workers)
            document = {"launch": launch["id"], "token": launch["token"], "url": launch["url"]}
            document |= {"workers": running.workers, "model": str(model), "cores": running.cores}
            document |= {"folder": str(running.folder), "builds": str(self._prepared.builds)}
            runner.start_launch(document, lock)
        finally:
            os.close(lock)
        logger.info("launch %s started", launch["id"], extra={"launch": launch["id"]})

    def _free_cores(self, count: int) -> tuple[int, ...]:
        """Return a core for each worker, or none if too few are free: then the kernel schedules the processes.

        One worker ran 21,500 no-op tasks/s on one core and 7,700 on two; two workers on two cores 40,000 either way.
        The choice is random, so that several platforms on one machine do not all use the first core.
        """
        held = {core for launch in self._running.values() for core in launch.cores}
        free = sorted(os.sched_getaffinity(0) - held)
        return tuple(random.sample(free, count)) if len(free) >= count else ()

    async def observe(self, ids: list[str]) -> dict[str, Any]:
        """Return the statuses of the launches that are known."""
        statuses = {id: self._status(id) for id in ids}
        return {id: asdict(status) for id, status in statuses.items() if status is not None}

    def _status(self, id: str) -> LaunchStatus | None:
        running = self._running.get(id)
        if running is not None:
            phase = Phase.STARTING if running.runner is None else Phase.RUNNING
            return LaunchStatus(id=id, phase=phase, notes=running.notes)
        folder = self._launches / id
        if not folder.is_dir():
            return None
        if alive(folder):  # a previous agent process started it, and its runner has not exited yet
            return LaunchStatus(id=id, phase=Phase.RUNNING)
        try:
            ended = json.loads((folder / "ended.json").read_bytes())
        except (OSError, ValueError):
            ended = {"exit": None, "reason": "the node agent that supervised it ended"}
        return LaunchStatus(id=id, phase=Phase.ENDED, **ended)

    async def cancel(self, id: str) -> None:
        """End a launch's processes and remove its folder."""
        running = self._running.pop(id, None)
        if running is not None and running.runner is not None:
            await self._end(running.runner)
        shutil.rmtree(self._launches / id, ignore_errors=True)

    async def running(self) -> list[str]:
        """Return the running launches, also those that a previous agent process started."""
        self._inherited = {id for id in self._inherited if alive(self._launches / id)}
        return [*self._running, *self._inherited]

    async def warm_grants(self) -> list[dict[str, object]]:
        """Return what the warm runners have that wait for a launch."""
        return [asdict(grant) for grant in self._pool.grants()]

    _VERBS: Mapping[str, Callable[..., Awaitable[Any]]] = {
        "submit": submit,
        "observe": observe,
        "cancel": cancel,
        "running": running,
        "warm_grants": warm_grants,
    }

    # -- runners

    def _on_end(self, runner: ControlledRunner) -> None:
        """Record how a launch ended whose runner has ended."""
        for id, launch in list(self._running.items()):
            if launch.runner is runner:
                del self._running[id]
                text = json.dumps({"exit": runner.exit, "reason": runner.reason})
                (launch.folder / "ended.json").write_text(text)
                logger.info("launch %s ended: %s", id, runner.reason, extra={"launch": id})
                self._remove_old_folders()

    async def _end(self, runner: ControlledRunner) -> None:
        if runner.exit is not None:
            return
        runner.dismiss()
        try:
            await asyncio.wait_for(runner.over.wait(), DISMISS_TIMEOUT)
        except TimeoutError:
            runner.kill()
            await runner.over.wait()

    def _remove_old_folders(self) -> None:
        """Remove the folders of launches that ended long ago; now and then, because it reads all of them."""
        if time.monotonic() < self._remove_at:
            return
        self._remove_at = time.monotonic() + REMOVAL_INTERVAL
        ended = [path.parent for path in self._launches.glob("*/ended.json")]
        ended.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in ended[KEPT:]:
            if is_old_enough(folder.stat().st_mtime, KEPT_FOR, time.time()):
                shutil.rmtree(folder, ignore_errors=True)


def cold_start(kind: WarmKind) -> Note:
    """Return the note of a launch for which no warm runner was there, so that libraries are imported first."""
    format = formats.formats()[kind.format]
    imports = f"import {', '.join(format.packages)}" if format.packages else "import their libraries"
    message = (
        f"no warm runner was there for {format.title} and {kind.dataset}: its processes are started, and {imports}"
    )
    return Note(key="cold", message=message)


def alive(folder: Path) -> bool:
    """Return whether a runner holds the lock in a launch's folder."""
    try:
        lock = os.open(folder / "lock", os.O_RDWR | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False
