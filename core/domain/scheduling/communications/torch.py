"""PyTorch: the variables of `torchrun`, and of `init_process_group` where a replica is one process."""

from collections.abc import Mapping

from core.domain.scheduling.communications.members import RENDEZVOUS, Communication, GangMembers, ReplicaPosition


def _environment(members: GangMembers, position: ReplicaPosition) -> Mapping[str, str]:
    gang = members.gang
    variables = {
        "MASTER_ADDR": members.first,
        "MASTER_PORT": str(members.ports + RENDEZVOUS),
        "NODE_RANK": position.index,
        "PET_MASTER_ADDR": members.first,
        "PET_MASTER_PORT": str(members.ports + RENDEZVOUS),
        "PET_NNODES": str(gang.size),
        "PET_NODE_RANK": position.index,
        "PET_NPROC_PER_NODE": str(gang.slots),
        # One attempt: a new rendezvous with a rank missing would hang, and restarts are the gang's own.
        "PET_MAX_RESTARTS": "0",
    }
    if gang.slots == 1:
        variables |= {"RANK": position.index, "WORLD_SIZE": str(gang.size), "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    return variables


COMMUNICATION = Communication(environment=_environment, slotted=True)
