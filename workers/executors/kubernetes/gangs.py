"""What every replica of a gang is told: its own number, how many there are, and where the first one answers.

All of it is a function of the launch and a place in the gang. A place is two words, not two numbers: a manifest is
written once for all replicas, so there they are references that the kubelet fills in (``$(NAME)``), and in a test, or
in a program that knows where it stands, they are digits.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from core.domain.launches import Gang, Launch
from errors import Invalid
from workers.executors.kubernetes import names

#: The replicated jobs of a gang's JobSet: the replicas, and the one that leads them (it carries the runner).
WORKERS, LEADER = "w", "l"
#: Where the first replica listens for the others (torch and JAX), TensorFlow's servers, and what starts MPI.
RENDEZVOUS, TENSORFLOW, MPI, MEGASCALE = 29500, 2222, 26000, 8080
#: Where the leader tells the others what to run.
ORDERS = 26001
#: Where our harness lays the model out on each replica; ranks would begin where their launcher does.
MODEL = "/tmp/windtunnel/model"
#: Those that know groups of replicas; to the others every gang is one group.
SLICED = frozenset({"tpu", "none"})


@dataclass(frozen=True, kw_only=True, slots=True)
class Place:
    """Where a replica stands: ``slice`` among the slices, ``index`` within its own."""

    slice: str = "0"
    index: str = "0"


#: What a manifest says in place of digits; the variables are set from the pod's own labels.
TOLD = Place(slice="$(WINDTUNNEL_GANG_SLICE)", index="$(WINDTUNNEL_GANG_INDEX)")


def of(launch: Launch) -> Gang:
    """Return a launch's gang, or raise Invalid if it cannot be one."""
    gang = launch.gang
    if gang is None:
        raise Invalid("This launch is of independent workers; it has no gang.")
    if gang.communication not in TABLE:
        raise Invalid(f"There is no communication {gang.communication!r}; there are: {', '.join(TABLE)}.")
    if gang.size < 1 or gang.slots < 1 or gang.slices < 1 or gang.restarts < 0:
        raise Invalid("A gang has at least one slice, replica and slot, and restarts from 0 on.")
    if gang.slices > 1 and gang.communication not in SLICED:
        raise Invalid(f"Slices are for {' and '.join(sorted(SLICED))}; with {gang.communication}, use a larger size.")
    return gang


def host(launch: Launch, place: Place) -> str:
    """Return a replica's name in the cluster's DNS; it is the same after a restart."""
    return f"{names.owner(launch.id)}-{WORKERS}-{place.slice}-{place.index}.{names.network(launch.id)}"


def leader(launch: Launch) -> str:
    """Return the name of the one that leads."""
    return f"{names.owner(launch.id)}-{LEADER}-0-0.{names.network(launch.id)}"


def led(launch: Launch) -> bool:
    """Tell whether a runner goes with it."""
    return of(launch).attended


def hosts(launch: Launch, slice: str = "0") -> tuple[str, ...]:
    """Return the names of one slice's replicas, in order."""
    return tuple(host(launch, Place(slice=slice, index=str(index))) for index in range(of(launch).size))


def environment(launch: Launch, place: Place) -> Mapping[str, str]:
    """Return the variables of the replica that stands there."""
    gang = of(launch)
    ours = {
        "WINDTUNNEL_GANG_SIZE": str(gang.size),
        "WINDTUNNEL_GANG_SLICES": str(gang.slices),
        "WINDTUNNEL_GANG_SLOTS": str(gang.slots),
        "WINDTUNNEL_GANG_LEADER": f"{leader(launch)}:{ORDERS}",
        "WINDTUNNEL_GANG_FIRST": host(launch, Place()),
        "WINDTUNNEL_GANG_HOST": host(launch, place),
    }
    return {**ours, **TABLE[gang.communication](launch, gang, place)}


def mpiexec(launch: Launch) -> tuple[str, ...]:
    """Return what the leader of an MPI gang runs: one launcher, which waits for a proxy on every replica.

    No ssh and no keys: the proxies come to it (``-launcher manual``), so nobody needs the right to start anything
    elsewhere. Its port is fixed in the environment (``MPIEXEC_PORT_RANGE``).
    """
    gang = of(launch)
    return (
        *("mpiexec.hydra", "-launcher", "manual", "-localhost", leader(launch), "-hosts", ",".join(hosts(launch))),
        *("-ppn", str(gang.slots), "-n", str(gang.size * gang.slots), "-disable-hostname-propagation"),
        *("-genvlist", "PATH,LD_LIBRARY_PATH,PYTHONPATH,UCX_TLS,MPIR_CVAR_CH4_CMA_ENABLE"),
        *(() if gang.image else ("-wdir", MODEL)),
        *("-print-all-exitcodes", *gang.command),
    )


