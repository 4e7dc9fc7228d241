"""Gang environment: each replica's index, the number of replicas, and the address of the first.

All values are functions of the launch and a replica's position. A position is two strings: a manifest is written once
for all replicas, so there they are references that the kubelet expands (``$(NAME)``); in tests, and in programs that
know their position, they are digits.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from common.errors import Invalid
from core.domain.scheduling.launches import Gang, Launch
from workers.executors.kubernetes import names

#: Replicated jobs of a gang's JobSet: the replicas, and the leader (whose pod contains the runner).
WORKERS, LEADER = "w", "l"
#: Ports: rendezvous of torch and JAX, TensorFlow's servers, MPI's launcher, Megascale.
RENDEZVOUS, TENSORFLOW, MPI, MEGASCALE = 29500, 2222, 26000, 8080
#: Port on which the leader tells the replicas what to run.
ORDERS = 26001
#: Folder of the model on each replica; without it ranks would start in their launcher's folder.
MODEL = "/tmp/windtunnel/model"
#: Communications that support slices; for the others every gang is one slice.
SLICED = frozenset({"tpu", "none"})


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaPosition:
    """Position of a replica: ``slice`` among the slices, ``index`` within its slice."""

    slice: str = "0"
    index: str = "0"


#: Position in manifests; the variables are set from the pod's labels.
FROM_LABELS = ReplicaPosition(slice="$(WINDTUNNEL_GANG_SLICE)", index="$(WINDTUNNEL_GANG_INDEX)")


def gang_of(launch: Launch) -> Gang:
    """Return a launch's gang, or raise Invalid if it cannot be one."""
    gang = launch.gang
    if gang is None:
        raise Invalid("This launch has independent workers, not a gang.")
    if gang.communication not in TABLE:
        raise Invalid(f"There is no communication {gang.communication!r}; there are: {', '.join(TABLE)}.")
    if gang.size < 1 or gang.slots < 1 or gang.slices < 1 or gang.restarts < 0:
        raise Invalid("A gang has at least one slice, replica and slot, and restarts from 0 on.")
    if gang.slices > 1 and gang.communication not in SLICED:
        raise Invalid(f"Slices are for {' and '.join(sorted(SLICED))}; with {gang.communication}, use a larger size.")
    return gang


def host(launch: Launch, position: ReplicaPosition) -> str:
    """Return a replica's DNS name; it is the same after a restart."""
    return f"{names.owner(launch.id)}-{WORKERS}-{position.slice}-{position.index}.{names.network(launch.id)}"


def leader(launch: Launch) -> str:
    """Return the leader's DNS name."""
    return f"{names.owner(launch.id)}-{LEADER}-0-0.{names.network(launch.id)}"


def hosts(launch: Launch, slice: str = "0") -> tuple[str, ...]:
    """Return the DNS names of a slice's replicas, in order."""
    return tuple(host(launch, ReplicaPosition(slice=slice, index=str(index))) for index in range(gang_of(launch).size))


def environment(launch: Launch, position: ReplicaPosition) -> Mapping[str, str]:
    """Return the environment variables of a replica."""
    gang = gang_of(launch)
    variables = {
        "WINDTUNNEL_GANG_SIZE": str(gang.size),
        "WINDTUNNEL_GANG_SLICES": str(gang.slices),
        "WINDTUNNEL_GANG_SLOTS": str(gang.slots),
        "WINDTUNNEL_GANG_LEADER": f"{leader(launch)}:{ORDERS}",
        "WINDTUNNEL_GANG_FIRST": host(launch, ReplicaPosition()),
        "WINDTUNNEL_GANG_HOST": host(launch, position),
    }
    return {**variables, **TABLE[gang.communication](launch, gang, position)}


def mpiexec(launch: Launch) -> tuple[str, ...]:
    """Return the command of an MPI gang's leader: a launcher that waits for a proxy on every replica.

    No ssh and no keys: the proxies connect to the launcher (``-launcher manual``), so no pod needs the right to start
    processes elsewhere. The launcher's port is fixed in the environment (``MPIEXEC_PORT_RANGE``).
    """
    gang = gang_of(launch)
    return (
        *("mpiexec.hydra", "-launcher", "manual", "-localhost", leader(launch), "-hosts", ",".join(hosts(launch))),
        *("-ppn", str(gang.slots), "-n", str(gang.size * gang.slots), "-disable-hostname-propagation"),
        *("-genvlist", "PATH,LD_LIBRARY_PATH,PYTHONPATH,UCX_TLS,MPIR_CVAR_CH4_CMA_ENABLE"),
        *(() if gang.image else ("-wdir", MODEL)),
        *("-print-all-exitcodes", *gang.command),
    )


