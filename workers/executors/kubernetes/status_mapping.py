"""Status mapping: owner, pods, events and Kueue workloads in, a launch status out. No I/O."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from signal import Signals

from core.domain.scheduling.launches import LaunchStatus, Note, Phase
from workers.executors.kubernetes.manifests.job import HOPELESS
from workers.executors.kubernetes.manifests.mpijob import WORKERS_LOST
from workers.executors.kubernetes.manifests.pod_spec import PART
from workers.executors.kubernetes.objects import (
    EPOCH,
    QUEUE,
    ClusterEvent,
    ContainerStatus,
    Owner,
    Pod,
    Terminated,
    Workload,
)
from workers.executors.kubernetes.status_messages import (
    MESSAGES,
    clean,
    creation_failure,
    make_note,
    scheduling_problems,
)

#: Conditions with which the four kinds of owners report their end.
COMPLETED, FAILED = ("Completed", "Complete", "Succeeded"), ("Failed",)
RUNNER, PROGRAM = "runner", "main"
#: Seconds by which a deleted pod may outlive the end of its grace period before its node counts as lost.
DELETION_OVERDUE = 15.0
#: Seconds after which a deleted, failed pod that still exists shows that its namespace is being deleted.
ABANDONED_AFTER = 45.0
#: Containers whose exit is the launch's exit, and their names in messages: the runner, or a gang's program.
EXIT_CONTAINERS = {RUNNER: "its runner", PROGRAM: "its program"}
#: Event reasons of controllers that cannot create a pod; the last is the MPI operator's.
_CREATION_FAILURES = ("FailedCreate", "FailedCreatePod", "JobCreationFailed", "PodCreationFailed", "MPIJobFailed")
#: Conditions of a Kueue workload that is not admitted.
_NOT_ADMITTED = frozenset({("QuotaReserved", "False"), ("Admitted", "False")})
#: Reasons of pods in phase Failed where no container is at fault.
_LOST_REASONS = (
    "Evicted",
    "NodeLost",
    "Terminated",
    "NodeShutdown",
    "OutOfcpu",
    "OutOfmemory",
    "UnexpectedAdmissionError",
)


def phase_of(owner: Owner) -> Phase:
    """Return a launch's phase by its owner alone; STARTING: some pods may run, but not all."""
    if owner.has(*COMPLETED, *FAILED):
        return Phase.ENDED
    if owner.spec.suspend or owner.spec.run_policy.suspend:
        return Phase.SUSPENDED
    return Phase.RUNNING if _all_ready(owner) else Phase.STARTING


def _all_ready(owner: Owner) -> bool:
    """Return whether every pod is ready or done."""
    status, spec = owner.status, owner.spec
    groups = status.replicated_jobs_status or status.jobs_status
    if groups:
        expected = sum(group.replicas for group in spec.replicated_jobs) or len(groups)
        return sum(group.ready + group.succeeded for group in groups) >= expected
    if spec.parallelism is not None:
        ready, succeeded = status.ready or 0, status.succeeded or 0
        return ready + succeeded >= max(spec.parallelism, 1)
    return owner.has("Running") is not None  # an MPIJob


def settled(owner: Owner) -> bool:
    """Return whether the owner alone determines the status, so that no further query is needed."""
    return phase_of(owner) is Phase.RUNNING or owner.has(*COMPLETED) is not None


