"""Status mapping: launch status from objects recorded on a real cluster (tests/recorded) and from constructed ones."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.domain.launches import LaunchStatus, Phase
from workers.executors.kubernetes.objects import ClusterEvent, Owner, Pod, Workload
from workers.executors.kubernetes.status_mapping import events_by_launch, launch_status, phase_of, settled
from workers.executors.kubernetes.status_messages import (
    MESSAGES,
    clean,
    creation_failure,
    make_note,
    scheduling_problems,
)

RECORDED = Path(__file__).parents[1] / "recorded/kubernetes"
PATIENCE = 120.0


def scene(name: str) -> tuple[Owner, list[Pod], list[ClusterEvent]]:
    """Read the recorded objects of a launch."""
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    owner = msgspec.convert(recorded["jobsets"][0], Owner)
    pods, events = msgspec.convert(recorded["pods"], list[Pod]), msgspec.convert(recorded["events"], list[ClusterEvent])
    return (
        owner,
        pods,
        events_by_launch(events, {owner.metadata.name: owner.metadata.launch}).get(owner.metadata.launch, []),
    )


def seen(name: str, after: float = 5.0) -> LaunchStatus:
    owner, pods, events = scene(name)
    assert owner.metadata.creation_timestamp is not None
    now = owner.metadata.creation_timestamp + timedelta(seconds=after)
    return launch_status(owner, pods, events, now=now, patience=PATIENCE)


@pytest.mark.parametrize(
    ("name", "phase", "words"),
    [
        ("never", Phase.STARTING, "The node has no image windtunnel.local/none:1 for the runner,"),
        ("pull", Phase.STARTING, "The image 127.0.0.1:9/none:1 of the runner cannot be pulled ("),
        ("name", Phase.STARTING, "UPPER!! is not a valid image name (runner)."),
        ("cpu", Phase.STARTING, "No node has room: not enough cpu, not enough nvidia.com/gpu on 1 nodes ("),
        ("oom", Phase.RUNNING, "The model-server needed more than its 32Mi of memory and was killed."),
        ("nosecret", Phase.STARTING, "A pod waits for a volume: MountVolume.SetUp failed"),
        ("suspend", Phase.SUSPENDED, "The launch is suspended in the cluster."),
        ("unsafe", Phase.STARTING, "The namespace's pod security refuses the platform's pods:"),
        ("quota", Phase.RUNNING, "The project's quota in the cluster is used up ("),
    ],
)
def test_the_reason_why_a_launch_waits_is_one_sentence(name: str, phase: Phase, words: str) -> None:
    status = seen(name)
    assert status.phase is phase
    assert status.notes[0].words.startswith(words)
    assert not status.hopeless, "not before patience is at its end"
    assert len({note.key for note in status.notes}) == len(status.notes)


@pytest.mark.parametrize(
    ("name", "hopeless"),
    [
        ("never", True),
        ("pull", True),
        ("name", True),
        ("unsafe", True),
        ("cpu", False),
        ("oom", False),
        ("quota", False),
    ],
)
def test_only_a_lasting_failure_is_hopeless_and_only_after_its_patience(name: str, hopeless: bool) -> None:
    status = seen(name, after=PATIENCE + 60)
    assert status.hopeless is hopeless
    assert not hopeless or status.reason == status.notes[0].words


def test_a_successful_launch_has_no_reason() -> None:
    assert seen("good") == LaunchStatus(id="goodx1x1", phase=Phase.ENDED, exit=0)
    assert settled(scene("good")[0])


def test_a_failed_launch_has_the_exit_code_and_last_output_of_its_runner() -> None:
    status = seen("exit")
    assert (status.phase, status.exit, status.hopeless) == (Phase.ENDED, 70, True)
    assert status.reason == "its runner ended with exit code 70: model [31mmissing"


def owner(*conditions: tuple[str, str], kind: str = "job", reason: str = "", **spec: Any) -> Owner:
    status = {"conditions": [{"type": one, "status": truth, "reason": reason} for one, truth in conditions]}
    labels = {"windtunnel/launch": "ax1x1"}
    return msgspec.convert({"metadata": {"name": "wt-a", "labels": labels}, "spec": spec, "status": status}, Owner)


def pod(status: Mapping[str, Any], age: float = 0.0) -> Pod:
    made = NOW - timedelta(seconds=age)
    container = {"name": "runner", "image": "c:1", "resources": {"limits": {"memory": "1Gi"}}}
    spec = {"nodeName": "n1", "containers": [container]}
    document = {"metadata": {"name": "p", "creationTimestamp": made.isoformat()}, "spec": spec, "status": status}
    return msgspec.convert(document, Pod)


NOW = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


def told(status: Mapping[str, Any]) -> str:
    observed = launch_status(owner(parallelism=1), [pod(status)], now=NOW, patience=PATIENCE)
    return " ".join(note.words for note in observed.notes)


@pytest.mark.parametrize(
    ("conditions", "spec", "phase"),
    [
        ((("Completed", "True"),), {}, Phase.ENDED),  # a JobSet
        ((("Complete", "True"),), {"parallelism": 1}, Phase.ENDED),  # a Job, or a TrainJob
        ((("Succeeded", "True"), ("Running", "False")), {}, Phase.ENDED),  # an MPIJob
        ((("Failed", "True"),), {}, Phase.ENDED),
        ((("Failed", "False"), ("Running", "True")), {}, Phase.RUNNING),
        ((("Suspended", "True"),), {"suspend": True}, Phase.SUSPENDED),
        ((), {"runPolicy": {"suspend": True}}, Phase.SUSPENDED),
        ((), {"parallelism": 2}, Phase.STARTING),
        ((), {}, Phase.STARTING),
    ],
)
def test_every_kind_of_owner_has_a_phase(
    conditions: tuple[tuple[str, str], ...], spec: dict[str, Any], phase: Phase
) -> None:
    assert phase_of(owner(*conditions, **spec)) is phase


def test_a_jobset_runs_when_all_its_jobs_run() -> None:
    for ready, phase in ((0, Phase.STARTING), (1, Phase.STARTING), (2, Phase.RUNNING)):
        status = {"replicatedJobsStatus": [{"name": "w", "ready": ready, "active": 2}, {"name": "l", "succeeded": 0}]}
        spec = {"replicatedJobs": [{"name": "w", "replicas": 2}]}
        assert phase_of(msgspec.convert({"spec": spec, "status": status}, Owner)) is phase


@pytest.mark.parametrize(
    ("status", "words"),
    [
        ({"phase": "Failed", "reason": "Evicted", "message": "low on memory"}, "evicted from its node (low on memory)"),
        ({"phase": "Failed", "reason": "NodeLost"}, "The node n1 does not answer any more."),
        ({"phase": "Failed", "reason": "Terminated"}, "its node, which shut down"),
        ({"phase": "Failed", "reason": "OutOfcpu"}, "no CPU left"),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "PreemptionByScheduler"}]},
            "preempted by a pod of higher priority",
        ),
        (
            {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager"}]},
            "Its work is done again elsewhere.",
        ),
        (
            {"conditions": [{"type": "Ready", "status": "False", "reason": "NodeStatusUnknown"}]},
            "The node n1 does not answer any more.",
        ),
        (
            {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "SchedulingGated", "message": "g"}]},
            "A scheduling gate holds its pods back (g).",
        ),
    ],
)
def test_a_pod_that_lost_its_node_says_so(status: dict[str, Any], words: str) -> None:
    assert words in told(status)


@pytest.mark.parametrize(
    ("state", "words"),
    [
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}},
            "may have been deleted",
        ),
        ({"waiting": {"reason": "ContainerCreating"}}, ""),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "The runner needed more than its 1Gi of memory"),
        ({"terminated": {"exitCode": 128, "reason": "StartError", "message": "no python"}}, "(no python)"[1:-1]),
        ({"running": {}}, ""),
    ],
)
def test_a_waiting_container_has_a_reason(state: dict[str, Any], words: str) -> None:
    status = {"phase": "Pending", "containerStatuses": [{"name": "runner", "image": "c:1", "state": state}]}
    assert words in told(status) and bool(words) is bool(told(status))


def test_a_launch_with_one_healthy_pod_is_not_hopeless() -> None:
    bad = {"name": "runner", "image": "c:1", "state": {"waiting": {"reason": "ErrImageNeverPull"}}}
    stuck, fine = pod({"phase": "Pending", "containerStatuses": [bad]}, age=500), pod({"phase": "Pending"}, age=500)
    whole = owner(parallelism=2)
    assert launch_status(whole, [stuck], now=NOW, patience=PATIENCE).hopeless
    assert not launch_status(whole, [stuck, fine], now=NOW, patience=PATIENCE).hopeless
    running = pod({"phase": "Running"}, age=500)
    assert launch_status(whole, [stuck, running], now=NOW, patience=PATIENCE).phase is Phase.RUNNING


def left(phase: str = "Running", *, leaving: float | None = None, silent: float | None = None) -> Pod:
    """Return a pod that was deleted, or whose node stopped reporting, a number of seconds ago."""
    conditions = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"}]
    if silent is not None:
        conditions[1] |= {"status": "False", "lastTransitionTime": (NOW - timedelta(seconds=silent)).isoformat()}
    metadata = {"deletionTimestamp": (NOW - timedelta(seconds=leaving)).isoformat()} if leaving is not None else {}
    document = {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": phase, "conditions": conditions}}
    return msgspec.convert(document, Pod)


@pytest.mark.parametrize(
    ("pods", "ended"),
    [
        ([left(leaving=16)], True),
        ([left(leaving=-20)], False),  # its grace is not over
        ([left(silent=121)], True),
        ([left(silent=60)], False),  # the node may come back
        ([left(silent=121), left()], False),  # somebody goes on
        ([left(silent=121), left("Failed")], True),
        ([], False),
    ],
)
def test_a_launch_without_any_of_its_nodes_has_ended(pods: list[Pod], ended: bool) -> None:
    status = launch_status(owner(parallelism=2), pods, now=NOW, patience=PATIENCE)
    assert (status.phase is Phase.ENDED) is ended
    assert not status.hopeless
    if ended:
        assert status.reason == "The node n1 does not answer any more. Its work is done again elsewhere."


def test_a_launch_whose_pods_were_deleted_and_not_replaced_has_ended() -> None:
    for pods, ended in (
        ([left("Failed", leaving=46)], True),
        ([left("Failed", leaving=20)], False),  # a follower may be on its way
        ([left("Failed", leaving=46), left("Pending")], False),
    ):
        status = launch_status(owner(parallelism=1), pods, now=NOW, patience=PATIENCE)
        assert (status.phase is Phase.ENDED) is ended
        assert not ended or "cannot be replaced" in str(status.reason)


def test_a_killed_runner_is_reported_with_the_name_of_the_signal() -> None:
    status = {"name": "runner", "state": {"terminated": {"exitCode": 137}}}
    failed = pod({"phase": "Failed", "containerStatuses": [status]})
    observed = launch_status(owner(("Failed", "True")), [failed], now=NOW, patience=PATIENCE)
    assert (observed.exit, observed.reason) == (137, "its runner was ended by SIGKILL")


def test_a_failed_gang_reports_the_end_of_its_program() -> None:
    state = {"exitCode": 70, "message": "Segmentation fault"}
    failed = pod({"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": state}}]})
    status = launch_status(owner(("Failed", "True")), [failed], now=NOW, patience=PATIENCE)
    assert (status.exit, status.hopeless) == (70, False)
    assert status.reason == "its program ended with exit code 70: Segmentation fault"


DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}


def failed(*exits: int, name: str = "main", leaving: bool = False, **status: Any) -> Pod:
    """Return a failed pod of a gang without a runner, with the exit codes of its containers, the program's last."""
    names = [*(f"beside-{number}" for number in range(len(exits) - 1)), name]
    ended = [
        {"name": name, "state": {"terminated": {"exitCode": code}}} for name, code in zip(names, exits, strict=False)
    ]
    metadata = {"deletionTimestamp": NOW.isoformat()} if leaving else {}
    document = {"metadata": metadata, "status": {"phase": "Failed", "containerStatuses": ended, **status}}
    return msgspec.convert(document, Pod)


