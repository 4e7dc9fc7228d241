"""JobSets: independent workers as one job of pods, and gangs as replicas and the one that leads them."""

from typing import Any

from core.domain.launches import Launch
from workers.executors.kubernetes import gangs, names
from workers.executors.kubernetes.manifests import job
from workers.executors.kubernetes.options import KubernetesOptions

Object = dict[str, Any]

EXCLUSIVE = "alpha.jobset.sigs.k8s.io/exclusive-topology"


def jobset(launch: Launch, options: KubernetesOptions) -> Object:
    """Return a launch's JobSet; where it names a queue it comes suspended, for the queue to let it go."""
    spec = _gang(launch, options) if launch.gang is not None else _independent(launch, options)
    spec["ttlSecondsAfterFinished"] = job.TTL_SECONDS
    if launch.placement.queue:
        spec["suspend"] = True
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": job.metadata(launch, options),
        "spec": spec,
    }


def _independent(launch: Launch, options: KubernetesOptions) -> Object:
    """No names in DNS and no restarts: nobody calls these pods, and what is lost is leased to others meanwhile."""
    return {
        "network": {"enableDNSHostnames": False},
        "failurePolicy": {"maxRestarts": 0},
        "replicatedJobs": [_replicated(launch, gangs.WORKERS, 1, job.independent(launch, options), alone=True)],
    }


def _gang(launch: Launch, options: KubernetesOptions) -> Object:
    """The replicas first, then the one that leads; when that is done all is, and when one is lost all begin again.

    Names are published before pods are ready, for a replica that waits for another by name is not ready for long.
    A gang in an image of its own, but for MPI, has nobody to lead it: it is done when all replicas are.
    """
    gang = gangs.gang_of(launch)
    jobs = [_replicated(launch, gangs.WORKERS, gang.slices, job.replicas(launch, options), alone=True)]
    has_leader = gang.communication == "mpi" or gangs.has_runner(launch)
    if has_leader:
        leader = _replicated(launch, gangs.LEADER, 1, job.lead(launch, options), alone=False)
        jobs.append(leader | {"dependsOn": [{"name": gangs.WORKERS, "status": "Ready"}]})
    first = gangs.LEADER if gang.communication == "mpi" else gangs.WORKERS
    return {
        "network": {
            "enableDNSHostnames": True,
            "publishNotReadyAddresses": True,
            "subdomain": names.network(launch.id),
        },
        "successPolicy": {"operator": "All", "targetReplicatedJobs": [gangs.LEADER if has_leader else gangs.WORKERS]},
        "failurePolicy": {
            "maxRestarts": gang.restarts,
            "rules": _disruptions(gang.restarts),
        },
        "coordinator": {"replicatedJob": first, "jobIndex": 0, "podIndex": 0},
        "replicatedJobs": jobs,
    }


def _disruptions(restarts: int) -> list[Object]:
    """A drain or a preemption is nobody's fault: where restarts are wanted at all, it costs none of them."""
    if not restarts:
        return []
    action = "RestartJobSetAndIgnoreMaxRestarts"
    return [{"name": "disrupted", "action": action, "onJobFailureReasons": ["PodFailurePolicy"]}]


def _replicated(launch: Launch, name: str, count: int, spec: Object, *, alone: bool) -> Object:
    """``alone``: no other job in its domain of the topology, the gang's leader among them: it goes elsewhere."""
    template: Object = {"spec": spec}
    if alone and launch.placement.exclusive:
        template["metadata"] = {"annotations": {EXCLUSIVE: launch.placement.exclusive}}
    return {"name": name, "replicas": count, "template": template}
