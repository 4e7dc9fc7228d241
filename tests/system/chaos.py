"""A chaos run: a seeded sequence of disturbances of an installation while simulations of every kind are played."""

import random
import time
from collections import Counter
from dataclasses import dataclass, field, replace

from tests.system.disturbances import DISTURBANCES, PLAYING_ROLES, Disturbance, Undo
from tests.system.installations import Installation
from tests.system.platform_process import FINAL
from tests.system.submissions import SHORT, SUBMISSIONS, Client, Submit
from tests.waiting import until

#: Disturbances of a run, besides a kill aimed at each simulation.
STROKES = 8
#: Seconds for a run besides its long outage.
TIMEOUT = 500.0
#: The share of its tasks after which a simulation is disturbed that is submitted again, as it ended undisturbed before.
EARLY = 0.02
#: Seconds in which the list of simulations must be answered, or is asked for again.
LOOK = 3.0


@dataclass(frozen=True, slots=True)
class Stroke:
    """A disturbance that begins at a share of all tasks being done, and lasts for some seconds."""

    name: str
    disturbance: Disturbance
    goal: float
    seconds: float


@dataclass(frozen=True, slots=True)
class AimedKill:
    """A kill of a process that plays a simulation, once a share of that simulation's tasks is done."""

    simulation: str
    role: str
    goal: float


@dataclass(frozen=True, slots=True)
class Sequence:
    """What a seed disturbs, in which order."""

    strokes: tuple[Stroke, ...]
    kills: tuple[AimedKill, ...]


def kind_of(name: str) -> str:
    """Return the kind of a simulation, which may have been submitted again under a number."""
    return name.partition(" ")[0]


def sequence(seed: int, kind: str, outage: float) -> Sequence:
    """Return the disturbances of a seed; one of them, at a random moment, lasts for ``outage`` seconds."""
    rng = random.Random(f"{kind}-{seed}")
    table = DISTURBANCES[kind]
    long = rng.choice(sorted(name for name, disturbance in table.items() if disturbance.may_last))
    names = rng.sample(sorted(table.keys() - {long}), k=min(STROKES, len(table) - 1))
    strokes = [Stroke(name, table[name], rng.uniform(0.02, 0.7), rng.uniform(*table[name].seconds)) for name in names]
    strokes.append(Stroke(long, table[long], rng.uniform(0.1, 0.5), outage))
    kills = [AimedKill(name, rng.choice(PLAYING_ROLES), rng.uniform(0.05, 0.4)) for name in SUBMISSIONS]
    return Sequence(tuple(sorted(strokes, key=lambda stroke: stroke.goal)), tuple(kills))


@dataclass(slots=True)
class Progress:
    """What the list of simulations last said of one; ``grows``: more tasks were done than at the look before."""

    id: str
    state: str = ""
    done: int = 0
    total: int = 0
    grows: bool = False

    @property
    def share(self) -> float:
        return 1.0 if self.state in FINAL else self.done / self.total if self.total else 0.0


