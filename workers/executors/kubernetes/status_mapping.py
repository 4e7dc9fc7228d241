"""What a launch's objects tell of it: owner, pods and events in, a status out. No I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from signal import Signals

from core.domain.launches import LaunchStatus, Note, Phase
from workers.executors.kubernetes.manifests.job import HOPELESS
from workers.executors.kubernetes.manifests.pods import PART
from workers.executors.kubernetes.objects import (
    LONG_AGO,
    QUEUE,
    ContainerStatus,
    Event,
    Owner,
    Pod,
    Terminated,
    Workload,
)
from workers.executors.kubernetes.status_messages import SAYINGS, clean, lacking, note, of_failure

#: Conditions by which the four kinds of owners say how they ended.
DONE, BROKEN = ("Completed", "Complete", "Succeeded"), ("Failed",)
RUNNER, PROGRAM = "runner", "main"
#: Seconds after which a pod should be gone that was told to go, and all its grace is over.
LATE = 15.0
#: Seconds for which nobody replaces pods that were deleted: their namespace is being deleted, too.
BARREN = 45.0
#: Whose end is a launch's own, and what people call it: a runner's, or where there is none a gang's program's.
SPEAKERS = {RUNNER: "its runner", PROGRAM: "its program"}
#: What controllers call it when they cannot make a pod; the last is the MPI operator's.
_UNMADE = ("FailedCreate", "FailedCreatePod", "JobCreationFailed", "PodCreationFailed", "MPIJobFailed")
#: Conditions of a launch in the cluster's queue that is not let in, or not let go yet.
_WAITS = frozenset({("QuotaReserved", "False"), ("Admitted", "False")})
#: Why a pod lies in state Failed, where no container of it is to blame.
_LOST = ("Evicted", "NodeLost", "Terminated", "NodeShutdown", "OutOfcpu", "OutOfmemory", "UnexpectedAdmissionError")


def phase_of(owner: Owner) -> Phase:
    """Tell how far a launch is by its owner alone; STARTING: some pods may run, but not all do."""
    if owner.has(*DONE, *BROKEN):
        return Phase.ENDED
    if owner.spec.suspend or owner.spec.run_policy.suspend:
        return Phase.SUSPENDED
    return Phase.RUNNING if _whole(owner) else Phase.STARTING


def _whole(owner: Owner) -> bool:
    """Tell whether every pod of it is ready or done."""
    status, spec = owner.status, owner.spec
    groups = status.replicated_jobs_status or status.jobs_status
    if groups:
        asked = sum(group.replicas for group in spec.replicated_jobs) or len(groups)
        return sum(group.ready + group.succeeded for group in groups) >= asked
    if spec.parallelism is not None:
        up, done = status.ready or 0, status.succeeded or 0
        return up + done >= max(spec.parallelism, 1)
    return owner.has("Running") is not None  # an MPIJob


def settled(owner: Owner) -> bool:
    """Tell whether nothing more need be asked about it."""
    return phase_of(owner) is Phase.RUNNING or (owner.has(*DONE) is not None and not owner.spec.mpi_replica_specs)


def launch_status(
    owner: Owner,
    pods: Sequence[Pod] = (),
    events: Iterable[Event] = (),
    workloads: Iterable[Workload] = (),
    *,
    now: datetime,
    patience: float,
) -> LaunchStatus:
    """Bring together what is seen of one launch."""
    id, phase = owner.metadata.launch, phase_of(owner)
    if phase is Phase.RUNNING:
        return LaunchStatus(id=id, phase=phase)
    if phase is Phase.ENDED:
        return ended(owner, pods)
    if phase is Phase.STARTING and any(pod.status.phase == "Failed" for pod in _workers(owner, pods)):
        return ended(owner, pods)  # who leads waits for it, and nobody begins it again
    notes: dict[str, Note] = {}
    stuck = 0
    for pod in pods:
        facts = list(obstacles(pod))
        patient = now - (pod.metadata.creation_timestamp or now)
        stuck += patient.total_seconds() > patience and any(SAYINGS[fact].lasting for fact, _ in facts)
        notes.update((one.key, one) for _, one in facts)
    if phase is Phase.SUSPENDED:
        notes.update((one.key, one) for one in held(owner, workloads))
    barred = False
    for event in events:
        for fact, one in complaint(event):
            notes.setdefault(one.key, one)
            age = now - (owner.metadata.creation_timestamp or now)
            barred |= not pods and SAYINGS[fact].lasting and age.total_seconds() > patience
    if pods and all(barren(pod, now) for pod in pods):
        one = note("PodsDeleted")
        notes[one.key] = one
        return LaunchStatus(id=id, phase=Phase.ENDED, reason=one.words, notes=tuple(notes.values()))
    if any(pod.status.phase == "Running" for pod in pods):
        phase = Phase.RUNNING
    alive = [pod for pod in pods if pod.status.phase not in ("Failed", "Succeeded")]
    if alive and all(lost(pod, now, patience) for pod in alive):
        one = note("NodeLost", what=", ".join(sorted({pod.spec.node_name or "" for pod in alive})))
        notes[one.key] = one
        return LaunchStatus(id=id, phase=Phase.ENDED, reason=one.words, notes=tuple(notes.values()))
    hopeless = phase is Phase.STARTING and (barred or 0 < len(alive) <= stuck)
    reason = next((one.words for one in notes.values()), None) if hopeless else None
    return LaunchStatus(id=id, phase=phase, notes=tuple(notes.values()), hopeless=hopeless, reason=reason)


def ended(owner: Owner, pods: Sequence[Pod]) -> LaunchStatus:
    """Tell how a launch ended: by the runner's last words where there are any, else by the cluster's.

    Of one of which a pod was taken away there is no exit: nobody knows how it would have ended.
    """
    id = owner.metadata.launch
    condition = owner.has(*DONE, *BROKEN)
    bereft = condition is not None and _bereft(owner, pods)
    if owner.has(*DONE) and not bereft:
        return LaunchStatus(id=id, phase=Phase.ENDED, exit=0)
    failed = sorted((pod for pod in pods if pod.status.phase == "Failed"), key=_made)
    notes = {one.key: one for pod in failed for _, one in obstacles(pod)}
    exit, words, taken = 1, "", bereft or any(_taken(pod) for pod in failed)
    for pod in failed:
        for who, state in _ends(pod):
            exit, words = state.exit_code, ending(state, who)
    if condition is not None and condition.reason == "DeadlineExceeded":
        one = note("DeadlineExceeded")
        notes[one.key] = one
        words, taken = one.words, False
    elif bereft and not notes:
        one = note("PodTaken")
        notes[one.key] = one
    first = next((one.words for one in notes.values()), "")
    said = (condition and (condition.message or condition.reason)) or ""
    reason = first or words or f"the cluster ended it: {clean(said)}"
    told = tuple(notes.values())
    hopeless = exit == HOPELESS and words.startswith(SPEAKERS[RUNNER])
    known = None if taken else exit
    return LaunchStatus(id=id, phase=Phase.ENDED, exit=known, reason=reason, notes=told, hopeless=hopeless)


def _ends(pod: Pod) -> list[tuple[str, Terminated]]:
    """Return who failed, of those whose end is a launch's own, and how; nobody in a pod that was told to go.

    Once one pod has failed the others are. A runtime of an operator may call its program by any name: there it is
    whoever failed first.
    """
    if pod.metadata.deletion_timestamp is not None:
        return []
    ours = [one for one in pod.statuses if one.name in SPEAKERS]
    ended = [(SPEAKERS.get(one.name, SPEAKERS[PROGRAM]), one.state.terminated) for one in ours or pod.statuses]
    failed = [(who, state) for who, state in ended if state is not None and state.exit_code]
    return failed if ours else failed[:1]


def _taken(pod: Pod) -> bool:
    """Tell whether the cluster ended a pod for reasons of its own, as in a drain."""
    return pod.status.reason in _LOST or pod.has("DisruptionTarget", "True") is not None


def _workers(owner: Owner, pods: Iterable[Pod]) -> list[Pod]:
    """Return the workers of an MPIJob."""
    ours = owner.spec.mpi_replica_specs
    return [pod for pod in pods if ours and pod.metadata.labels.get(PART) == "replica"]


def _bereft(owner: Owner, pods: Sequence[Pod]) -> bool:
    """Tell whether the cluster took a pod of an MPIJob, by all that there is of it; what only fails stays.

    Its operator makes a worker anew that is lost, and mpirun fails as it would by a rank, or, as that of Open MPI 5,
    says that all is well. But who leads begins only when all workers are there: one that is younger has taken
    another's place.
    """
    if not owner.spec.mpi_replica_specs:
        return False
    workers = _workers(owner, pods)
    led = max((_made(pod) for pod in pods if pod.metadata.labels.get(PART) == "lead"), default=None)
    if led is None:
        return owner.has(*DONE) is None  # one that did well is swept up after a while
    lacking = len(workers) < owner.spec.mpi_replica_specs["Worker"].replicas
    return lacking or any(_made(pod) > led or _taken(pod) for pod in workers)


def ending(state: Terminated, who: str) -> str:
    """Say how a runner or a program ended. Its last words are a stranger's: others may have written them."""
    code = state.exit_code
    if state.signal or code > 128:
        number = state.signal or code - 128
        names = {one.value: one.name for one in Signals}
        how = f"{who} was ended by {names.get(number, f'signal {number}')}"
    else:
        how = f"{who} ended with exit code {code}"
    return f"{how}: {clean(state.message)}" if state.message and clean(state.message) else how