def launch_status(
    owner: Owner,
    pods: Sequence[Pod] = (),
    events: Iterable[ClusterEvent] = (),
    workloads: Iterable[Workload] = (),
    *,
    now: datetime,
    patience: float,
) -> LaunchStatus:
    """Return the status of one launch. ``patience``: seconds that a pod may be unable to start."""
    id, phase = owner.metadata.launch, phase_of(owner)
    if phase is Phase.RUNNING:
        return LaunchStatus(id=id, phase=phase)
    if phase is Phase.ENDED:
        return ended_status(owner, pods)
    if phase is Phase.STARTING and any(pod.status.phase == "Failed" for pod in _mpi_workers(owner, pods)):
        return ended_status(owner, pods)  # the launcher waits for this worker, and nothing restarts it
    notes: dict[str, Note] = {}
    stuck = 0
    for pod in pods:
        facts = list(pod_problems(pod))
        age = now - (pod.metadata.creation_timestamp or now)
        stuck += age.total_seconds() > patience and any(MESSAGES[fact].lasting for fact, _ in facts)
        notes.update((note.key, note) for _, note in facts)
    if phase is Phase.SUSPENDED:
        notes.update((note.key, note) for note in suspension_notes(owner, workloads))
    creation_refused = False
    for event in events:
        for fact, note in event_problems(event):
            notes.setdefault(note.key, note)
            age = now - (owner.metadata.creation_timestamp or now)
            creation_refused |= not pods and MESSAGES[fact].lasting and age.total_seconds() > patience
    if pods and all(deleted_without_replacement(pod, now) for pod in pods):
        note = make_note("PodsDeleted")
        notes[note.key] = note
        return LaunchStatus(id=id, phase=Phase.ENDED, reason=note.message, notes=tuple(notes.values()))
    if any(pod.status.phase == "Running" for pod in pods):
        phase = Phase.RUNNING
    alive = [pod for pod in pods if pod.status.phase not in ("Failed", "Succeeded")]
    if alive and all(node_lost(pod, now, patience) for pod in alive):
        note = make_note("NodeLost", what=", ".join(sorted({pod.spec.node_name or "" for pod in alive})))
        notes[note.key] = note
        return LaunchStatus(id=id, phase=Phase.ENDED, reason=note.message, notes=tuple(notes.values()))
    hopeless = phase is Phase.STARTING and (creation_refused or 0 < len(alive) <= stuck)
    reason = next((note.message for note in notes.values()), None) if hopeless else None
    return LaunchStatus(id=id, phase=phase, notes=tuple(notes.values()), hopeless=hopeless, reason=reason)


def ended_status(owner: Owner, pods: Sequence[Pod]) -> LaunchStatus:
    """Return the status of an ended launch: by the runner's termination message if it has one, else by the cluster's.

    Where the cluster took a pod away the exit is None: it is unknown how the launch would have ended.
    """
    id = owner.metadata.launch
    if owner.has(*COMPLETED):
        return LaunchStatus(id=id, phase=Phase.ENDED, exit=0)
    condition = owner.has(*FAILED)
    worker_lost = condition is not None and _mpi_worker_lost(owner, pods)
    failed = sorted((pod for pod in pods if pod.status.phase == "Failed"), key=_created_at)
    notes = {note.key: note for pod in failed for _, note in pod_problems(pod)}
    exit, text, disrupted = 1, "", worker_lost or any(_disrupted(pod) for pod in failed)
    for pod in failed:
        for name, state in _failed_exits(pod):
            exit, text = state.exit_code, exit_message(state, name)
    if condition is not None and condition.reason == "DeadlineExceeded":
        note = make_note("DeadlineExceeded")
        notes[note.key] = note
        text, disrupted = note.message, False
    elif worker_lost and not notes:
        note = make_note("PodTaken")
        notes[note.key] = note
    first = next((note.message for note in notes.values()), "")
    message = (condition and (condition.message or condition.reason)) or ""
    reason = first or text or f"the cluster ended the launch: {clean(message)}"
    hopeless = exit == HOPELESS and text.startswith(EXIT_CONTAINERS[RUNNER])
    return LaunchStatus(
        id=id,
        phase=Phase.ENDED,
        exit=None if disrupted else exit,
        reason=reason,
        notes=tuple(notes.values()),
        hopeless=hopeless,
    )


