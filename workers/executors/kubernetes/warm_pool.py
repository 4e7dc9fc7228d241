"""Warm pool: launches created before their simulation is known; what to create, delete and hand out. No I/O."""

import hashlib
import json
import secrets
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields, replace
from datetime import datetime
from typing import Any

from common.ids import hashed, new_token
from core.domain.scheduling.launches import Launch, Phase, Placement, WarmLaunch
from core.domain.usage.granted_resources import GrantedResources, WarmGrant
from datasets.catalogue import datasets
from runtimes import catalogue
from runtimes.harness.runner.processes import WORLD
from workers.executors.kubernetes import manifests
from workers.executors.kubernetes.objects import EPOCH, QUEUE, TOKEN_HASH, WARM, Owner, ResourceKind
from workers.executors.kubernetes.options import KubernetesOptions
from workers.executors.kubernetes.status_mapping import phase_of

#: Prefix of warm launches' ids; ids of other launches begin with a digit.
PREFIX = "warm"
#: Hex digits of a target's digest that are kept as its label.
DIGEST_LENGTH = 16


@dataclass(frozen=True, slots=True)
class WarmKey:
    """Properties that a launch and a warm launch must share for a match."""

    project: str
    runtime: str
    format: str
    dataset: str
    version: str


@dataclass(frozen=True, slots=True)
class WarmTarget:
    """Desired warm pods of one key. ``digest`` covers all that they are created from: images, options, manifests."""

    key: WarmKey
    launch: Launch
    worker_spec: Mapping[str, Any]
    digest: str
    pods: int

    def new_launch(self) -> tuple[Launch, str]:
        """Return a new launch with its own id and token, and the token's hash."""
        token = new_token()
        return replace(self.launch, id=PREFIX + secrets.token_hex(10), token=token), hashed(token)


@dataclass(frozen=True, slots=True)
class WarmOwner:
    """A warm launch in the cluster. ``queued``: Kueue admitted it, so its number of workers cannot change."""

    id: str
    digest: str
    token_hash: str
    kind: ResourceKind
    namespace: str
    made: datetime
    phase: Phase
    queued: bool = False


@dataclass(frozen=True, slots=True)
class PoolPlan:
    """Actions that bring the pool to its targets; ``ready`` may be handed out, oldest first."""

    in_use: tuple[WarmOwner, ...]
    surplus: tuple[WarmOwner, ...]
    ready: tuple[WarmOwner, ...]
    missing: tuple[WarmTarget, ...]
    complete: bool


def warm_key_of(launch: Launch) -> WarmKey | None:
    """Return a launch's key; None if it needs its own pods (a gang, a placement, or a trusted model)."""
    if launch.gang is not None or launch.trusted or replace(launch.placement, executor="") != Placement():
        return None
    return WarmKey(**{field.name: getattr(launch, field.name) for field in fields(WarmKey)})


def warm_targets(options: KubernetesOptions, served: manifests.ServedApis, url: str) -> dict[str, WarmTarget]:
    """Return the targets that the options configure, by digest."""
    targets: dict[str, WarmTarget] = {}
    for option in options.warm:
        format = catalogue.runtime(option.runtime).formats[option.format or option.runtime]
        dataset = datasets()[option.dataset]
        key = WarmKey(
            project=option.project,
            runtime=option.runtime,
            format=format.name,
            dataset=option.dataset,
            version=dataset.version,
        )
        isolation = format.isolation_on(dataset.declared.isolation)
        world = {name: dataset.definition.get(name) for name in WORLD}
        worker_spec = {"format": format.name, "isolation": isolation, "world": world}
        launch = _template_launch(key, options, url)
        complete = json.dumps(
            [manifests.launch_objects(launch, options, served, worker_spec=worker_spec), dataset.digest], sort_keys=True
        )
        digest = hashlib.sha256(complete.encode()).hexdigest()[:DIGEST_LENGTH]
        pods = option.pods + (targets[digest].pods if digest in targets else 0)
        targets[digest] = WarmTarget(key=key, launch=launch, worker_spec=worker_spec, digest=digest, pods=pods)
    return targets


