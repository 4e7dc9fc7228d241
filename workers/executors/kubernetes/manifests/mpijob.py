"""MPIJobs of the MPI operator, for sites that run it: it makes the keys and the list of hosts, and starts by ssh."""

import math
from collections.abc import Mapping
from typing import Any

from core.domain.launches import Launch
from errors import Invalid
from workers.executors.kubernetes import gangs, names
from workers.executors.kubernetes.manifests import job, pods
from workers.executors.kubernetes.options import KubernetesOptions

Object = dict[str, Any]

#: Whose MPI an image has: by that the operator writes the list of hosts, and tells who leads where it is.
IMPLEMENTATIONS: Mapping[str, str] = {"openmpi": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}
#: What the operator tells Open MPI until 4, in the words of 5: without, all ranks begin where mpirun is.
PRTE_SETTINGS = {
    "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
    "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
}
#: As the operator's own images have it: the home of who runs, where keys are looked for, and how the server is set.
HOME = "/home/mpiuser"
SERVE = ("/usr/sbin/sshd", "-De", "-f", f"{HOME}/.sshd_config")
#: Names are known a moment after pods are ready, and mpirun asks for each once. MPICH's workers also ask for the one
#: that leads, whose own list of names would answer it too soon.
WAIT = (
    "sh",
    "-c",
    'for host in $(sed "s/[ :].*//" /etc/mpi/hostfile) "$0"; '
    'do until getent -s dns hosts "$host" >/dev/null; do sleep 0.1; done; done; exec "$@"',
)


def mpijob(launch: Launch, options: KubernetesOptions) -> Object:
    """Return a launch's MPIJob. The launcher comes once all workers are there, or it spends its retries on waiting.

    Workers stay until we take all of it away: by them is seen whether one was lost, as when a node is drained.
    """
    gang = gangs.gang_of(launch)
    if not gang.image:
        raise Invalid("A gang of the MPI operator names its `image`: one with an MPI and an ssh server inside.")
    if gang.implementation not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise Invalid(f"There is no implementation {gang.implementation!r} of MPI; there are: {known}.")
    policy: Object = {
        "cleanPodPolicy": "None",
        "backoffLimit": gang.restarts,
        "ttlSecondsAfterFinished": job.TTL_SECONDS,
    }
    if launch.timeout:
        policy["activeDeadlineSeconds"] = max(1, math.ceil(launch.timeout))
    if launch.placement.queue:
        policy["suspend"] = True
    name = names.owner(launch.id)
    run = (*WAIT, f"{name}-launcher.{name}", "mpirun", "-n", str(gang.size * gang.slots), *gang.command)
    gang_variables = {"WINDTUNNEL_GANG_SIZE": str(gang.size), "WINDTUNNEL_GANG_SLOTS": str(gang.slots)}
    lead_variables = {
        **gang_variables,
        **(PRTE_SETTINGS if gang.implementation == "openmpi" else gangs.transport(launch)),
    }
    launcher = pods.operated(launch, options, part="lead", arguments=run, variables=lead_variables)
    worker = pods.operated(launch, options, part="replica", arguments=SERVE, variables=gang_variables)
    # As the operator has it for workers: the entry point of its MPICH waits for its own name, 100 s if that is none.
    domain = f"{name}.{names.namespace(options.namespace, launch.project)}.svc.cluster.local"
    launcher["spec"]["dnsConfig"] = {"searches": [domain]}
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": job.metadata(launch, options),
        "spec": {
            "slotsPerWorker": gang.slots,
            "mpiImplementation": IMPLEMENTATIONS[gang.implementation],
            "sshAuthMountPath": f"{HOME}/.ssh",
            "launcherCreationPolicy": "WaitForWorkersReady",
            "runPolicy": policy,
            "mpiReplicaSpecs": {
                "Launcher": {"replicas": 1, "restartPolicy": "Never", "template": launcher},
                "Worker": {"replicas": gang.size, "restartPolicy": "Never", "template": worker},
            },
        },
    }
