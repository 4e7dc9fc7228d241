"""Status mapping: launch status from objects recorded on a real cluster (tests/recorded) and constructed objects."""

import json
from collections.abc import Mapping
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.domain.scheduling.launches import LaunchStatus, Phase
from workers.executors.kubernetes.manifests.mpijob import WORKERS_LOST
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


def recorded_objects(name: str) -> tuple[Owner, list[Pod], list[ClusterEvent]]:
    """Read the recorded objects of a launch."""
    documents = json.loads((RECORDED / f"{name}.json").read_text())
    owner = msgspec.convert(documents["jobsets"][0], Owner)
    pods, events = (
        msgspec.convert(documents["pods"], list[Pod]),
        msgspec.convert(documents["events"], list[ClusterEvent]),
    )
    return (
        owner,
        pods,
        events_by_launch(events, {owner.metadata.name: owner.metadata.launch}).get(owner.metadata.launch, []),
    )


def recorded_status(name: str, seconds_after_creation: float = 5.0) -> LaunchStatus:
    owner, pods, events = recorded_objects(name)
    assert owner.metadata.creation_timestamp is not None
    now = owner.metadata.creation_timestamp + timedelta(seconds=seconds_after_creation)
    return launch_status(owner, pods, events, now=now, patience=PATIENCE)