def _template_launch(key: WarmKey, options: KubernetesOptions, url: str) -> Launch:
    return Launch(
        id=PREFIX,
        simulation_id="",
        attempt=0,
        url=url,
        workers=options.workers_per_pod,
        model_digest="",
        model_key="",
        token="",
        **asdict(key),
    )


def warm_owners(owners: Iterable[tuple[ResourceKind, Owner]]) -> list[WarmOwner]:
    """Return the warm launches among owners, whatever target they were created for."""
    return [
        WarmOwner(
            id=owner.metadata.launch,
            digest=owner.metadata.labels[WARM],
            token_hash=owner.metadata.annotations.get(TOKEN_HASH, ""),
            kind=kind,
            namespace=owner.metadata.namespace,
            made=owner.metadata.creation_timestamp or EPOCH,
            phase=phase_of(owner),
            queued=QUEUE in owner.metadata.labels,
        )
        for kind, owner in owners
        if WARM in owner.metadata.labels and owner.metadata.deletion_timestamp is None
    ]


def plan_pool(
    current: Iterable[WarmOwner],
    targets: Mapping[str, WarmTarget],
    *,
    taken: Collection[str],
    handed_out: Collection[str],
) -> PoolPlan:
    """Compare the pool with its targets. ``taken``: active launches; ``handed_out`` but not taken: lost."""
    oldest = sorted(current, key=lambda owner: (owner.phase is not Phase.RUNNING, owner.made, owner.id))
    in_use = [owner for owner in oldest if owner.id in taken]
    free = [owner for owner in oldest if owner.id not in taken]
    kept: dict[str, list[WarmOwner]] = {digest: [] for digest in targets}
    surplus = []
    for owner in free:
        usable = (
            owner.id not in handed_out
            and owner.phase is not Phase.ENDED
            and owner.digest in targets
            and owner.token_hash
        )
        if usable and len(kept[owner.digest]) < targets[owner.digest].pods:
            kept[owner.digest].append(owner)
        else:
            surplus.append(owner)
    missing = [target for digest, target in targets.items() for _ in range(target.pods - len(kept[digest]))]
    staying = [owner for group in kept.values() for owner in group]
    ready = [owner for owner in staying if owner.phase is Phase.RUNNING]
    return PoolPlan(
        in_use=tuple(in_use),
        surplus=tuple(surplus),
        ready=tuple(ready),
        missing=tuple(missing),
        complete=not missing and ready == staying,
    )


def grants(current: Iterable[WarmOwner], targets: Mapping[str, WarmTarget]) -> list[WarmGrant]:
    """Return what warm launches have; one without a target is about to be deleted."""
    return [
        WarmGrant(
            owner.id, target.key.project, GrantedResources.of_placement(target.launch.workers, target.launch.placement)
        )
        for owner in current
        if owner.phase not in (Phase.SUSPENDED, Phase.ENDED) and (target := targets.get(owner.digest)) is not None
    ]


class ReadyLaunches:
    """Warm launches that may be handed out, and those that were. Not safe for threads."""

    def __init__(self) -> None:
        self._targets: dict[WarmKey, WarmTarget] = {}
        self._ready: list[WarmOwner] = []
        self.handed_out: dict[str, WarmOwner] = {}

    def fill(self, plan: PoolPlan, targets: Mapping[str, WarmTarget], current: Sequence[WarmOwner]) -> None:
        """Replace the snapshot; forget handed-out launches that are gone from the cluster."""
        self._targets = {target.key: target for target in targets.values()}
        self._ready = list(plan.ready)
        current_ids = {owner.id for owner in current}
        self.handed_out = {id: owner for id, owner in self.handed_out.items() if id in current_ids}

    def take(self, launch: Launch) -> WarmLaunch | None:
        """Pop a ready warm launch that matches, or None."""
        key = warm_key_of(launch)
        target = self._targets.get(key) if key is not None else None
        if target is None:
            return None
        wider = launch.workers > target.launch.workers
        owner = next(
            (owner for owner in self._ready if owner.digest == target.digest and not (wider and owner.queued)), None
        )
        if owner is None:
            return None
        self._ready.remove(owner)
        self.handed_out[owner.id] = owner
        return WarmLaunch(owner.id, owner.token_hash)
