"""TPU slices: the host names within a slice; slices meet at the first replica of the first slice (Megascale)."""

from collections.abc import Mapping

from core.domain.scheduling.communications.members import Communication, GangMembers, ReplicaPosition

#: Port of Megascale's coordinator.
PORT = 8080


def _environment(members: GangMembers, position: ReplicaPosition) -> Mapping[str, str]:
    names = ",".join(members.hosts(position.slice))
    variables = {"TPU_WORKER_ID": position.index, "TPU_WORKER_HOSTNAMES": names}
    if members.gang.slices > 1:
        variables |= {
            "MEGASCALE_COORDINATOR_ADDRESS": members.first,
            "MEGASCALE_PORT": str(PORT),
            "MEGASCALE_NUM_SLICES": str(members.gang.slices),
            "MEGASCALE_SLICE_ID": position.slice,
        }
    return variables


COMMUNICATION = Communication(environment=_environment, sliced=True)
