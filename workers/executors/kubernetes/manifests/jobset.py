"""JobSets: independent runner pods as one Job, gangs as replicas and their leader."""

from typing import Any

from workers.executors.kubernetes import gang_pods, names
from workers.executors.kubernetes.manifests import job
from workers.executors.kubernetes.manifests.pod_spec import PodSpecBuilder
from workers.executors.kubernetes.options import EXCLUSIVE_ANNOTATION

Object = dict[str, Any]


def jobset(pods: PodSpecBuilder) -> Object:
    """Return a launch's JobSet; with a queue it is created suspended, and Kueue resumes it."""
    spec = _gang(pods) if pods.launch.gang is not None else _independent(pods)
    spec["ttlSecondsAfterFinished"] = job.TTL_SECONDS
    if pods.launch.placement.queue:
        spec["suspend"] = True
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": job.metadata(pods),
        "spec": spec,
    }


def _independent(pods: PodSpecBuilder) -> Object:
    """Return a spec without DNS names and restarts: no pod calls another, and lost tasks are leased to others."""
    return {
        "network": {"enableDNSHostnames": False},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [_exclusive(pods, _replicated(gang_pods.WORKERS, 1, job.independent(pods)))],
    }


def _gang(pods: PodSpecBuilder) -> Object:
    """Return a gang's spec: the replicas, then the leader, whose success ends the JobSet; a lost pod restarts all.

    DNS names are published before pods are ready, because a replica that waits for another's name is not ready.
    A gang with its own image has no leader, except with MPI; it succeeds when all replicas do.
    """
    gang = pods.gang
    jobs = [_exclusive(pods, _replicated(gang_pods.WORKERS, gang.slices, job.replicas(pods)))]
    launched = pods.members.communication.lead is not None
    has_leader = launched or gang.attended
    if has_leader:
        leader = _replicated(gang_pods.LEADER, 1, job.leader(pods))
        jobs.append(leader | {"dependsOn": [{"name": gang_pods.WORKERS, "status": "Ready"}]})
    first = gang_pods.LEADER if launched and not gang.attended else gang_pods.WORKERS
    return {
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": names.network(pods.launch.id),
        },
        "successPolicy": {
            "operator": "All",
            "targetReplicatedJobs": [gang_pods.LEADER if has_leader else gang_pods.WORKERS],
        },
        "failurePolicy": {"maxRestarts": gang.restarts, "rules": _disruption_rules(gang.restarts)},
        "coordinator": {"replicatedJob": first, "jobIndex": 0, "podIndex": 0},
        "replicatedJobs": jobs,
    }


def _disruption_rules(restarts: int) -> list[Object]:
    """Return rules by which a disruption (drain, preemption) restarts the gang without counting as a restart."""
    if not restarts:
        return []
    action = "RestartJobSetAndIgnoreMaxRestarts"
    return [{"name": "disrupted", "action": action, "onJobFailureReasons": ["PodFailurePolicy"]}]


def _replicated(name: str, count: int, spec: Object) -> Object:
    return {"name": name, "replicas": count, "template": {"spec": spec}}


def _exclusive(pods: PodSpecBuilder, replicated: Object) -> Object:
    """Give each Job of the group a topology domain of its own, if the launch asks for it; the leader has none."""
    if pods.launch.placement.exclusive:
        replicated["template"]["metadata"] = {"annotations": {EXCLUSIVE_ANNOTATION: pods.launch.placement.exclusive}}
    return replicated