def _failed_exits(pod: Pod) -> list[tuple[str, Terminated]]:
    """Return failed containers whose exit is the launch's exit; none in a deleted pod.

    Once one pod has failed the others are deleted. An operator's runtime may give its program any container name: then
    the first failed container counts.
    """
    if pod.metadata.deletion_timestamp is not None:
        return []
    known = [container for container in pod.statuses if container.name in EXIT_CONTAINERS]
    exits = [
        (EXIT_CONTAINERS.get(container.name, EXIT_CONTAINERS[PROGRAM]), container.state.terminated)
        for container in known or pod.statuses
    ]
    failed = [(name, state) for name, state in exits if state is not None and state.exit_code]
    return failed if known else failed[:1]


def _disrupted(pod: Pod) -> bool:
    """Return whether the cluster ended a pod (eviction, drain, preemption)."""
    return pod.status.reason in _LOST_REASONS or pod.has("DisruptionTarget", "True") is not None


def _mpi_workers(owner: Owner, pods: Iterable[Pod]) -> list[Pod]:
    """Return the worker pods of an MPIJob."""
    is_mpi_job = bool(owner.spec.mpi_replica_specs)
    return [pod for pod in pods if is_mpi_job and pod.metadata.labels.get(PART) == "replica"]


def _mpi_worker_lost(owner: Owner, pods: Sequence[Pod]) -> bool:
    """Return whether the cluster took a pod of a failed MPIJob away: a worker by its launcher's words, or the launcher.

    The operator deletes the workers that run when the launcher ends; a worker that ended by itself before remains.
    """
    if not owner.spec.mpi_replica_specs:
        return False
    launcher = max((pod for pod in pods if pod.metadata.labels.get(PART) == "lead"), key=_created_at, default=None)
    if launcher is None:
        return True
    exits = [status.state.terminated for status in launcher.statuses]
    lost = any(state is not None and (state.message or "").startswith(WORKERS_LOST) for state in exits)
    return lost and not any(_ended_by_itself(pod) for pod in _mpi_workers(owner, pods))


def _ended_by_itself(pod: Pod) -> bool:
    """Return whether a pod's containers ended, and the cluster had no part in it."""
    deleted = pod.metadata.deletion_timestamp is not None
    return pod.status.phase in ("Failed", "Succeeded") and not deleted and not _disrupted(pod)


def exit_message(state: Terminated, name: str) -> str:
    """Return how a runner or program ended. Its termination message is untrusted: user code may have written it."""
    code = state.exit_code
    if state.signal or code > 128:
        number = state.signal or code - 128
        signals = {number.value: number.name for number in Signals}
        text = f"{name} was ended by {signals.get(number, f'signal {number}')}"
    else:
        text = f"{name} ended with exit code {code}"
    return f"{text}: {clean(state.message)}" if state.message and clean(state.message) else text


def node_lost(pod: Pod, now: datetime, patience: float) -> bool:
    """Return whether a pod's node is lost: deletion overdue, or no report for ``patience`` seconds.

    A Job replaces a pod only once its end is reported, and a lost node reports nothing. The kubelet's last report
    (containers ready) then contradicts the node controller's (pod not ready).
    """
    deleted_at = pod.metadata.deletion_timestamp
    if deleted_at is not None and (now - deleted_at).total_seconds() > DELETION_OVERDUE:
        return True
    not_ready = pod.has("Ready", "False")
    since = not_ready.last_transition_time if not_ready is not None and pod.has("ContainersReady", "True") else None
    return since is not None and (now - since).total_seconds() > patience


def deleted_without_replacement(pod: Pod, now: datetime) -> bool:
    """Return whether a deleted pod has ended and still exists.

    In a namespace that is being deleted no pod can replace it, so a Job with a back-off per index keeps it, and the
    namespace waits for the pod: for ever, unless the Job is deleted.
    """
    deleted_at = pod.metadata.deletion_timestamp
    return (
        pod.status.phase == "Failed" and deleted_at is not None and (now - deleted_at).total_seconds() > ABANDONED_AFTER
    )


