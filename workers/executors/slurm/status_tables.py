"""What Slurm's words mean to us: one table each for states, for endings, for reasons to wait and for refusals."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.domain.launches import Phase

#: What we make of a job's state; one that is not listed has ended. What waits is SUSPENDED: Slurm is a queue, and how
#: long it takes is nothing to lose patience with.
STATES: Mapping[str, Phase] = {
    "PENDING": Phase.SUSPENDED,
    "REQUEUED": Phase.SUSPENDED,
    "REQUEUE_FED": Phase.SUSPENDED,
    "REQUEUE_HOLD": Phase.SUSPENDED,
    "RESV_DEL_HOLD": Phase.SUSPENDED,
    "SPECIAL_EXIT": Phase.SUSPENDED,
    "CONFIGURING": Phase.STARTING,
    "POWER_UP_NODE": Phase.STARTING,
    "COMPLETING": Phase.RUNNING,
    "RESIZING": Phase.RUNNING,
    "RUNNING": Phase.RUNNING,
    "SIGNALING": Phase.RUNNING,
    "STAGE_OUT": Phase.RUNNING,
    "STOPPED": Phase.RUNNING,
    "SUSPENDED": Phase.RUNNING,
}

#: How a job came to its end, where its exit code does not say it; what to do about it is for the person who reads it.
ENDINGS: Mapping[str, str] = {
    "BOOT_FAIL": "its node did not boot; ask those who run the cluster",
    "CANCELLED": "its Slurm job was cancelled by somebody else",
    "DEADLINE": "its Slurm job missed its deadline",
    "LAUNCH_FAILED": "its node could not start it; ask those who run the cluster",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it was ended because it used more memory than it had asked for; ask for more",
    "PREEMPTED": "it had to give way to a job of higher priority",
    "RECONFIG_FAIL": "its node could not be configured; ask those who run the cluster",
    "REVOKED": "another cluster took its Slurm job",
    "TIMEOUT": "it reached its time limit in Slurm; give the simulation a longer timeout, or the context more minutes",
}
#: When Slurm has nothing to tell of a job any more, and the job has left no word either.
UNKNOWN_ENDING = (
    "Slurm no longer knows its job, and nothing tells how it ended; a larger MinJobAge keeps such facts longer"
)


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Why a job waits, in words; ``never`` if it will not start as it is."""

    words: str
    never: bool = False


#: Reasons to wait, by how Slurm's begin; the longest that fits counts. What is not here is told in Slurm's own word.
#: Nothing is said of "None" (not looked at yet), nor of "Priority" and "Resources" beyond that it waits its turn.
REASONS: Mapping[str, PendingReason] = {
    "AccountNotAllowed": PendingReason(
        "the account may not use this partition; name another in the context's options", True
    ),
    "AssocGrp": PendingReason(
        "its account uses all that it may at a time; it starts when other jobs of that account end"
    ),
    "AssocMax": PendingReason(
        "its account uses all that it may at a time; it starts when other jobs of that account end"
    ),
    "AssocMaxCpuPerJobLimit": PendingReason(
        "it asks for more cores than its account may give one job; ask for less", True
    ),
    "AssocMaxWallDurationPerJobLimit": PendingReason(
        "its time limit is longer than its account may have; shorten it", True
    ),
    "BadConstraints": PendingReason("no node is what it asks for; ask for less, or for another partition", True),
    "BeginTime": PendingReason("it may begin only later; somebody, or a failed start, has put it off"),
    "Dependency": PendingReason("it waits for another job to end"),
    "DependencyNeverSatisfied": PendingReason("it waits for a job that will never end as it should", True),
    "InvalidAccount": PendingReason("its account is not known to Slurm; name another in the context's options", True),
    "InvalidQOS": PendingReason("its quality of service is not known to Slurm; name another as priority", True),
    "JobArrayTaskLimit": PendingReason("as many of its runners run as may at a time"),
    "JobHeldAdmin": PendingReason("an administrator holds it; ask for its release"),
    "JobHeldUser": PendingReason("somebody holds it; `scontrol release` lets it go"),
    "Licenses": PendingReason("it waits for a licence that others use"),
    "NodeDown": PendingReason("a node that it needs is down; ask those who run the cluster"),
    "Nodes required for job are DOWN, DRAINED": PendingReason(
        "the nodes that it could use are down, drained or reserved; ask those who run the cluster, or cancel it"
    ),
    "PartitionConfig": PendingReason(
        "it asks for more than its partition gives one job, or for longer; ask for less", True
    ),
    "PartitionDown": PendingReason("its partition is closed; it starts when that is opened again"),
    "PartitionInactive": PendingReason("its partition is inactive; it starts when that is opened again"),
    "PartitionNodeLimit": PendingReason("it asks for more nodes than its partition gives one job; ask for less", True),
    "PartitionTimeLimit": PendingReason("its time limit is longer than its partition allows; shorten it", True),
    "Priority": PendingReason("other jobs come before it"),
    "QOSGrp": PendingReason("all that its quality of service may use at a time is in use; it starts when others end"),
    "QOSMax": PendingReason(
        "it has all that its quality of service allows one user at a time; it starts when others end"
    ),
    "QOSMaxCpuPerJobLimit": PendingReason(
        "it asks for more cores than its quality of service gives one job; ask for less", True
    ),
    "QOSMaxWallDurationPerJobLimit": PendingReason("its time limit is longer than its quality of service allows", True),
    "QOSNotAllowed": PendingReason(
        "its partition does not take its quality of service; name another as priority", True
    ),
    "ReqNodeNotAvail": PendingReason(
        "nodes that it could use are not available (drained, down or reserved); it starts when they are"
    ),
    "Reservation": PendingReason("the reservation that it names has not begun, or is full"),
    "Resources": PendingReason("the nodes are in use; it starts when others end"),
    "SchedDefer": PendingReason("Slurm has put off looking at it"),
}

#: What sbatch says when asking again later may help: not refusals, but a controller that is away or out of breath.
TRANSIENT_ERRORS = (
    "AssocMaxSubmitJobLimit",
    "Connection refused",
    "Invalid authentication credential",
    "Job violates accounting/QOS policy",  # its usual cause: as many jobs submitted as one may at a time
    "Protocol authentication error",
    "QOSMaxSubmitJob",
    "Resource temporarily unavailable",
    "Slurm temporarily unable to accept job",
    "Socket timed out",
    "Transport endpoint is not connected",
    "Unable to contact",
    "Zero Bytes were transmitted",
    "in standby mode",
)
