"""Members of a gang: its replicas and its leader, their positions, and the names of their hosts.

All values are functions of the launch and a replica's position. A position is two strings: a manifest is written once
for all replicas, so there they are references that the kubelet expands (``$(NAME)``); elsewhere they are digits.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from core.domain.scheduling.launches import Gang

#: Port on which the leader tells the replicas what to run.
ORDERS = 26001
#: Port of the rendezvous of a training's processes.
RENDEZVOUS = 29500
#: Folder of the model on each replica; without it ranks would start in their launcher's folder.
MODEL = "/tmp/windtunnel/model"


@dataclass(frozen=True, kw_only=True, slots=True)
class ReplicaPosition:
    """Position of a replica: ``slice`` among the slices, ``index`` within its slice."""

    slice: str = "0"
    index: str = "0"


#: Position in manifests; the variables are set from the pod's labels.
FROM_LABELS = ReplicaPosition(slice="$(WINDTUNNEL_GANG_SLICE)", index="$(WINDTUNNEL_GANG_INDEX)")


@dataclass(frozen=True, kw_only=True, slots=True)
class Communication:
    """A communication model. Each module of this package but this one has one, ``COMMUNICATION``.

    ``environment``: the variables of a replica. ``sliced``: whether it has slices; else every gang is one slice.
    ``slotted``: whether a replica may be several processes.
    ``lead`` and ``follow``: the commands of the leader, before that of the program, and of each replica where a
    launcher starts the program on several hosts; None: each replica starts it by itself. ``alone``: the launcher's
    command on one machine, before that of the program, which starts all ranks; None likewise.
    """

    environment: Callable[["GangMembers", ReplicaPosition], Mapping[str, str]]
    sliced: bool = False
    slotted: bool = False
    lead: Callable[["GangMembers"], Sequence[str]] | None = None
    follow: Callable[["GangMembers", ReplicaPosition], Sequence[str]] | None = None
    alone: Callable[["GangMembers"], Sequence[str]] | None = None


@dataclass(frozen=True, kw_only=True, slots=True)
class GangMembers:
    """A gang's replicas and leader. ``leader``: the name of its host; ``pattern``: of replicas' hosts, with ``{slice}``
    and ``{index}``. ``fabric``: whether replicas have a network adapter with remote memory access. ``sandboxed``:
    whether each is in a sandbox of its own. ``ports``: added to each port, where gangs share a network.
    """

    gang: Gang
    communication: Communication
    leader: str
    pattern: str
    fabric: bool = False
    sandboxed: bool = False
    ports: int = 0

    def host(self, position: ReplicaPosition) -> str:
        """Return the name of a replica's host; it is the same after a restart."""
        return self.pattern.format(slice=position.slice, index=position.index)

    @property
    def first(self) -> str:
        """The host of the first replica, where the others meet."""
        return self.host(ReplicaPosition())

    def hosts(self, slice: str = "0") -> tuple[str, ...]:
        """Return the hosts of a slice's replicas, in order."""
        return tuple(self.host(ReplicaPosition(slice=slice, index=str(index))) for index in range(self.gang.size))

    @property
    def ranks(self) -> int:
        """The number of processes in all replicas of a slice."""
        return self.gang.size * self.gang.slots

    def environment(self, position: ReplicaPosition) -> Mapping[str, str]:
        """Return the environment variables of a replica."""
        variables = {
            "WINDTUNNEL_GANG_SIZE": str(self.gang.size),
            "WINDTUNNEL_GANG_SLICES": str(self.gang.slices),
            "WINDTUNNEL_GANG_SLOTS": str(self.gang.slots),
            "WINDTUNNEL_GANG_LEADER": f"{self.leader}:{self.ports + ORDERS}",
            "WINDTUNNEL_GANG_FIRST": self.first,
            "WINDTUNNEL_GANG_HOST": self.host(position),
        }
        return {**variables, **self.communication.environment(self, position)}