def proxy(launch: Launch, position: ReplicaPosition) -> tuple[str, ...]:
    """Return the command of an MPI gang's replica; it exits with 5 while the launcher does not listen yet."""
    return (
        *("hydra_pmi_proxy", "--control-port", f"{leader(launch)}:{MPI}", "--rmk", "user", "--launcher", "manual"),
        *("--demux", "poll", "--pgid", "0", "--retries", "10", "--usize", "-1", "--pmi-port", "0"),
        *("--gpus-per-proc", "-2", "--gpu-subdevs-per-proc", "-2", "--proxy-id", position.index),
    )


def _none(launch: Launch, gang: Gang, position: ReplicaPosition) -> Mapping[str, str]:
    return {}


def transport(launch: Launch) -> Mapping[str, str]:
    """Return MPICH's transport settings.

    Ranks of one node run in different containers: a transport that assumes shared memory fails in MPI_Init.
    """
    remote = any(name.startswith("rdma/") for name in launch.placement.resources)
    return {"UCX_TLS": "rc,tcp,self" if remote else "tcp,self", "MPIR_CVAR_CH4_CMA_ENABLE": "0"}


def _mpi(launch: Launch, gang: Gang, position: ReplicaPosition) -> Mapping[str, str]:
    return {"MPIEXEC_PORT_RANGE": f"{MPI}:{MPI}", **transport(launch)}


def _torch(launch: Launch, gang: Gang, position: ReplicaPosition) -> Mapping[str, str]:
    """Variables of `torchrun` (PET_*) and, where a replica is one process, of `init_process_group`."""
    first = host(launch, ReplicaPosition())
    variables = {
        "MASTER_ADDR": first,
        "MASTER_PORT": str(RENDEZVOUS),
        "NODE_RANK": position.index,
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": str(RENDEZVOUS),
        "PET_NNODES": str(gang.size),
        "PET_NODE_RANK": position.index,
        "PET_NPROC_PER_NODE": str(gang.slots),
        # One attempt: a new rendezvous with a rank missing would hang, and restarts are the gang's own.
        "PET_MAX_RESTARTS": "0",
    }
    if gang.slots == 1:
        variables |= {"RANK": position.index, "WORLD_SIZE": str(gang.size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return variables


def _tensorflow(launch: Launch, gang: Gang, position: ReplicaPosition) -> Mapping[str, str]:
    """TF_CONFIG is formatted, not dumped: the index is a JSON number, and may be a reference here."""
    cluster = json.dumps({"worker": [f"{name}:{TENSORFLOW}" for name in hosts(launch)]}, separators=(",", ":"))
    return {"TF_CONFIG": f'{{"cluster":{cluster},"task":{{"type":"worker","index":{position.index}}}}}'}


def _jax(launch: Launch, gang: Gang, position: ReplicaPosition) -> Mapping[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"{host(launch, ReplicaPosition())}:{RENDEZVOUS}",
        "JAX_NUM_PROCESSES": str(gang.size),
        "JAX_PROCESS_ID": position.index,
    }


def _tpu(launch: Launch, gang: Gang, position: ReplicaPosition) -> Mapping[str, str]:
    """Names within a slice; slices meet at the first replica of the first slice."""
    variables = {"TPU_WORKER_ID": position.index, "TPU_WORKER_HOSTNAMES": ",".join(hosts(launch, position.slice))}
    if gang.slices > 1:
        variables |= {
            "MEGASCALE_COORDINATOR_ADDRESS": host(launch, ReplicaPosition()),
            "MEGASCALE_PORT": str(MEGASCALE),
            "MEGASCALE_NUM_SLICES": str(gang.slices),
            "MEGASCALE_SLICE_ID": position.slice,
        }
    return variables


#: Environment of each communication; a new communication adds a function here.
TABLE: Mapping[str, Callable[[Launch, Gang, ReplicaPosition], Mapping[str, str]]] = {
    "none": _none,
    "mpi": _mpi,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "tpu": _tpu,
}
