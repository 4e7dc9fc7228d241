"""Gang pods: the replicated jobs of a gang's JobSet, and the DNS names of their pods."""

from collections.abc import Mapping
from dataclasses import asdict

from common.errors import Invalid
from core.domain.scheduling.communications import COMMUNICATIONS, refusal_of_shape
from core.domain.scheduling.communications.members import GangMembers
from core.domain.scheduling.launches import Gang, Launch
from runtimes.harness.gang.replica import FILES
from workers.executors.kubernetes import names

#: The level of ranks' sandboxes, which needs no rights that a restricted pod lacks.
LEVEL = 2
#: The folder of the environments that the runner's image brings.
ENVIRONMENTS = "/opt/windtunnel/environments"
#: Replicated jobs of a gang's JobSet: the replicas, and the leader (whose pod contains the runner).
WORKERS, LEADER = "w", "l"


def gang_of(launch: Launch) -> Gang:
    """Return a launch's gang, or raise Invalid if it cannot be one."""
    gang = launch.gang
    if gang is None:
        raise Invalid("This launch has independent workers, not a gang.")
    if gang.communication not in COMMUNICATIONS:
        known = ", ".join(COMMUNICATIONS)
        raise Invalid(f"There is no communication {gang.communication!r}; there are: {known}.")
    if gang.size < 1 or gang.slots < 1 or gang.slices < 1 or gang.restarts < 0:
        raise Invalid("A gang has at least one slice, replica and slot, and restarts from 0 on.")
    if (refusal := refusal_of_shape(gang)) is not None:
        raise Invalid(refusal)
    return gang


def document(launch: Launch, config: Mapping[str, object]) -> Mapping[str, object]:
    """Return the launch document of gang_runner.py, from what that of every runner in a pod has.

    Ranks are confined unless they have devices, whose drivers need calls and files that no list here knows.
    """
    placement = launch.placement
    return {
        "launch": {**asdict(launch), "token": "", "url": config["url"]},
        "token_file": config["token_file"],
        "folder": FILES,
        "environments": ENVIRONMENTS,
        "builds": f"{FILES}/builds",
        "level": 0 if placement.resources or placement.claims else LEVEL,
    }


def members_of(launch: Launch) -> GangMembers:
    """Return a launch's gang, with the DNS names of its pods."""
    owner, network = names.owner(launch.id), names.network(launch.id)
    gang = gang_of(launch)
    return GangMembers(
        gang=gang,
        communication=COMMUNICATIONS[gang.communication],
        leader=f"{owner}-{LEADER}-0-0.{network}",
        pattern=f"{owner}-{WORKERS}-{{slice}}-{{index}}.{network}",
        fabric=any(name.startswith("rdma/") for name in launch.placement.resources),
    )