@pytest.mark.parametrize(
    ("pods", "words"),
    [
        ([failed(143, **DISRUPTED)], "as in a drain"),
        ([failed(143, **DISRUPTED), failed(1)], "as in a drain"),  # it missed its peer
        ([failed(reason="Evicted", message="low on memory")], "evicted from its node"),
    ],
)
def test_a_program_whose_pods_were_lost_has_no_exit_code(pods: list[Pod], words: str) -> None:
    whole = owner(("Failed", "True"), reason="a job failed", parallelism=2)
    status = launch_status(whole, pods, now=NOW, patience=PATIENCE)
    assert (status.phase, status.exit) == (Phase.ENDED, None) and words in str(status.reason)


def test_a_failed_program_has_its_own_exit_code_and_not_that_of_terminated_pods() -> None:
    status = launch_status(
        owner(("Failed", "True")), [failed(3), failed(143, leaving=True)], now=NOW, patience=PATIENCE
    )
    assert (status.exit, status.reason) == (3, "its program ended with exit code 3")


def test_a_failed_program_without_a_message_has_failed() -> None:
    for pods in ([failed(143, leaving=True)], []):
        status = launch_status(owner(("Failed", "True"), reason="a job failed"), pods, now=NOW, patience=PATIENCE)
        assert status.exit == 1 and "a job failed" in str(status.reason)