@pytest.mark.parametrize(
    ("name", "phase", "sentence"),
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
def test_a_launch_that_waits_has_a_single_sentence_as_its_reason(name: str, phase: Phase, sentence: str) -> None:
    status = recorded_status(name)
    assert status.phase is phase
    assert status.notes[0].message.startswith(sentence)
    assert not status.hopeless, "a launch is hopeless only once the executor's patience has run out"
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
def test_only_a_permanent_failure_is_hopeless_and_only_after_the_executors_patience(name: str, hopeless: bool) -> None:
    status = recorded_status(name, seconds_after_creation=PATIENCE + 60)
    assert status.hopeless is hopeless
    assert not hopeless or status.reason == status.notes[0].message


def test_a_successful_launch_has_no_reason() -> None:
    assert recorded_status("good") == LaunchStatus(id="goodx1x1", phase=Phase.ENDED, exit=0)
    assert settled(recorded_objects("good")[0])


def test_a_failed_launch_has_the_exit_code_and_last_output_of_its_runner() -> None:
    status = recorded_status("exit")
    assert (status.phase, status.exit, status.hopeless) == (Phase.ENDED, 70, True)
    assert status.reason == "its runner ended with exit code 70: model [31mmissing"


def owner(*conditions: tuple[str, str], kind: str = "job", reason: str = "", **spec: Any) -> Owner:
    status = {"conditions": [{"type": condition, "status": value, "reason": reason} for condition, value in conditions]}
    labels = {"windtunnel/launch": "ax1x1"}
    return msgspec.convert({"metadata": {"name": "wt-a", "labels": labels}, "spec": spec, "status": status}, Owner)


def pod(status: Mapping[str, Any], age_seconds: float = 0.0) -> Pod:
    created_at = NOW - timedelta(seconds=age_seconds)
    container = {"name": "runner", "image": "c:1", "resources": {"limits": {"memory": "1Gi"}}}
    spec = {"nodeName": "n1", "containers": [container]}
    document = {"metadata": {"name": "p", "creationTimestamp": created_at.isoformat()}, "spec": spec, "status": status}
    return msgspec.convert(document, Pod)


NOW = datetime.fromisoformat("2026-01-01T00:00:00+00:00")


def messages_of_pod(status: Mapping[str, Any]) -> str:
    launch = launch_status(owner(parallelism=1), [pod(status)], now=NOW, patience=PATIENCE)
    return " ".join(note.message for note in launch.notes)


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
    ("status", "text"),
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
def test_the_message_of_a_pod_that_lost_its_node_names_the_cause(status: dict[str, Any], text: str) -> None:
    assert text in messages_of_pod(status)


@pytest.mark.parametrize(
    ("state", "text"),
    [
        (
            {"waiting": {"reason": "CreateContainerConfigError", "message": 'secret "x" not found'}},
            "may have been deleted",
        ),
        ({"waiting": {"reason": "ContainerCreating"}}, ""),
        ({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}, "The runner needed more than its 1Gi of memory"),
        ({"terminated": {"exitCode": 128, "reason": "StartError", "message": "no python"}}, "no python"),
        ({"running": {}}, ""),
    ],
)
def test_a_container_that_waits_or_failed_to_start_has_a_message(state: dict[str, Any], text: str) -> None:
    status = {"phase": "Pending", "containerStatuses": [{"name": "runner", "image": "c:1", "state": state}]}
    assert text in messages_of_pod(status) and bool(text) is bool(messages_of_pod(status))


def test_a_launch_with_one_healthy_pod_is_not_hopeless() -> None:
    container = {"name": "runner", "image": "c:1", "state": {"waiting": {"reason": "ErrImageNeverPull"}}}
    stuck_pod, pending_pod = (
        pod({"phase": "Pending", "containerStatuses": [container]}, age_seconds=500),
        pod({"phase": "Pending"}, age_seconds=500),
    )
    job = owner(parallelism=2)
    assert launch_status(job, [stuck_pod], now=NOW, patience=PATIENCE).hopeless
    assert not launch_status(job, [stuck_pod, pending_pod], now=NOW, patience=PATIENCE).hopeless
    running_pod = pod({"phase": "Running"}, age_seconds=500)
    assert launch_status(job, [stuck_pod, running_pod], now=NOW, patience=PATIENCE).phase is Phase.RUNNING


def pod_on_node(phase: str = "Running", *, deleted_ago: float | None = None, silent_for: float | None = None) -> Pod:
    """Return a pod that was deleted, or whose node stopped reporting, this number of seconds ago."""
    conditions = [{"type": "ContainersReady", "status": "True"}, {"type": "Ready", "status": "True"}]
    if silent_for is not None:
        conditions[1] |= {"status": "False", "lastTransitionTime": (NOW - timedelta(seconds=silent_for)).isoformat()}
    metadata = (
        {"deletionTimestamp": (NOW - timedelta(seconds=deleted_ago)).isoformat()} if deleted_ago is not None else {}
    )
    document = {"metadata": metadata, "spec": {"nodeName": "n1"}, "status": {"phase": phase, "conditions": conditions}}
    return msgspec.convert(document, Pod)


@pytest.mark.parametrize(
    ("pods", "ended"),
    [
        ([pod_on_node(deleted_ago=16)], True),
        ([pod_on_node(deleted_ago=-20)], False),  # its grace period is not over
        ([pod_on_node(silent_for=121)], True),
        ([pod_on_node(silent_for=60)], False),  # the node may come back
        ([pod_on_node(silent_for=121), pod_on_node()], False),  # the other pod still runs
        ([pod_on_node(silent_for=121), pod_on_node("Failed")], True),
        ([], False),
    ],
)
def test_a_launch_that_lost_all_its_nodes_has_ended(pods: list[Pod], ended: bool) -> None:
    status = launch_status(owner(parallelism=2), pods, now=NOW, patience=PATIENCE)
    assert (status.phase is Phase.ENDED) is ended
    assert not status.hopeless
    if ended:
        assert status.reason == "The node n1 does not answer any more. Its work is done again elsewhere."


def test_a_launch_whose_pods_were_deleted_and_not_replaced_has_ended() -> None:
    for pods, ended in (
        ([pod_on_node("Failed", deleted_ago=46)], True),
        ([pod_on_node("Failed", deleted_ago=20)], False),  # its controller may still replace it
        ([pod_on_node("Failed", deleted_ago=46), pod_on_node("Pending")], False),
    ):
        status = launch_status(owner(parallelism=1), pods, now=NOW, patience=PATIENCE)
        assert (status.phase is Phase.ENDED) is ended
        assert not ended or "cannot be replaced" in str(status.reason)


def test_a_killed_runner_is_reported_with_the_name_of_the_signal() -> None:
    container = {"name": "runner", "state": {"terminated": {"exitCode": 137}}}
    failed_pod = pod({"phase": "Failed", "containerStatuses": [container]})
    status = launch_status(owner(("Failed", "True")), [failed_pod], now=NOW, patience=PATIENCE)
    assert (status.exit, status.reason) == (137, "its runner was ended by SIGKILL")


def test_a_failed_gang_reports_the_exit_code_of_its_program() -> None:
    terminated = {"exitCode": 70, "message": "Segmentation fault"}
    failed_pod = pod({"phase": "Failed", "containerStatuses": [{"name": "main", "state": {"terminated": terminated}}]})
    status = launch_status(owner(("Failed", "True")), [failed_pod], now=NOW, patience=PATIENCE)
    assert (status.exit, status.hopeless) == (70, False)
    assert status.reason == "its program ended with exit code 70: Segmentation fault"


DISRUPTED = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI"}]}


def failed_pod(*exit_codes: int, name: str = "main", deleted: bool = False, **status: Any) -> Pod:
    """Return a failed pod of a gang without a runner, with the exit codes of its containers, the program's last."""
    names = [*(f"beside-{number}" for number in range(len(exit_codes) - 1)), name]
    containers = [
        {"name": name, "state": {"terminated": {"exitCode": exit_code}}}
        for name, exit_code in zip(names, exit_codes, strict=False)
    ]
    metadata = {"deletionTimestamp": NOW.isoformat()} if deleted else {}
    document = {"metadata": metadata, "status": {"phase": "Failed", "containerStatuses": containers, **status}}
    return msgspec.convert(document, Pod)


@pytest.mark.parametrize(
    ("pods", "text"),
    [
        ([failed_pod(143, **DISRUPTED)], "as in a drain"),
        # Exit code 1 follows from the loss of the peer.
        ([failed_pod(143, **DISRUPTED), failed_pod(1)], "as in a drain"),
        ([failed_pod(reason="Evicted", message="low on memory")], "evicted from its node"),
    ],
)
def test_a_program_whose_pods_were_lost_has_no_exit_code(pods: list[Pod], text: str) -> None:
    job = owner(("Failed", "True"), reason="a job failed", parallelism=2)
    status = launch_status(job, pods, now=NOW, patience=PATIENCE)
    assert (status.phase, status.exit) == (Phase.ENDED, None) and text in str(status.reason)


def test_a_failed_program_has_its_own_exit_code_and_not_the_exit_code_of_deleted_pods() -> None:
    status = launch_status(
        owner(("Failed", "True")), [failed_pod(3), failed_pod(143, deleted=True)], now=NOW, patience=PATIENCE
    )
    assert (status.exit, status.reason) == (3, "its program ended with exit code 3")


def test_a_failed_program_without_an_exit_code_has_exit_code_1() -> None:
    for pods in ([failed_pod(143, deleted=True)], []):
        status = launch_status(owner(("Failed", "True"), reason="a job failed"), pods, now=NOW, patience=PATIENCE)
        assert status.exit == 1 and "a job failed" in str(status.reason)


def test_a_program_run_by_an_operator_has_its_exit_code_for_every_container_name() -> None:
    for pod in (failed_pod(3, name="node"), failed_pod(0, 3, name="node")):
        status = launch_status(owner(("Failed", "True")), [pod], now=NOW, patience=PATIENCE)
        assert (status.exit, status.reason) == (3, "its program ended with exit code 3")


def test_a_launch_past_its_deadline_has_the_deadline_as_its_reason() -> None:
    status = launch_status(owner(("Failed", "True"), reason="DeadlineExceeded"), now=NOW, patience=PATIENCE)
    assert (status.exit, status.reason) == (1, "The launch exceeded its time limit, and the cluster ended it.")


def mpi_job(*conditions: tuple[str, str], reason: str = "") -> Owner:
    roles = {"Launcher": {"replicas": 1}, "Worker": {"replicas": 2}}
    return owner(*conditions, reason=reason, mpiReplicaSpecs=roles)


def mpi_pod(part: str, age_seconds: float, *exit_codes: int, **status: Any) -> Pod:
    """Return a pod of an MPIJob, which runs unless it has an exit code."""
    containers = [
        {"name": "main", "state": {"terminated": {"exitCode": exit_code, **status.pop("terminated", {})}}}
        for exit_code in exit_codes
    ]
    created_at = (NOW - timedelta(seconds=age_seconds)).isoformat()
    metadata = {"labels": {"windtunnel/part": part}, "creationTimestamp": created_at}
    status = {"phase": "Failed" if exit_codes else "Running", "containerStatuses": containers, **status}
    return msgspec.convert({"metadata": metadata, "status": status}, Pod)


FAILED_LAUNCHER = mpi_pod("lead", 10, 3)
BEREFT_LAUNCHER = mpi_pod("lead", 10, 1, terminated={"message": f"{WORKERS_LOST} wt-a-worker-1\n"})
FIRST_LAUNCHER = mpi_pod("lead", 20, 1, terminated={"message": f"{WORKERS_LOST} wt-a-worker-0\n"})


@pytest.mark.parametrize(
    ("pods", "exit"),
    [
        ([FAILED_LAUNCHER, mpi_pod("replica", 12), mpi_pod("replica", 12)], 3),
        ([FAILED_LAUNCHER, mpi_pod("replica", 12), mpi_pod("replica", 12, **DISRUPTED)], 3),  # drained at the end
        ([FAILED_LAUNCHER], 3),  # the operator has deleted the workers
        # Restarted after the loss of a worker.
        ([FIRST_LAUNCHER, FAILED_LAUNCHER, mpi_pod("replica", 30), mpi_pod("replica", 15)], 3),
        # The worker ended by itself and is not replaced.
        ([FAILED_LAUNCHER, mpi_pod("replica", 12), mpi_pod("replica", 12, 137)], 3),
        ([BEREFT_LAUNCHER, mpi_pod("replica", 12, 137)], 1),
        ([BEREFT_LAUNCHER, mpi_pod("replica", 12, 0, phase="Succeeded")], 1),
        ([BEREFT_LAUNCHER, mpi_pod("replica", 12), mpi_pod("replica", 5)], None),
        ([BEREFT_LAUNCHER, mpi_pod("replica", 12)], None),
        ([BEREFT_LAUNCHER], None),
        ([FAILED_LAUNCHER, mpi_pod("replica", 12, 137, **DISRUPTED)], None),
        ([mpi_pod("replica", 12), mpi_pod("replica", 12)], None),
        ([], None),
    ],
)
def test_an_mpi_program_has_an_exit_code_only_if_the_cluster_took_no_worker_away(
    pods: list[Pod], exit: int | None
) -> None:
    status = launch_status(mpi_job(("Failed", "True")), pods, now=NOW, patience=PATIENCE)
    assert status.exit == exit
    assert exit or status.reason in {make_note("PodTaken").message, make_note("EvictionByEvictionAPI").message}


def test_an_mpi_program_that_ended_its_worker_has_the_lost_worker_in_its_reason() -> None:
    pods = [BEREFT_LAUNCHER, mpi_pod("replica", 12, 0, phase="Succeeded")]
    status = launch_status(mpi_job(("Failed", "True")), pods, now=NOW, patience=PATIENCE)
    assert status.reason == "its program ended with exit code 1: Workers were lost: wt-a-worker-1"


def test_an_mpi_program_whose_launcher_reached_all_workers_has_succeeded() -> None:
    job = mpi_job(("Succeeded", "True"))
    assert settled(job)
    status = launch_status(job, [mpi_pod("replica", 5)], now=NOW, patience=PATIENCE)
    assert status == LaunchStatus(id="ax1x1", phase=Phase.ENDED, exit=0)


def test_an_mpi_program_past_its_deadline_was_ended_and_not_evicted() -> None:
    workers = [mpi_pod("replica", 12), mpi_pod("replica", 12)]  # the operator deleted the launcher at the deadline
    status = launch_status(mpi_job(("Failed", "True"), reason="DeadlineExceeded"), workers, now=NOW, patience=PATIENCE)
    assert (status.exit, [note.key for note in status.notes]) == (1, ["DeadlineExceeded"])


def test_mpi_workers_that_fail_before_the_launcher_starts_end_the_launch() -> None:
    failed_worker = mpi_pod(
        "replica", 5, 128, terminated={"reason": "StartError", "message": 'exec: "/usr/sbin/sshd": not found'}
    )
    status = launch_status(
        mpi_job(("Created", "True")), [failed_worker, mpi_pod("replica", 5)], now=NOW, patience=PATIENCE
    )
    assert (status.phase, status.exit) == (Phase.ENDED, 128) and "sshd" in str(status.reason)
    evicted_worker = mpi_pod("replica", 5, 143, reason="Evicted")
    assert launch_status(mpi_job(("Created", "True")), [evicted_worker], now=NOW, patience=PATIENCE).exit is None
    running_job = mpi_job(("Created", "True"), ("Running", "True"))
    assert launch_status(running_job, [failed_worker], now=NOW, patience=PATIENCE).phase is Phase.RUNNING, (
        "the launcher decides"
    )


def messages_of_suspended(queued: bool, *conditions: tuple[str, str, str, str]) -> list[str]:
    """Return the messages of a suspended launch whose Kueue workload has these conditions."""
    workload_conditions = [
        dict(zip(("type", "status", "reason", "message"), condition, strict=True)) for condition in conditions
    ]
    workload = msgspec.convert({"status": {"conditions": workload_conditions}}, Workload)
    labels = {"windtunnel/launch": "a"} | ({"kueue.x-k8s.io/queue-name": "q"} if queued else {})
    job = msgspec.convert({"metadata": {"labels": labels}, "spec": {"suspend": True}}, Owner)
    status = launch_status(job, workloads=[workload], now=NOW, patience=PATIENCE)
    assert status.phase is Phase.SUSPENDED and len({note.key for note in status.notes}) == len(status.notes)
    return [note.message for note in status.notes]


def test_a_launch_queued_by_kueue_has_the_message_of_kueue() -> None:
    no_quota = ("QuotaReserved", "False", "Pending", "couldn't assign flavors to pod set w")
    assert messages_of_suspended(True, no_quota) == ["The launch waits in Kueue: couldn't assign flavors to pod set w."]
    [message] = messages_of_suspended(True, ("QuotaReserved", "False", "Inadmissible", "LocalQueue q doesn't exist"))
    assert message.startswith("Kueue does not admit the launch: LocalQueue q doesn't exist.")


def test_a_suspended_launch_waits_for_its_turn_in_kueue_or_for_a_person() -> None:
    assert messages_of_suspended(True) == ["The launch waits in Kueue until its turn comes."]
    assert messages_of_suspended(True, ("QuotaReserved", "True", "", ""), ("Admitted", "True", "", "")) == [], (
        "an admitted launch is about to be resumed"
    )
    assert messages_of_suspended(False) == [
        "The launch is suspended in the cluster. It goes on once a person resumes it."
    ]


def test_a_preempted_launch_reports_the_preemption_once_and_then_its_reason_to_wait() -> None:
    preempted = ("Evicted", "True", "Preempted", "Preempted to accommodate a workload")
    preemption = "Kueue evicted the launch (Preempted to accommodate a workload)."
    [message] = messages_of_suspended(True, ("QuotaReserved", "False", "Pending", preempted[3]), preempted)
    assert message.startswith(preemption)
    message, waiting_message = messages_of_suspended(True, ("QuotaReserved", "False", "Pending", "no room"), preempted)
    assert message.startswith(preemption) and waiting_message == "The launch waits in Kueue: no room."
    assert messages_of_suspended(
        True, ("QuotaReserved", "False", "Pending", "no room"), ("Evicted", "False", "", "")
    ) == [waiting_message]


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


def test_messages_of_the_cluster_become_a_single_short_printable_line() -> None:
    assert clean("a\x1b[31m\r\nb\u202e\tc") == "a [31m b c"
    assert len(clean("x" * 10_000)) == 300
    assert "\x1b" not in make_note("OOMKilled", "model-server", "\x1b[0m").message


def test_every_message_can_be_formatted_and_is_a_sentence() -> None:
    for fact in MESSAGES:
        message = make_note(fact, "model-server", "thing", "because.").message
        assert "{" not in message and message.endswith(".") and ".." not in message and len(message) < 300


def test_the_message_of_the_scheduler_names_the_missing_resource() -> None:
    message = "0/9 nodes are available: 3 Insufficient rdma/hca, 6 node(s) had untolerated taint {gpu: yes}. x"
    assert scheduling_problems(message) == "not enough rdma/hca, taints that are not tolerated on 9 nodes"
    assert scheduling_problems("no nodes available to schedule pods") == "no node at all"
    assert scheduling_problems("a message of an unknown form") == "none fits"


def test_events_are_assigned_to_the_launch_whose_name_is_a_prefix_of_their_object() -> None:
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