def lost(pod: Pod, now: datetime, patience: float) -> bool:
    """Tell whether a pod's node has left it: nobody ends it, or nobody has vouched for it so long.

    A Job replaces a pod only once somebody says that it ended, and of a node that is gone nobody does. What its kubelet
    said last (that its containers are ready) then stands beside what the cluster says for it (that it is not).
    """
    leaving = pod.metadata.deletion_timestamp
    if leaving is not None and (now - leaving).total_seconds() > LATE:
        return True
    silent = pod.has("Ready", "False")
    since = silent.last_transition_time if silent is not None and pod.has("ContainersReady", "True") else None
    return since is not None and (now - since).total_seconds() > patience


def barren(pod: Pod, now: datetime) -> bool:
    """Tell whether a pod was deleted, has ended, and still lies there.

    In a namespace that is being deleted no pod can follow it, so a Job with a back-off for each index keeps it, and the
    namespace waits for it: for ever, unless the Job is deleted.
    """
    leaving = pod.metadata.deletion_timestamp
    return pod.status.phase == "Failed" and leaving is not None and (now - leaving).total_seconds() > BARREN


def obstacles(pod: Pod) -> Iterator[tuple[str, Note]]:
    """Yield what keeps a pod from starting, or made it end, with the fact's name."""
    limits = {one.name: (one.resources.limits or {}).get("memory", "limit") for one in pod.spec.containers}
    for status in pod.statuses:
        fact, what, said = _trouble(status, str(limits.get(status.name, "limit")))
        if fact:
            yield fact, note(fact, status.name, what, said, key="image" if "Image" in fact else "")
    lost = pod.status.reason or ""
    if pod.status.phase == "Failed" and lost in _LOST:
        yield lost, note(lost, what=pod.spec.node_name or "", said=pod.status.message or "")
    elif lost == "NodeLost":
        yield lost, note(lost, what=pod.spec.node_name or "")
    for condition in pod.status.conditions or ():
        said, reason = condition.message or "", condition.reason or ""
        if condition.type == "PodScheduled" and condition.status == "False" and reason in SAYINGS:
            yield reason, note(reason, what=lacking(said), said=said)
        elif condition.type == "DisruptionTarget" and condition.status == "True" and reason in SAYINGS and not lost:
            yield reason, note(reason, said=said)
        elif condition.type == "Ready" and reason == "NodeStatusUnknown":
            yield "NodeLost", note("NodeLost", what=pod.spec.node_name or "")