@dataclass(slots=True)
class Chaos:
    """A run: submits every kind, disturbs, and ends when all has happened and every simulation has ended."""

    installation: Installation
    kind: str
    seed: int
    outage: float
    began_at: float = field(default_factory=time.monotonic)
    log: list[str] = field(default_factory=list)
    shorts: list[Client] = field(default_factory=list)
    clients: dict[str, Client] = field(default_factory=dict)
    progress: dict[str, Progress] = field(default_factory=dict)
    _rng: random.Random = field(init=False)
    _strokes: list[Stroke] = field(init=False)
    _kills: list[AimedKill] = field(init=False)
    _active: list[tuple[float, Stroke, Undo]] = field(default_factory=list)
    _unanswered_since: float | None = None

    def __post_init__(self) -> None:
        planned = sequence(self.seed, self.kind, self.outage)
        self._rng = random.Random(self.seed)
        self._strokes, self._kills = list(planned.strokes), list(planned.kills)

    def run(self) -> None:
        """Submit, disturb, and wait for the end of every simulation."""
        self.clients = {name: self._client(name, submit) for name, submit in SUBMISSIONS.items()}
        try:
            until(self._step, TIMEOUT + self.outage, self.describe, every=0.1)
        finally:
            for _, stroke, undo in self._active:
                self._write(f"end of {stroke.name}")
                undo()
            self._active.clear()

    def describe(self) -> str:
        """Return the seed, what has happened, and what each simulation has come to."""
        lines = [f"chaos of seed {self.seed} on {self.kind}:", *self.log]
        lines += [f"{name}: {progress}" for name, progress in self.progress.items()]
        lines += [f"{client.name} is not accepted: {client.error!r}" for client in self._all_clients() if not client.id]
        lines += [f"to come: {planned}" for planned in (*self._strokes, *self._kills)]
        return "\n".join(lines)

    def _client(self, name: str, submit: Submit) -> Client:
        return Client(self.installation, name, submit, f"{self.kind}-{self.seed}-{name}", self.outage)

    def _all_clients(self) -> list[Client]:
        return [*self.clients.values(), *self.shorts]

    def _step(self) -> bool:
        for client in self._all_clients():
            if client.error is not None:
                raise AssertionError(self.describe()) from client.error
        now = time.monotonic()
        for ending in [ending for ending in self._active if now >= ending[0]]:
            self._active.remove(ending)
            if ending[1].seconds:
                self._write(f"end of {ending[1].name}")
            ending[2]()
        self._look()
        self.installation.note_processes()
        self._aim()
        self._strike()
        self._submit_short()
        all_ended = all(self._is_final(client) for client in self._all_clients())
        return all_ended and not self._kills and not self._strokes and not self._active

    def _is_final(self, client: Client) -> bool:
        return client.name in self.progress and self.progress[client.name].state in FINAL

    def _look(self) -> None:
        """Note the progress of every simulation, if the list is answered; none may be in it twice."""
        accepted = [(client.name, client.id) for client in self._all_clients() if client.id is not None]
        now = time.monotonic()
        response = self.installation.ask("GET", "/v1/simulations", params={"limit": 200}, timeout=LOOK)
        for progress in self.progress.values():
            progress.grows = False
        if response is None:
            self._unanswered_since = self._unanswered_since or now
            return
        if self._unanswered_since is not None and now - self._unanswered_since > 2 * LOOK:
            self._write(f"the list of simulations was not answered for {now - self._unanswered_since:.1f} s")
        self._unanswered_since = None
        items = response.json()["items"]
        listed = Counter(item["id"] for item in items)
        assert set(listed.values()) <= {1}, f"listed twice: {listed}\n{self.describe()}"
        by_id = {item["id"]: item for item in items}
        for name, id in accepted:
            assert id in by_id, f"{name} ({id}) is not listed\n{self.describe()}"
            item = by_id[id]
            progress = self.progress.setdefault(name, Progress(id))
            done = item["tasks"]["done"]
            progress.grows = done > progress.done and item["state"] == "running"
            progress.done, progress.total, progress.state = done, item["tasks"]["total"], item["state"]

    def _aim(self) -> None:
        """Kill a process of each simulation that is being played and has come to the goal of its kill."""
        for kill in list(self._kills):
            progress = self.progress.get(kill.simulation)
            if progress is None:
                continue
            if progress.state in FINAL:
                self._kills.remove(kill)
                self._write(f"{kill.simulation} ended before its {kill.role} was killed, and is submitted again")
                kind = kind_of(kill.simulation)
                again = f"{kind} {len(self.clients)}"
                self.clients[again] = self._client(again, SUBMISSIONS[kind])
                self._kills.append(replace(kill, simulation=again, goal=EARLY))
            elif progress.grows and progress.share >= kill.goal:
                victims = self.installation.processes_of(progress.id, kill.role)
                if victims:
                    home, pid = self._rng.choice(victims)
                    if home.kill_process(pid):
                        self._kills.remove(kill)
                        self._write(f"kill {kill.role} of {kill.simulation} at {progress.done} of {progress.total}")

    def _strike(self) -> None:
        """Begin the disturbances whose share of all tasks is done, but of each target one at a time."""
        share = sum(progress.share for progress in self.progress.values()) / (len(self.clients) + len(self.shorts))
        for stroke in [stroke for stroke in self._strokes if share >= stroke.goal]:
            if any(active.disturbance.target == stroke.disturbance.target for _, active, _ in self._active):
                continue
            undo = stroke.disturbance.begin(self.installation, self._rng)
            if undo is None:
                continue
            self._strokes.remove(stroke)
            self._write(f"{stroke.name}, for {stroke.seconds:.1f} s" if stroke.seconds else stroke.name)
            self._active.append((time.monotonic() + stroke.seconds, stroke, undo))

    def _submit_short(self) -> None:
        """Submit a short simulation during the long outage, and another when it has ended."""
        long = any(stroke.seconds == self.outage for _, stroke, _ in self._active)
        if long and (not self.shorts or self._is_final(self.shorts[-1])):
            self.shorts.append(self._client(f"short {len(self.shorts)}", SHORT))

    def _write(self, text: str) -> None:
        states = Counter(progress.state for progress in self.progress.values())
        self.log.append(f"{time.monotonic() - self.began_at:6.1f} s  {text}  {dict(states)}")
