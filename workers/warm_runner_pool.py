"""Warm runner pool: the node agent's warm runners of each kind, as many as recent demand and the memory ask for.

The decision is a pure function (scheduling/warm_depth.py); this module reads clocks and memory, starts and ends.
"""

import asyncio
import contextlib
import json
import logging
import math
import os
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Collection
from dataclasses import asdict, dataclass
from pathlib import Path

from core.domain.scheduling.warm_depth import Demand, KindState, WarmLimits, changes
from core.domain.usage.granted_resources import GrantedResources, WarmGrant
from runtimes.harness.runner import model_folder
from runtimes.harness.runner.processes import WorkerSpec
from workers.fork_servers import RUNNER, ForkServers, Libraries, forkable
from workers.machine_memory import machine_memory, memory_by_name
from workers.warm_runners import PreparedFolders, WarmKind, WarmRunner, worker_spec_for

logger = logging.getLogger(__name__)

#: Kinds that are remembered.
MAX_RECENT_KINDS = 10
#: Seconds until a warm runner is ready whose processes are forked, and whose processes are started.
FORK, START = 0.1, 1.0
#: Bytes of a warm runner, of one whose processes are forked, and of a fork server, until they have been measured.
MEMORY, FORKED_MEMORY, FORK_SERVER_MEMORY = 100 << 20, 50 << 20, 25 << 20
#: MiB in whole numbers of which the memory of a warm runner counts: what differs by less is no other interval.
GRANULE = 8
#: Name under which the memory of all fork servers is counted.
FORK_SERVERS = "fork servers"


@dataclass(frozen=True, kw_only=True, slots=True)
class WarmRunnerOptions:
    """Options of a node agent's warm runners. ``kinds``: how many kinds are kept warm, the most recent ones.

    ``initial``: the kind to keep warm if none has been used yet. ``memory``: the most bytes of all warm runners and
    fork servers. ``forks``: whether processes may be forked. ``refill``: seconds from a launch's start until processes
    are started (not forked) for the next, so that the launch gets the processors first. ``check``: seconds between two
    checks for missing and unneeded runners.
    """

    kinds: int = 1
    initial: WarmKind | None = None
    memory: int = 1 << 30
    forks: bool = True
    refill: float = 0.5
    check: float = 2.0