def proxy(launch: Launch, place: Place) -> tuple[str, ...]:
    """Return what every replica of an MPI gang runs; it ends with 5 while the launcher does not listen yet."""
    return (
        *("hydra_pmi_proxy", "--control-port", f"{leader(launch)}:{MPI}", "--rmk", "user", "--launcher", "manual"),
        *("--demux", "poll", "--pgid", "0", "--retries", "10", "--usize", "-1", "--pmi-port", "0"),
        *("--gpus-per-proc", "-2", "--gpu-subdevs-per-proc", "-2", "--proxy-id", place.index),
    )


def _none(launch: Launch, gang: Gang, place: Place) -> Mapping[str, str]:
    return {}


def transport(launch: Launch) -> Mapping[str, str]:
    """Return how ranks of MPICH reach each other.

    Those of one node lie in different containers: what takes shared memory for granted dies in MPI_Init.
    """
    remote = any(name.startswith("rdma/") for name in launch.placement.resources)
    return {"UCX_TLS": "rc,tcp,self" if remote else "tcp,self", "MPIR_CVAR_CH4_CMA_ENABLE": "0"}


def _mpi(launch: Launch, gang: Gang, place: Place) -> Mapping[str, str]:
    return {"MPIEXEC_PORT_RANGE": f"{MPI}:{MPI}", **transport(launch)}


def _torch(launch: Launch, gang: Gang, place: Place) -> Mapping[str, str]:
    """Both what `torchrun` reads (PET_*) and what `init_process_group` does, where a replica is one process."""
    first = host(launch, Place())
    told = {
        "MASTER_ADDR": first,
        "MASTER_PORT": str(RENDEZVOUS),
        "NODE_RANK": place.index,
        "PET_MASTER_ADDR": first,
        "PET_MASTER_PORT": str(RENDEZVOUS),
        "PET_NNODES": str(gang.size),
        "PET_NODE_RANK": place.index,
        "PET_NPROC_PER_NODE": str(gang.slots),
        # One attempt: a new rendezvous with a rank missing would hang, and restarts are the gang's own.
        "PET_MAX_RESTARTS": "0",
    }
    if gang.slots == 1:
        told |= {"RANK": place.index, "WORLD_SIZE": str(gang.size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return told


def _tensorflow(launch: Launch, gang: Gang, place: Place) -> Mapping[str, str]:
    """The index is put in by hand: it is a number in JSON, and may be a reference here."""
    cluster = json.dumps({"worker": [f"{name}:{TENSORFLOW}" for name in hosts(launch)]}, separators=(",", ":"))
    return {"TF_CONFIG": f'{{"cluster":{cluster},"task":{{"type":"worker","index":{place.index}}}}}'}


def _jax(launch: Launch, gang: Gang, place: Place) -> Mapping[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"{host(launch, Place())}:{RENDEZVOUS}",
        "JAX_NUM_PROCESSES": str(gang.size),
        "JAX_PROCESS_ID": place.index,
    }


def _tpu(launch: Launch, gang: Gang, place: Place) -> Mapping[str, str]:
    """Names within a slice; slices meet at the first replica of the first one."""
    told = {"TPU_WORKER_ID": place.index, "TPU_WORKER_HOSTNAMES": ",".join(hosts(launch, place.slice))}
    if gang.slices > 1:
        told |= {
            "MEGASCALE_COORDINATOR_ADDRESS": host(launch, Place()),
            "MEGASCALE_PORT": str(MEGASCALE),
            "MEGASCALE_NUM_SLICES": str(gang.slices),
            "MEGASCALE_SLICE_ID": place.slice,
        }
    return told


#: How the replicas of a gang find each other; a new way is one function more.
TABLE: Mapping[str, Callable[[Launch, Gang, Place], Mapping[str, str]]] = {
    "none": _none,
    "mpi": _mpi,
    "torch": _torch,
    "tensorflow": _tensorflow,
    "jax": _jax,
    "tpu": _tpu,
}