def test_a_program_of_an_operator_has_its_exit_code_whatever_its_container_is_called() -> None:
    for pod in (failed(3, name="node"), failed(0, 3, name="node")):
        status = launch_status(owner(("Failed", "True")), [pod], now=NOW, patience=PATIENCE)
        assert (status.exit, status.reason) == (3, "its program ended with exit code 3")


def test_a_launch_past_its_deadline_says_so() -> None:
    status = launch_status(owner(("Failed", "True"), reason="DeadlineExceeded"), now=NOW, patience=PATIENCE)
    assert (status.exit, status.reason) == (1, "The launch exceeded its time limit, and the cluster ended it.")


def mpijob(*conditions: tuple[str, str], reason: str = "") -> Owner:
    roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    return owner(*conditions, reason=reason, mpiReplicaSpecs=roles)


def of(part: str, age: float, *exits: int, **status: Any) -> Pod:
    """Return a pod of an MPIJob, which runs unless it has an exit code."""
    ended = [{"name": "main", "state": {"terminated": {"exitCode": code, **status.pop("ended", {})}}} for code in exits]
    made = (NOW - timedelta(seconds=age)).isoformat()
    metadata = {"labels": {"windtunnel/part": part}, "creationTimestamp": made}
    status = {"phase": "Failed" if exits else "Running", "containerStatuses": ended, **status}
    return msgspec.convert({"metadata": metadata, "status": status}, Pod)


