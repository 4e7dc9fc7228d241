"""TensorFlow: TF_CONFIG, with a worker on each replica."""

import json
from collections.abc import Mapping

from core.domain.scheduling.communications.members import Communication, GangMembers, ReplicaPosition

#: Port of the first worker's server. Each has another, because replicas of one machine share its ports.
PORT = 2222


def _environment(members: GangMembers, position: ReplicaPosition) -> Mapping[str, str]:
    """TF_CONFIG is formatted, not dumped: the index is a JSON number, and may be a reference here."""
    workers = [f"{host}:{members.ports + PORT + index}" for index, host in enumerate(members.hosts())]
    cluster = json.dumps({"worker": workers}, separators=(",", ":"))
    return {"TF_CONFIG": f'{{"cluster":{cluster},"task":{{"type":"worker","index":{position.index}}}}}'}


COMMUNICATION = Communication(environment=_environment)