def pod_problems(pod: Pod) -> Iterator[tuple[str, Note]]:
    """Yield (fact, note) of each problem that keeps a pod from starting, or that ended it."""
    limits = {
        container.name: (container.resources.limits or {}).get("memory", "limit") for container in pod.spec.containers
    }
    for status in pod.statuses:
        fact, what, message = _container_problem(status, str(limits.get(status.name, "limit")))
        if fact:
            yield fact, make_note(fact, status.name, what, message, key="image" if "Image" in fact else "")
    pod_reason = pod.status.reason or ""
    if pod.status.phase == "Failed" and pod_reason in _LOST_REASONS:
        yield pod_reason, make_note(pod_reason, what=pod.spec.node_name or "", message=pod.status.message or "")
    elif pod_reason == "NodeLost":
        yield pod_reason, make_note(pod_reason, what=pod.spec.node_name or "")
    for condition in pod.status.conditions or ():
        message, reason = condition.message or "", condition.reason or ""
        if condition.type == "PodScheduled" and condition.status == "False" and reason in MESSAGES:
            yield reason, make_note(reason, what=scheduling_problems(message), message=message)
        elif (
            condition.type == "DisruptionTarget"
            and condition.status == "True"
            and reason in MESSAGES
            and not pod_reason
        ):
            yield reason, make_note(reason, message=message)
        elif condition.type == "Ready" and reason == "NodeStatusUnknown":
            yield "NodeLost", make_note("NodeLost", what=pod.spec.node_name or "")


def _container_problem(status: ContainerStatus, limit: str) -> tuple[str, str, str]:
    """Return fact, subject and message of a container's status; empty strings where it has no problem."""
    waiting, terminated = status.state.waiting, status.state.terminated
    if waiting is not None and waiting.reason in MESSAGES:
        return waiting.reason or "", status.image, waiting.message or ""
    if terminated is not None and terminated.reason in MESSAGES:
        killed = terminated.reason == "OOMKilled"
        return terminated.reason or "", limit if killed else status.image, terminated.message or ""
    return "", "", ""


def event_problems(event: ClusterEvent) -> Iterator[tuple[str, Note]]:
    """Yield (fact, note) of an event whose cause no object's status reports."""
    message, reason = event.message or "", event.reason or ""
    if reason in _CREATION_FAILURES:
        fact = creation_failure(message)
        yield fact, make_note(fact, message=message)
    elif reason in ("FailedMount", "FailedAttachVolume", "FailedCreatePodSandBox"):
        yield reason, make_note(reason, message=message)


def suspension_notes(owner: Owner, workloads: Iterable[Workload]) -> Iterator[Note]:
    """Yield why a launch is suspended: by Kueue, which may have admitted it before, or by a person.

    Kueue evaluates the head of a queue only, and reports nothing about the others.
    """
    conditions = [
        (item, (item.type, item.status)) for workload in workloads for item in workload.status.conditions or ()
    ]
    eviction = next((item.message or "" for item, state in conditions if state == ("Evicted", "True")), None)
    if eviction is not None:
        yield make_note("displaced", message=eviction)
    waiting = next((item for item, state in conditions if state in _NOT_ADMITTED and item.message != eviction), None)
    if waiting is not None:
        yield make_note("closed" if waiting.reason == "Inadmissible" else "queued", message=waiting.message or "")
    elif eviction is None and not any(state == ("Admitted", "True") for _, state in conditions):
        yield make_note("turn" if QUEUE in owner.metadata.labels else "suspended")


def events_by_launch(events: Iterable[ClusterEvent], names: Mapping[str, str]) -> dict[str, list[ClusterEvent]]:
    """Group events by launch: the name of an event's object begins with that of the launch's owner."""
    by_launch: dict[str, list[ClusterEvent]] = {}
    for event in events:
        object_name = event.involved_object.name
        for name, launch in names.items():
            if object_name == name or object_name.startswith(f"{name}-"):
                by_launch.setdefault(launch, []).append(event)
    return by_launch


def _created_at(pod: Pod) -> datetime:
    return pod.metadata.creation_timestamp or EPOCH