LED = of("lead", 10, 3)


@pytest.mark.parametrize(
    ("pods", "exit"),
    [
        ([LED, of("replica", 12), of("replica", 10)], 3),
        ([of("lead", 20, 1), LED, of("replica", 30), of("replica", 15)], 3),  # led again since one was lost
        ([LED, of("replica", 12), of("replica", 12, 137)], 3),  # it ended by itself, and its place stays empty
        ([LED, of("replica", 12), of("replica", 5)], None),  # made again
        ([LED, of("replica", 12)], None),
        ([LED, of("replica", 12), of("replica", 12, **DISRUPTED)], None),
        ([of("replica", 12), of("replica", 12)], None),
    ],
)
def test_a_program_of_mpi_has_its_exit_code_only_with_its_first_workers(pods: list[Pod], exit: int | None) -> None:
    status = launch_status(mpijob(("Failed", "True")), pods, now=NOW, patience=PATIENCE)
    assert status.exit == exit
    assert exit or status.reason in {make_note("PodTaken").words, make_note("EvictionByEvictionAPI").words}


@pytest.mark.parametrize(
    ("pods", "exit"),
    [
        ([of("lead", 10), of("replica", 12), of("replica", 12)], 0),
        ([of("replica", 12), of("replica", 12)], 0),  # it was seen so late that who led has been swept up
        ([of("lead", 10), of("replica", 12), of("replica", 5)], None),
        ([of("lead", 10), of("replica", 12)], None),
    ],
)
def test_a_program_of_mpi_that_lost_a_worker_has_not_succeeded_whatever_mpirun_returns(
    pods: list[Pod], exit: int | None
) -> None:
    done = mpijob(("Succeeded", "True"))
    assert not settled(done)
    status = launch_status(done, pods, now=NOW, patience=PATIENCE)
    assert (status.phase, status.exit) == (Phase.ENDED, exit)
    assert status.reason == (None if exit == 0 else make_note("PodTaken").words)