class WarmRunnerPool:
    """The warm runners, and the fork servers that they are forked from. ``on_end`` gets each runner that has ended."""

    def __init__(
        self,
        *,
        home: Path,
        cores: int,
        sandbox: int | None,
        options: WarmRunnerOptions,
        on_end: Callable[[WarmRunner], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._run = home / "run"
        self.folder = self._run / "warm_runners"
        self._model_folders = home / "cache" / "model_folders"
        self._prepared = PreparedFolders.below(home)
        self._cores = cores
        self._sandbox = sandbox
        self._options = options
        self._on_end = on_end
        self._clock = clock
        self._warm: dict[WarmKind, deque[WarmRunner]] = {}
        self._living: dict[str, WarmRunner] = {}  # warm and in use, by name
        self._demand: dict[WarmKind, Demand] = {}
        self._memory: dict[WarmKind, int] = {}  # measured, of one warm runner
        self._fork_memory = 0
        self._measured = True  # nothing was started since the last measurement
        self._started = 0  # runners so far
        self._id = f"warm-{secrets.token_hex(8)}"  # of this process: names of its runners are used again by the next
        self._recent = self._load_recent()
        self._refill_at = 0.0
        self._failures = 0  # consecutive warm runners that ended unused
        self._changed = asyncio.Event()
        self._stopping = False
        self._fork_servers: ForkServers

    # -- life

    def prepare(self) -> None:
        """Create the folders, and remove what a previous agent left."""
        self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        self.folder.chmod(0o700)
        self._model_folders.mkdir(parents=True, exist_ok=True)
        model_folder.remove_abandoned(map(str, self._model_folders.iterdir()))
        loop = asyncio.get_running_loop()
        self._fork_servers = ForkServers(
            self._sandbox, self.folder, watch=loop.add_reader, unwatch=loop.remove_reader, changed=self._changed.set
        )

    async def keep(self) -> None:
        """Keep the warm runners that are wanted, until cancelled."""
        while True:
            self._changed.clear()
            try:
                self.refill()
            except Exception:
                logger.exception("warm runners could not be started; next attempt in %g s", self._options.check)
                self._refill_at = self._clock() + self._options.check
            due = self._refill_at - self._clock()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), due if due > 0 else self._options.check)
            if not self._changed.is_set() and not self._measured:
                self.measure()

    async def close(self, end: Callable[[WarmRunner], Awaitable[None]]) -> None:
        """End every warm runner by ``end``, a coroutine function, then the fork servers."""
        self._stopping = True
        await asyncio.gather(*(end(runner) for runners in self._warm.values() for runner in runners))
        self._fork_servers.close()

    # -- launches

    @property
    def kinds(self) -> list[WarmKind]:
        """Kinds of which a warm runner is there, once for each."""
        return [kind for kind, runners in self._warm.items() for _ in runners]

    def take(self, kind: WarmKind, workers: int) -> WarmRunner | None:
        """Take the warm runner of a kind that was started first, or start one; None if the kind is not prepared.

        One whose environment was evicted and made again since it was started is ended.
        """
        runners = self._warm.get(kind, deque())
        taken = None
        while runners and taken is None:
            runner = runners.popleft()
            if runner.is_current():
                taken = runner
            else:
                runner.dismiss()
        taken = taken or self._start(kind, workers)
        if taken is not None:
            self._failures = 0
        return taken

    def record_use(self, kind: WarmKind) -> None:
        """Count a launch of a kind, move the kind to the front of the recent ones, save these for the next start."""
        now = self._clock()
        in_use = sum(runner.kind == kind for runner in self._living.values()) - len(self._warm.get(kind, ()))
        self._demand[kind] = self._demand.get(kind, Demand()).with_arrival(now, in_use)
        if self._recent[:1] != [kind]:
            self._recent = [kind, *(recent for recent in self._recent if recent != kind)][:MAX_RECENT_KINDS]
            draft = self._run / ".warm.json"
            draft.write_text(json.dumps([asdict(recent) for recent in self._recent]))
            draft.rename(self._run / "warm.json")
        if not self._are_ready(self._libraries(kind)):
            self._refill_at = now + self._options.refill
        self._changed.set()

    def _load_recent(self) -> list[WarmKind]:
        try:
            kinds = [WarmKind(**fields) for fields in json.loads((self._run / "warm.json").read_bytes())]
            return [kind for kind in kinds if kind.project or not kind.loads_own]  # of an earlier version
        except (OSError, ValueError, TypeError):
            return [self._options.initial] if self._options.initial is not None else []

    @property
    def settled(self) -> bool:
        """Whether the fork servers of the kept kinds are ready, as far as they ever will be."""
        return all(self._fork_servers.settled(self._libraries(kind)) for kind in self._recent[: self._options.kinds])

    @property
    def memory(self) -> int:
        """Bytes that warm runners and fork servers use, as far as it has been measured."""
        return self._fork_memory + sum(
            self._size(kind, runner.forked) for kind, runners in self._warm.items() for runner in runners
        )

    def grants(self) -> list[WarmGrant]:
        """Return what each warm runner has: memory, as far as it has been measured. Cores are granted to launches."""
        return [
            WarmGrant(
                id=f"{self._id}-{runner.name}",
                project=kind.project,
                granted=GrantedResources(
                    1, 0, math.ceil(self._size(kind, runner.forked) / (GRANULE << 20)) * GRANULE, 0
                ),
            )
            for kind, runners in self._warm.items()
            for runner in runners
        ]

    # -- refill

    def refill(self) -> None:
        """Start and end what demand, memory and limits ask for."""
        kinds = list(dict.fromkeys((*self._recent, *self._warm)))
        living = {runner.kind for runner in self._living.values()}
        libraries = {kind: self._libraries(kind) for kind in {*kinds, *living}}
        wanted = {library for kind in self._recent[: self._options.kinds] for library in libraries[kind]}
        self._fork_servers.keep(wanted, {library for kind in living for library in libraries[kind]})
        forked = {kind: self._are_ready(libraries[kind]) for kind in kinds}
        now, machine = self._clock(), machine_memory()
        due = self._refill_at <= now
        states = [
            KindState(
                kind=kind,
                demand=self._demand.get(kind, Demand()).as_of(now),
                warm=len(self._warm.get(kind, ())),
                memory=self._size(kind, forked[kind]),
                start=FORK if forked[kind] else START,
            )
            for kind in kinds
        ]
        limits = WarmLimits(
            kinds=self._options.kinds,
            memory=self._options.memory - (self._fork_memory or FORK_SERVER_MEMORY * len(wanted)),
            spare=machine.spare,
            stalled=machine.stalled,
        )
        plan = changes(states, limits)
        for kind in plan.end:
            self._warm[kind].pop().dismiss()  # the newest: the oldest is ready
        for kind in plan.start:
            if self._fork_servers.settled(libraries[kind]) and (due or forked[kind]):
                self._add(kind)

    def _add(self, kind: WarmKind) -> None:
        if (runner := self._start(kind, self._cores)) is not None:
            self._warm.setdefault(kind, deque()).append(runner)
            logger.info("warm runner started for runtime %s, dataset %s", kind.runtime, kind.dataset)

    def _libraries(self, kind: WarmKind) -> frozenset[Libraries]:
        spec = worker_spec_for(kind, self._prepared, self._sandbox, ranks=True)
        return frozenset() if spec is None else self._forkable(kind, spec)

    def _forkable(self, kind: WarmKind, spec: WorkerSpec) -> frozenset[Libraries]:
        if not self._options.forks or not self._options.kinds:
            return frozenset()
        return forkable(kind, spec.evaluator_site, spec.model_server_site)

    def _size(self, kind: WarmKind, forked: bool) -> int:
        return self._memory.get(kind, FORKED_MEMORY if forked else MEMORY)

    def _are_ready(self, libraries: Collection[Libraries]) -> bool:
        """Whether all processes of a runner are forked now from these libraries, which takes milliseconds."""
        return len(libraries) == 3 and all(map(self._fork_servers.ready, libraries))

    def _start(self, kind: WarmKind, workers: int) -> WarmRunner | None:
        name = f"{os.getpid()}-{self._started}"
        folder = str(self._model_folders / name)
        spec = worker_spec_for(kind, self._prepared, self._sandbox, model_folder=folder, ranks=True)
        if spec is None:
            return None
        self._started += 1
        model_folder.create(folder)
        client = f"runner-{self._started % 100_000_000}"
        connections = {
            library.module: self._fork_servers.connect(library, client) for library in self._forkable(kind, spec)
        }
        opened = {module: connection for module, connection in connections.items() if connection is not None}
        fork_server = opened.pop(RUNNER.module, None)
        runner = WarmRunner(
            kind,
            spec,
            workers,
            self.folder / f"{name}.log",
            name=client,
            connections=opened,
            fork_server=fork_server,
        )
        for connection in opened.values():  # only the runner uses them
            connection.close()
        self._living[client] = runner
        self._measured = False
        asyncio.get_running_loop().add_reader(runner.end, self._on_readable, runner)
        return runner

    def _on_readable(self, runner: WarmRunner) -> None:
        if not runner.ended:
            return
        asyncio.get_running_loop().remove_reader(runner.end)
        runner.reap()
        self._living.pop(runner.name, None)
        runners = self._warm.get(runner.kind, deque())
        if runner in runners:
            runners.remove(runner)
            if not self._stopping:
                kind = runner.kind
                self._failures += 1
                self._refill_at = self._clock() + min(60.0, self._options.check * 2**self._failures)
                logger.warning(
                    "warm runner for runtime %s, dataset %s ended: %s", kind.runtime, kind.dataset, runner.reason
                )
        self._on_end(runner)
        if runner.log.parent == self.folder:
            runner.log.unlink(missing_ok=True)

    # -- memory

    def measure(self) -> None:
        """Measure what the warm runners of each kind and the fork servers use."""
        roots = dict.fromkeys(self._fork_servers.pids, FORK_SERVERS)
        roots |= {runner.pid: name for name, runner in self._living.items() if runner.pid is not None}
        used = memory_by_name(roots, self._living)
        self._fork_memory = used.get(FORK_SERVERS, 0)
        for kind, runners in self._warm.items():
            if sizes := [used[runner.name] for runner in runners if used[runner.name]]:
                self._memory[kind] = sum(sizes) // len(sizes)
        self._measured = True
