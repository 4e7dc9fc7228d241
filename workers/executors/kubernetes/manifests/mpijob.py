"""MPIJobs of the MPI operator: it creates ssh keys and the host file, and mpirun starts the ranks by ssh."""

from collections.abc import Mapping
from typing import Any

from common.errors import Invalid
from core.domain.scheduling.communications import mpi
from workers.executors.kubernetes import names
from workers.executors.kubernetes.manifests import job
from workers.executors.kubernetes.manifests.pod_spec import PodSpecBuilder

Object = dict[str, Any]

#: MPI implementations as the operator names them; the format of its host file and its variables depend on it.
IMPLEMENTATIONS: Mapping[str, str] = {"openmpi": "OpenMPI", "mpich": "MPICH", "intel": "Intel"}
#: Settings that the operator passes to Open MPI up to 4, by their names in Open MPI 5; without them all ranks would
#: start on mpirun's own pod.
PRTE_SETTINGS = {
    "PRTE_MCA_prte_default_hostfile": "/etc/mpi/hostfile",
    "PRTE_MCA_prte_keep_fqdn_hostnames": "true",
    "PRTE_MCA_plm_ssh_args": "-o ConnectionAttempts=10",
}
#: Home folder (with the ssh keys) and ssh server command of the operator's own images.
HOME = "/home/mpiuser"
SERVE = ("/usr/sbin/sshd", "-De", "-f", f"{HOME}/.sshd_config")
#: Beginning of the termination message of a launcher that has lost workers.
WORKERS_LOST = "Workers were lost:"
#: Script of the launcher; $0 is its own DNS name, the arguments are mpirun's command.
#: Before: DNS names resolve a moment after pods are ready, and mpirun resolves each once. MPICH's workers also resolve
#: the launcher, which its own /etc/hosts would answer too early.
#: After: the operator ends the workers, so the launcher itself looks for lost workers, 32 at once. No mpirun reports
#: them, and that of Open MPI 5 may exit with 0. A worker that replaced another has another address.
LAUNCH = (
    r"""workers=
for host in $(sed "s/[ :].*//" /etc/mpi/hostfile); do
    until address=$(getent -s dns hosts "$host"); do sleep 0.1; done
    workers="$workers $host=${address%% *}"
done
until getent -s dns hosts "$0" >/dev/null; do sleep 0.1; done
"$@" &
program=$! stopped=
trap 'stopped=yes; kill "$program"' TERM
wait "$program"
code=$?
[ -z "$stopped" ] || { wait "$program"; exit; }
reach="ssh -o BatchMode=yes -o ConnectTimeout=20 -o ConnectionAttempts=3 -o ServerAliveInterval=10"
lost=$(
    count=0
    for worker in $workers; do
        $reach -o HostName="${worker#*=}" "${worker%%=*}" true </dev/null >/dev/null 2>&1 || echo "${worker%%=*}" &
        count=$((count + 1))
        [ $((count % 32)) -ne 0 ] || wait
    done
    wait
)
[ -n "$lost" ] || exit "$code"
"""
    + f"""echo "{WORKERS_LOST}" $lost >&2
echo "{WORKERS_LOST}" $lost >/dev/termination-log
"""
    + r"""[ "$code" -ne 0 ] || code=1
exit "$code"
"""
)


def mpijob(pods: PodSpecBuilder) -> Object:
    """Return a launch's MPIJob. The launcher starts when all workers are ready, so that no retry is spent on waiting.

    Workers end with the launcher, also while no executor observes it; workers that ended before remain as they are.
    """
    gang, launch = pods.gang, pods.launch
    if not gang.image:
        raise Invalid("A gang of the MPI operator names its `image`: one with an MPI and an ssh server inside.")
    if gang.implementation not in IMPLEMENTATIONS:
        known = ", ".join(IMPLEMENTATIONS)
        raise Invalid(f"There is no implementation {gang.implementation!r} of MPI; there are: {known}.")
    policy: Object = {
        "cleanPodPolicy": "Running",
        "backoffLimit": gang.restarts,
        "ttlSecondsAfterFinished": job.TTL_SECONDS,
        **job.deadline(launch),
    }
    if launch.placement.queue:
        policy["suspend"] = True
    mpirun = ("mpirun", "-n", str(gang.size * gang.slots), *gang.command)
    command = ("sh", "-c", LAUNCH, f"{pods.name}-launcher.{pods.name}", *mpirun)
    gang_variables = {"WINDTUNNEL_GANG_SIZE": str(gang.size), "WINDTUNNEL_GANG_SLOTS": str(gang.slots)}
    transport = PRTE_SETTINGS if gang.implementation == "openmpi" else mpi.transport(fabric=pods.members.fabric)
    launcher = pods.mpi_launcher(command, {**gang_variables, **transport})
    # The operator sets this for workers only. MPICH's ENTRYPOINT waits up to 100 s for its own name to resolve.
    domain = f"{pods.name}.{names.namespace(pods.options.namespace, launch.project)}.svc.cluster.local"
    launcher["spec"]["dnsConfig"] = {"searches": [domain]}
    worker = pods.mpi_worker(SERVE, gang_variables)
    return {
        "apiVersion": "kubeflow.org/v2beta1",
        "kind": "MPIJob",
        "metadata": job.metadata(pods),
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
