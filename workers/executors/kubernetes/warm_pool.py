"""Pods that wait: launches made before it is known for which simulation, and who gets which. No I/O."""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from core.domain.ids import hashed, new_token
from core.domain.launches import Launch, Phase, Placement
from datasets.catalogue import datasets
from runtimes import catalogue
from workers.executors.base import Waiting
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.objects import LONG_AGO, QUEUE, TOKEN_HASH, WARM, Kind, Owner
from workers.executors.kubernetes.options import Options
from workers.executors.kubernetes.status_mapping import phase_of

#: What the ids of such launches begin with; those of all others begin with a digit.
PREFIX = "warm"
#: Characters of a digest that are enough to tell one kind from another.
ENOUGH = 16


@dataclass(frozen=True, slots=True)
class Fit:
    """What a launch must be of, for what waits to be of use to it."""

    project: str
    runtime: str
    format: str
    dataset: str
    version: str


@dataclass(frozen=True, slots=True)
class Wish:
    """So many pods of one kind are to wait. ``digest`` is of all they are made from: images, options, manifests."""

    fit: Fit
    launch: Launch
    kit: Mapping[str, Any]
    digest: str
    pods: int

    def one(self) -> tuple[Launch, str]:
        """Make up another launch of this kind; return it with what is kept of its token."""
        token = new_token()
        return replace(self.launch, id=PREFIX + secrets.token_hex(10), token=token), hashed(token)


@dataclass(frozen=True, slots=True)
class Seen:
    """What waits in the cluster. ``queued``: its own queue knows it by its width, which it keeps."""

    id: str
    digest: str
    token_hash: str
    kind: Kind
    namespace: str
    made: datetime
    phase: Phase
    queued: bool = False


@dataclass(frozen=True, slots=True)
class Plan:
    """What is to be done so that there waits what is wanted; ``ready`` may be given out, likeliest first."""

    marked: tuple[Seen, ...]
    dropped: tuple[Seen, ...]
    ready: tuple[Seen, ...]
    lacking: tuple[Wish, ...]
    whole: bool


def fit_of(launch: Launch) -> Fit | None:
    """Return what must wait for a launch; None if it asks for what only pods of its own can have."""
    if launch.gang is not None or replace(launch.placement, executor="") != Placement():
        return None
    return Fit(launch.project, launch.runtime, launch.format, launch.dataset, launch.version)


def wishes(options: Options, served: manifests.Served, url: str) -> dict[str, Wish]:
    """Return what is wanted by digest."""
    found: dict[str, Wish] = {}
    for asked in options.warm:
        format = catalogue.runtime(asked.runtime).formats[asked.format or asked.runtime]
        dataset = datasets()[asked.dataset]
        fit = Fit(asked.project, asked.runtime, format.name, asked.dataset, dataset.version)
        isolation = "launch" if dataset.definition.get("isolation") == "launch" else format.isolation
        world = {name: dataset.definition.get(name) for name in ("simulator", "package")}
        kit = {"format": format.name, "isolation": isolation, "world": world}
        launch = _blank(fit, options, url)
        whole = json.dumps([manifests.of(launch, options, served, kit=kit), dataset.digest], sort_keys=True)
        digest = hashlib.sha256(whole.encode()).hexdigest()[:ENOUGH]
        pods = asked.pods + (found[digest].pods if digest in found else 0)
        found[digest] = Wish(fit, launch, kit, digest, pods)
    return found


def _blank(fit: Fit, options: Options, url: str) -> Launch:
    return Launch(
        id=PREFIX,
        simulation_id="",
        attempt=0,
        url=url,
        workers=options.seats,
        runtime=fit.runtime,
        format=fit.format,
        dataset=fit.dataset,
        version=fit.version,
        model_digest="",
        model_key="",
        token="",
        project=fit.project,
    )


def seen(owners: Iterable[tuple[Kind, Owner]]) -> list[Seen]:
    """Read those that wait, whatever they were made for."""
    return [
        Seen(
            owner.metadata.launch,
            owner.metadata.labels[WARM],
            owner.metadata.annotations.get(TOKEN_HASH, ""),
            kind,
            owner.metadata.namespace,
            owner.metadata.creation_timestamp or LONG_AGO,
            phase_of(owner),
            QUEUE in owner.metadata.labels,
        )
        for kind, owner in owners
        if WARM in owner.metadata.labels and owner.metadata.deletion_timestamp is None
    ]


def plan(there: Iterable[Seen], wanted: Mapping[str, Wish], *, taken: Collection[str], given: Collection[str]) -> Plan:
    """Decide who stays. ``taken`` have a launch that is not over; ``given`` were handed out, and lost if not taken."""
    oldest = sorted(there, key=lambda one: (one.phase is not Phase.RUNNING, one.made, one.id))
    marked = [one for one in oldest if one.id in taken]
    free = [one for one in oldest if one.id not in taken]
    kept: dict[str, list[Seen]] = {digest: [] for digest in wanted}
    dropped = []
    for one in free:
        usable = one.id not in given and one.phase is not Phase.ENDED and one.digest in wanted and one.token_hash
        if usable and len(kept[one.digest]) < wanted[one.digest].pods:
            kept[one.digest].append(one)
        else:
            dropped.append(one)
    lacking = [wish for digest, wish in wanted.items() for _ in range(wish.pods - len(kept[digest]))]
    staying = [one for some in kept.values() for one in some]
    ready = [one for one in staying if one.phase is Phase.RUNNING]
    return Plan(tuple(marked), tuple(dropped), tuple(ready), tuple(lacking), not lacking and ready == staying)


class Reserve:
    """What may be given out, and what was: for one thread."""

    def __init__(self) -> None:
        self._fits: dict[Fit, Wish] = {}
        self._ready: list[Seen] = []
        self.given: dict[str, Seen] = {}

    def fill(self, plan: Plan, wanted: Mapping[str, Wish], there: Sequence[Seen]) -> None:
        """Take note of what waits by now; what was given out and is gone need not be remembered."""
        self._fits = {wish.fit: wish for wish in wanted.values()}
        self._ready = list(plan.ready)
        still = {one.id for one in there}
        self.given = {id: one for id, one in self.given.items() if id in still}

    def take(self, launch: Launch) -> Waiting | None:
        """Give out what waits for just such a launch."""
        fit = fit_of(launch)
        wish = self._fits.get(fit) if fit is not None else None
        if wish is None:
            return None
        wider = launch.workers > wish.launch.workers
        one = next((one for one in self._ready if one.digest == wish.digest and not (wider and one.queued)), None)
        if one is None:
            return None
        self._ready.remove(one)
        self.given[one.id] = one
        return Waiting(one.id, one.token_hash)
