"""MPI: MPICH's launcher on the leader and a proxy on each replica; or on one machine the launcher alone."""

from collections.abc import Mapping

from core.domain.scheduling.communications.members import MODEL, Communication, GangMembers, ReplicaPosition

#: What it is called.
NAME = "mpi"
#: Port of the launcher.
PORT = 26000


#: MPICH's transport in a sandbox. UCX, its default, needs /sys and System V's shared memory. Ranks share memory by
#: libfabric's neighbour; to read each other's memory they would need the right to trace each other.
SANDBOXED_TRANSPORT: Mapping[str, str] = {
    "MPIR_CVAR_CH4_NETMOD": "ofi",
    "FI_PROVIDER": "tcp",
    "MPIR_CVAR_CH4_CMA_ENABLE": "0",
    "UCX_LOG_LEVEL": "fatal",  # its library, which is loaded nevertheless, misses /sys
}


def transport(*, fabric: bool) -> Mapping[str, str]:
    """Return MPICH's transport settings between pods.

    Ranks of one node run in different containers: a transport that assumes shared memory fails in MPI_Init.
    """
    return {"UCX_TLS": "rc,tcp,self" if fabric else "tcp,self", "MPIR_CVAR_CH4_CMA_ENABLE": "0"}


def _environment(members: GangMembers, position: ReplicaPosition) -> Mapping[str, str]:
    port = members.ports + PORT
    return {"MPIEXEC_PORT_RANGE": f"{port}:{port}", **_settings(members)}


def _settings(members: GangMembers) -> Mapping[str, str]:
    return SANDBOXED_TRANSPORT if members.sandboxed else transport(fabric=members.fabric)


def _lead(members: GangMembers) -> tuple[str, ...]:
    """Return the command of the leader, before the program's: a launcher that waits for a proxy on every replica.

    No ssh and no keys: the proxies connect to the launcher (``-launcher manual``), so no pod needs the right to start
    processes elsewhere. The launcher's port is fixed in the environment (``MPIEXEC_PORT_RANGE``).
    """
    gang = members.gang
    return (
        *("mpiexec.hydra", "-launcher", "manual", "-localhost", members.leader, "-hosts", ",".join(members.hosts())),
        *("-ppn", str(gang.slots), "-n", str(members.ranks), "-disable-hostname-propagation"),
        *("-genvlist", ",".join(("PATH", "LD_LIBRARY_PATH", "PYTHONPATH", *_settings(members)))),
        *(() if gang.image else ("-wdir", MODEL)),
        "-print-all-exitcodes",
    )


def _follow(members: GangMembers, position: ReplicaPosition) -> tuple[str, ...]:
    """Return the command of a replica; it exits with 5 while the launcher does not listen yet."""
    port = f"{members.leader}:{members.ports + PORT}"
    return (
        *("hydra_pmi_proxy", "--control-port", port, "--rmk", "user", "--launcher", "manual"),
        *("--demux", "poll", "--pgid", "0", "--retries", "10", "--usize", "-1", "--pmi-port", "0"),
        *("--gpus-per-proc", "-2", "--gpu-subdevs-per-proc", "-2", "--proxy-id", position.index),
    )


def alone(ranks: int) -> tuple[str, ...]:
    """Return the launcher's command on one machine, before the program's."""
    variables = [part for name, value in SANDBOXED_TRANSPORT.items() for part in ("-genv", name, value)]
    return ("mpiexec", *variables, "-n", str(ranks))


COMMUNICATION = Communication(
    environment=_environment,
    slotted=True,
    lead=_lead,
    follow=_follow,
    alone=lambda members: alone(members.ranks),
)