def _trouble(status: ContainerStatus, limit: str) -> tuple[str, str, str]:
    """Tell the fact that a container's status is, if it is one: its name, what it is about, and the words."""
    waiting, terminated = status.state.waiting, status.state.terminated
    if waiting is not None and waiting.reason in SAYINGS:
        return waiting.reason or "", status.image, waiting.message or ""
    if terminated is not None and terminated.reason in SAYINGS:
        killed = terminated.reason == "OOMKilled"
        return terminated.reason or "", limit if killed else status.image, terminated.message or ""
    return "", "", ""


def complaint(event: Event) -> Iterator[tuple[str, Note]]:
    """Yield what an event tells that no object does."""
    said, reason = event.message or "", event.reason or ""
    if reason in _UNMADE:
        fact = of_failure(said)
        yield fact, note(fact, said=said)
    elif reason in ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"):
        yield reason, note(reason, said=said)


def held(owner: Owner, workloads: Iterable[Workload]) -> Iterator[Note]:
    """Yield why a launch is suspended: by the cluster's queue, which may have let it in before, or by somebody.

    The queue looks at whoever is first in line, and says nothing of the others.
    """
    known = [one for workload in workloads for one in workload.status.conditions or ()]
    taken = next((one.message or "" for one in known if (one.type, one.status) == ("Evicted", "True")), None)
    if taken is not None:
        yield note("displaced", said=taken)
    waits = next((one for one in known if (one.type, one.status) in _WAITS and one.message != taken), None)
    if waits is not None:
        yield note("closed" if waits.reason == "Inadmissible" else "queued", said=waits.message or "")
    elif taken is None and not any((one.type, one.status) == ("Admitted", "True") for one in known):
        yield note("turn" if QUEUE in owner.metadata.labels else "suspended")


def grouped(events: Iterable[Event], names: Mapping[str, str]) -> dict[str, list[Event]]:
    """Sort events by launch: an event names an object, whose name begins with that of the launch's owner."""
    found: dict[str, list[Event]] = {}
    for event in events:
        about = event.involved_object.name
        for name, launch in names.items():
            if about == name or about.startswith(f"{name}-"):
                found.setdefault(launch, []).append(event)
    return found


def _made(pod: Pod) -> datetime:
    return pod.metadata.creation_timestamp or LONG_AGO
