"""Packaged MPI: the launcher that a simulator's own packages bring starts all ranks, on one machine."""

from collections.abc import Mapping

from core.domain.scheduling.communications.members import Communication, GangMembers, ReplicaPosition

#: Settings of Debian's Open MPI in a sandbox: ranks share memory, and cannot read each other's; no other hosts are
#: looked for; more ranks than processors are allowed, and then yield to each other.
OPENMPI: Mapping[str, str] = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "OMPI_MCA_plm": "isolated",
    "OMPI_MCA_pml": "ob1",
    "OMPI_MCA_btl": "self,vader",
    "OMPI_MCA_btl_vader_single_copy_mechanism": "none",
    "OMPI_MCA_hwloc_base_binding_policy": "none",
    "OMPI_MCA_rmaps_base_oversubscribe": "1",
    "OMPI_MCA_mpi_yield_when_idle": "1",
    "PMIX_MCA_gds": "hash",
}


def _environment(members: GangMembers, position: ReplicaPosition) -> Mapping[str, str]:
    return OPENMPI


def _alone(members: GangMembers) -> tuple[str, ...]:
    """Return the launcher's command; one rank needs none, and its packages may have none."""
    return ("mpirun", "-n", str(members.ranks)) if members.ranks > 1 else ()


COMMUNICATION = Communication(environment=_environment, slotted=True, alone=_alone)
