"""The agent: keeps warm runners warm on this machine and supervises the launches they are given.

One thread, one event loop; a launch lives as long as somebody holds the lock in its folder.
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
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from core.domain.launches import LaunchStatus, Phase
from datasets.nodecache.node_cache import NodeCache
from errors import PlatformError, Unsafe
from workers.warm_runners import Kind, WarmRunner, kit_for

logger = logging.getLogger(__name__)

#: Seconds a warm runner has to end when asked to.
PATIENCE = 2.0
#: Ended launches whose folders are kept, and for how many seconds at least.
KEPT, KEPT_FOR = 50, 3600.0
#: Bytes of one request, and of one piece of a log.
LONGEST, PIECE = 1 << 20, 64 << 10
_CREDENTIALS = struct.Struct("3i")


@dataclass(frozen=True, slots=True)
class WarmTimings:
    """Timings of an agent's warm runners, in seconds."""

    #: From the moment a warm runner is taken until its successor is started, so that the launch gets the machine first.
    refill: float = 0.5
    #: Between two checks for missing warm runners; an environment may have become ready.
    check: float = 2.0


@dataclass(slots=True, eq=False)
class Running:
    """A launch on this machine; no warm runner yet while its model is being staged."""

    workers: int
    folder: Path
    warm_runner: WarmRunner | None = None
    cores: tuple[int, ...] = ()


