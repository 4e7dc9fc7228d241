"""JAX: the coordinator on the first replica, and a process on each."""

from collections.abc import Mapping

from core.domain.scheduling.communications.members import RENDEZVOUS, Communication, GangMembers, ReplicaPosition


def _environment(members: GangMembers, position: ReplicaPosition) -> Mapping[str, str]:
    return {
        "JAX_COORDINATOR_ADDRESS": f"{members.first}:{members.ports + RENDEZVOUS}",
        "JAX_NUM_PROCESSES": str(members.gang.size),
        "JAX_PROCESS_ID": position.index,
    }


COMMUNICATION = Communication(environment=_environment)
