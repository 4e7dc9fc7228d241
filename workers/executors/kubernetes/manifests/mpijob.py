"""MPIJobs of the MPI operator, for sites that run it: it makes the keys and the list of hosts, and starts by ssh."""

import math
from typing import Any

from core.domain.launches import Launch
from core.errors import Invalid
from workers.executors.kubernetes import gangs
from workers.executors.kubernetes.manifests import job, pods
from workers.executors.kubernetes.options import Options

Object = dict[str, Any]


def mpijob(launch: Launch, options: Options) -> Object:
    """Return a launch's MPIJob. The launcher comes once all workers are there, or it spends its retries on waiting."""
    gang = gangs.of(launch)
    if not gang.image:
        raise Invalid("A gang of the MPI operator names its `image`: one with an MPI and an ssh server inside.")
    policy: Object = {"cleanPodPolicy": "All", "backoffLimit": gang.restarts, "ttlSecondsAfterFinished": job.KEPT}
    if launch.timeout:
        policy["activeDeadlineSeconds"] = max(1, math.ceil(launch.timeout))
    if launch.placement.queue:
        policy["suspend"] = True
    launcher = pods.operated(launch, options, part="lead", command=("mpirun", *gang.command))
    worker = pods.operated(launch, options, part="replica", command=("/usr/sbin/sshd", "-De"))
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": job.metadata(launch, options),
        "spec": {
            "slotsPerWorker": gang.slots,
            "mpiImplementation": "OpenMPI",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": policy,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
                "Worker": {"replicas": gang.size, "restartPolicy": "Never", "template": worker},
            },
        },
    }