class Agent:
    """Answers the local executor and holds the warm runners."""

    def __init__(
        self,
        *,
        home: Path,
        cache: NodeCache,
        cores: int,
        kinds: int,
        sandbox: int | None,
        refusal: str | None,
        promised: Kind | None,
        timings: WarmTimings | None = None,
    ) -> None:
        self._launches = home / "launches"
        self._cache = cache
        self._environments = home / "environments"
        self._plays = home / "plays"
        self._run = home / "run"
        self._cores = cores
        self._kinds = kinds
        self._sandbox = sandbox
        self._refusal = refusal
        self._timings = timings or WarmTimings()
        self._running: dict[str, Running] = {}
        self._warm: dict[Kind, WarmRunner] = {}
        self._made = 0
        self._recent = self._remembered(promised)
        self._not_before = 0.0
        self._failures = 0  # warm runners in a row that ended unused
        self._look = asyncio.Event()
        self._stopping = False

    # -- life

    async def serve(self, stop: asyncio.Event) -> None:
        """Listen until told to stop; then end every warm runner and leave nothing behind."""
        for folder in (self._launches, self._run, self._warm_runners):
            folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder.chmod(0o700)
        path = self._run / "agent.sock"
        path.unlink(missing_ok=True)
        server = await asyncio.start_unix_server(self._answer, path, limit=LONGEST)
        logger.info("agent ready with %d cores", self._cores)
        keeping = asyncio.create_task(self._keep_warm())
        await stop.wait()
        server.close()
        keeping.cancel()
        self._stopping = True
        warm_runners = [*self._warm.values(), *(one.warm_runner for one in self._running.values() if one.warm_runner)]
        await asyncio.gather(*(self._end(warm_runner) for warm_runner in warm_runners))
        path.unlink(missing_ok=True)

    @property
    def warm_kinds(self) -> list[Kind]:
        """Kinds for which a warm runner is warm."""
        return list(self._warm)

    @property
    def _warm_runners(self) -> Path:
        return self._run / "warm_runners"

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve one connection: lines of JSON, from this user or root."""
        peer = writer.get_extra_info("socket").getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(peer)[1] not in {os.getuid(), 0}:
            writer.close()
            return
        with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
            while line := await reader.readline():
                writer.write(json.dumps(await self._obey(line)).encode() + b"\n")
                await writer.drain()
        writer.close()

    async def _obey(self, line: bytes) -> dict[str, Any]:
        try:
            request = json.loads(line)
            return {"answer": await self._VERBS[request.pop("verb")](self, **request)}
        except PlatformError as error:
            return {"error": error.slug, "detail": error.detail}
        except Exception as error:
            logger.exception("a request failed")
            return {"error": PlatformError.slug, "detail": f"The agent failed: {type(error).__name__}."}

    # -- verbs

    async def submit(self, launch: Mapping[str, Any]) -> None:
        """Give a launch to a warm runner; one that is known already is left alone."""
        if self._refusal is not None:
            raise Unsafe(self._refusal)
        id = launch["id"]
        folder = self._launches / id
        if id in self._running or folder.exists():
            return
        kind = Kind(launch["runtime"], launch["format"], launch["dataset"], launch["version"], launch["play"])
        self._running[id] = running = Running(launch["workers"], folder)
        try:
            model = await asyncio.to_thread(
                self._cache.object, launch["model_key"], launch["model_digest"], holder=launch["simulation_id"]
            )
            if self._running.get(id) is running:  # not cancelled meanwhile
                self._start(launch, kind, running, model)
        except BaseException:
            self._running.pop(id, None)
            shutil.rmtree(folder, ignore_errors=True)
            raise

    def _start(self, launch: Mapping[str, Any], kind: Kind, running: Running, model: Path) -> None:
        warm_runner = self._warm.pop(kind, None) or self._muster(kind, running.workers)
        if warm_runner is None:
            raise PlatformError(f"The environments for {kind.runtime} and {kind.dataset} are not ready.")
        self._failures = 0
        running.warm_runner = warm_runner
        running.folder.mkdir()
        warm_runner.log = warm_runner.log.rename(running.folder / "runner.log")
        lock = os.open(running.folder / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            running.cores = self._free_cores(running.workers)
            told = {"launch": launch["id"], "token": launch["token"], "url": launch["url"]}
            warm_runner.give(told | {"workers": running.workers, "model": str(model), "cores": running.cores}, lock)
        finally:
            os.close(lock)
        logger.info("launch %s began", launch["id"], extra={"launch": launch["id"]})
        self.note_use(kind)

    def _free_cores(self, count: int) -> tuple[int, ...]:
        """Return a core for each evaluator and model server pair, or none where there are too few: then the kernel
        shall share.

        A lone pair of no-ops played 21,500 tasks/s on one core, 7,700 on two; two pairs on two cores 40,000 either
        way. By lot, so that several platforms on one machine do not all crowd the first core.
        """
        held = {core for one in self._running.values() for core in one.cores}
        free = sorted(os.sched_getaffinity(0) - held)
        return tuple(random.sample(free, count)) if len(free) >= count else ()

    async def observe(self, ids: list[str]) -> dict[str, Any]:
        """Return a status of each that is known."""
        seen = {id: self._status(id) for id in ids}
        return {id: asdict(one) for id, one in seen.items() if one is not None}

    def _status(self, id: str) -> LaunchStatus | None:
        running = self._running.get(id)
        if running is not None:
            return LaunchStatus(id=id, phase=Phase.STARTING if running.warm_runner is None else Phase.RUNNING)
        folder = self._launches / id
        if not folder.is_dir():
            return None
        if alive(folder):  # an agent before us started it, and it has not died yet
            return LaunchStatus(id=id, phase=Phase.RUNNING)
        try:
            ended = json.loads((folder / "ended.json").read_bytes())
        except (OSError, ValueError):
            ended = {"exit": None, "reason": "the agent that ran it ended"}
        return LaunchStatus(id=id, phase=Phase.ENDED, **ended)

    async def cancel(self, id: str) -> None:
        """End a launch and forget it."""
        running = self._running.pop(id, None)
        if running is not None and running.warm_runner is not None:
            await self._end(running.warm_runner)
        shutil.rmtree(self._launches / id, ignore_errors=True)

    async def running(self) -> list[str]:
        """Return every launch that processes of this machine are at."""
        left = [folder.name for folder in self._launches.iterdir() if folder.name not in self._running]
        return [*self._running, *(id for id in left if alive(self._launches / id))]

    async def logs(self, id: str, offset: int) -> dict[str, Any]:
        """Return a piece of what a launch's runner had to say."""
        ended = id not in self._running  # asked first: what is written after this is read next time
        try:
            with open(self._launches / id / "runner.log", "rb") as file:
                file.seek(offset)
                data = file.read(PIECE)
        except OSError:
            data = b""
        return {"text": data.decode(errors="replace"), "offset": offset + len(data), "ended": ended}

    async def capacity(self) -> dict[str, int]:
        """Return free cores, and memory as the kernel sees it."""
        with open("/proc/meminfo") as file:
            available = next(int(line.split()[1]) for line in file if line.startswith("MemAvailable"))
        held = sum(one.workers for one in self._running.values())
        return {"cpu": max(0, self._cores - held), "memory": available << 10}

    _VERBS: Mapping[str, Callable[..., Awaitable[Any]]] = {
        "submit": submit,
        "observe": observe,
        "cancel": cancel,
        "running": running,
        "logs": logs,
        "capacity": capacity,
    }

    # -- warm runners

    async def _keep_warm(self) -> None:
        while True:
            self._look.clear()
            if time.monotonic() >= self._not_before:
                self._refill()
            pause = self._not_before - time.monotonic()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._look.wait(), pause if pause > 0 else self._timings.check)

    def _refill(self) -> None:
        """Have one warm runner of each kind used lately; dismiss the others."""
        if self._refusal is not None:
            return
        wanted = self._recent[: self._kinds]
        for kind in [kind for kind in self._warm if kind not in wanted]:
            self._warm.pop(kind).dismiss()
        for kind in wanted:
            if kind not in self._warm and (warm_runner := self._muster(kind, self._cores)) is not None:
                self._warm[kind] = warm_runner
                logger.info("a warm runner is warm for %s on %s", kind.runtime, kind.dataset)

    def _muster(self, kind: Kind, workers: int) -> WarmRunner | None:
        kit = kit_for(kind, self._environments, self._sandbox, self._plays)
        if kit is None:
            return None
        self._made += 1
        warm_runner = WarmRunner(kind, kit, workers, self._warm_runners / f"{os.getpid()}-{self._made}.log")
        asyncio.get_running_loop().add_reader(warm_runner.pidfd, self._ended, warm_runner)
        return warm_runner

    def _ended(self, warm_runner: WarmRunner) -> None:
        asyncio.get_running_loop().remove_reader(warm_runner.pidfd)
        warm_runner.reap()
        for kind, warm in list(self._warm.items()):
            if warm is warm_runner:
                del self._warm[kind]
                if self._stopping:
                    continue
                self._failures += 1
                self._not_before = time.monotonic() + min(60.0, self._timings.check * 2**self._failures)
                logger.warning("a warm runner for %s on %s ended: %s", kind.runtime, kind.dataset, warm_runner.reason)
        for id, one in list(self._running.items()):
            if one.warm_runner is warm_runner:
                del self._running[id]
                text = json.dumps({"exit": warm_runner.exit, "reason": warm_runner.reason})
                (one.folder / "ended.json").write_text(text)
                logger.info("launch %s ended: %s", id, warm_runner.reason, extra={"launch": id})
                self._sweep()
        if warm_runner.log.parent == self._warm_runners:
            warm_runner.log.unlink(missing_ok=True)

    async def _end(self, warm_runner: WarmRunner) -> None:
        warm_runner.dismiss()
        deadline = time.monotonic() + PATIENCE
        while warm_runner.exit is None:
            await asyncio.sleep(0.01)
            if time.monotonic() > deadline:
                warm_runner.kill()

    def note_use(self, kind: Kind) -> None:
        """Remember that a launch of this kind was submitted, for the next start too: a warm runner of it is kept."""
        self._recent = [kind, *(one for one in self._recent if one != kind)][:10]
        draft = self._run / ".warm.json"
        draft.write_text(json.dumps([asdict(one) for one in self._recent]))
        draft.rename(self._run / "warm.json")
        self._not_before = time.monotonic() + self._timings.refill
        self._look.set()

    def _remembered(self, promised: Kind | None) -> list[Kind]:
        try:
            return [Kind(**one) for one in json.loads((self._run / "warm.json").read_bytes())]
        except (OSError, ValueError, TypeError):
            return [promised] if promised is not None else []

    def _sweep(self) -> None:
        """Remove folders of launches that ended long ago."""
        ended = [path.parent for path in self._launches.glob("*/ended.json")]
        ended.sort(key=lambda folder: folder.stat().st_mtime, reverse=True)
        for folder in ended[KEPT:]:
            if time.time() - folder.stat().st_mtime > KEPT_FOR:
                shutil.rmtree(folder, ignore_errors=True)


def alive(folder: Path) -> bool:
    """Tell whether somebody holds the lock in a launch's folder."""
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