def test_a_program_of_mpi_past_its_deadline_was_ended_and_not_evicted() -> None:
    workers = [of("replica", 12), of("replica", 12)]  # who led was deleted for it
    status = launch_status(mpijob(("Failed", "True"), reason="DeadlineExceeded"), workers, now=NOW, patience=PATIENCE)
    assert (status.exit, [note.key for note in status.notes]) == (1, ["DeadlineExceeded"])


def test_workers_of_mpi_that_fail_before_the_launcher_starts_end_the_launch() -> None:
    failed = of("replica", 5, 128, ended={"reason": "StartError", "message": 'exec: "/usr/sbin/sshd": not found'})
    status = launch_status(mpijob(("Created", "True")), [failed, of("replica", 5)], now=NOW, patience=PATIENCE)
    assert (status.phase, status.exit) == (Phase.ENDED, 128) and "sshd" in str(status.reason)
    evicted = of("replica", 5, 143, reason="Evicted")
    assert launch_status(mpijob(("Created", "True")), [evicted], now=NOW, patience=PATIENCE).exit is None
    begun = mpijob(("Created", "True"), ("Running", "True"))
    assert launch_status(begun, [failed], now=NOW, patience=PATIENCE).phase is Phase.RUNNING, "who leads will tell"


def waiting(label: bool, *conditions: tuple[str, str, str, str]) -> list[str]:
    """Return the status of a suspended launch whose Kueue workload has these conditions."""
    named = [dict(zip(("type", "status", "reason", "message"), one, strict=True)) for one in conditions]
    workload = msgspec.convert({"status": {"conditions": named}}, Workload)
    labels = {"windtunnel/launch": "a"} | ({"kueue.x-k8s.io/queue-name": "q"} if label else {})
    held = msgspec.convert({"metadata": {"labels": labels}, "spec": {"suspend": True}}, Owner)
    status = launch_status(held, workloads=[workload], now=NOW, patience=PATIENCE)
    assert status.phase is Phase.SUSPENDED and len({note.key for note in status.notes}) == len(status.notes)
    return [note.words for note in status.notes]


def test_a_launch_queued_by_kueue_has_the_reason_of_kueue() -> None:
    lacks = ("QuotaReserved", "False", "Pending", "couldn't assign flavors to pod set w")
    assert waiting(True, lacks) == ["The launch waits in Kueue: couldn't assign flavors to pod set w."]
    [told] = waiting(True, ("QuotaReserved", "False", "Inadmissible", "LocalQueue q doesn't exist"))
    assert told.startswith("Kueue does not admit the launch: LocalQueue q doesn't exist.")


def test_a_launch_behind_others_in_its_queue_waits_for_its_turn() -> None:
    assert waiting(True) == ["The launch waits in Kueue until its turn comes."]
    assert waiting(True, ("QuotaReserved", "True", "", ""), ("Admitted", "True", "", "")) == [], "it is just let go"
    assert waiting(False) == ["The launch is suspended in the cluster. It goes on once a person resumes it."]


def test_a_preempted_launch_reports_the_preemption_once_and_then_why_it_waits() -> None:
    taken = ("Evicted", "True", "Preempted", "Preempted to accommodate a workload")
    words = "Kueue evicted the launch (Preempted to accommodate a workload)."
    [told] = waiting(True, ("QuotaReserved", "False", "Pending", taken[3]), taken)
    assert told.startswith(words)
    told, then = waiting(True, ("QuotaReserved", "False", "Pending", "no room"), taken)
    assert told.startswith(words) and then == "The launch waits in Kueue: no room."
    assert waiting(True, ("QuotaReserved", "False", "Pending", "no room"), ("Evicted", "False", "", "")) == [then]


@pytest.mark.parametrize(
    ("message", "fact"),
    [
        ('pods "x" is forbidden: exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1', "quota"),
        ('pods "x" is forbidden: violates PodSecurity "restricted:latest": ...', "security"),
        ('admission webhook "a.b" denied the request: no', "denied"),
        ('Internal error occurred: failed calling webhook "a.b": connection refused', "webhook"),
        ('pods "x" is forbidden: User "y" cannot create resource', "forbidden"),
        ("something new", "FailedCreate"),
    ],
)
def test_reasons_why_a_pod_could_not_be_created_are_distinguished(message: str, fact: str) -> None:
    assert creation_failure(message) == fact


def test_messages_of_others_become_one_short_printable_line() -> None:
    assert clean("a\x1b[31m\r\nb\u202e\tc") == "a [31m b c"
    assert len(clean("x" * 10_000)) == 300
    assert "\x1b" not in make_note("OOMKilled", "model-server", "\x1b[0m").words


def test_every_message_can_be_formatted_and_is_a_sentence() -> None:
    for fact in MESSAGES:
        words = make_note(fact, "model-server", "thing", "because.").words
        assert "{" not in words and words.endswith(".") and ".." not in words and len(words) < 300


def test_the_message_of_the_scheduler_names_the_missing_resource() -> None:
    said = "0/9 nodes are available: 3 Insufficient rdma/hca, 6 node(s) had untolerated taint {gpu: yes}. x"
    assert scheduling_problems(said) == "not enough rdma/hca, taints that are not tolerated on 9 nodes"
    assert scheduling_problems("no nodes available to schedule pods") == "no node at all"
    assert scheduling_problems("what nobody knows") == "none fits"


def test_events_go_to_the_launch_whose_name_their_objects_begin_with() -> None:
    events = [
        msgspec.convert({"involvedObject": {"kind": "Pod", "name": name}}, ClusterEvent)
        for name in ("wt-a-w-0-0-x", "wt-ab-w-0-0-x", "wt-a", "other")
    ]
    by_launch = events_by_launch(events, {"wt-a": "a", "wt-ab": "ab"})
    assert {
        launch: [event.involved_object.name for event in launch_events] for launch, launch_events in by_launch.items()
    } == {
        "a": ["wt-a-w-0-0-x", "wt-a"],
        "ab": ["wt-ab-w-0-0-x"],
    }
