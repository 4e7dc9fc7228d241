"""Tables of Slurm's job states, end states, pending reasons and transient errors, with phases and messages."""

from collections.abc import Mapping
from dataclasses import dataclass

from core.domain.scheduling.launches import Phase

#: Phase of each job state; other states mean that the job has ended. Pending jobs are SUSPENDED: time in Slurm's queue
#: does not count towards the time-out for starting a launch.
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

#: Messages for end states that the exit code does not explain, with the user's next step.
ENDINGS: Mapping[str, str] = {
    "BOOT_FAIL": "its node did not boot; ask the cluster's administrators",
    "CANCELLED": "its Slurm job was cancelled outside the platform",
    "DEADLINE": "its Slurm job missed its deadline",
    "LAUNCH_FAILED": "its node could not start the job; ask the cluster's administrators",
    "NODE_FAIL": "its node failed",
    "OUT_OF_MEMORY": "it exceeded its memory request; request more memory",
    "PREEMPTED": "it was preempted by a job of higher priority",
    "RECONFIG_FAIL": "its node could not be configured; ask the cluster's administrators",
    "REVOKED": "another cluster of the federation took over its Slurm job",
    "TIMEOUT": "it reached its time limit in Slurm; raise the simulation's timeout or the executor's option `minutes`",
}
#: Message if Slurm no longer knows a job and the job has recorded no exit code.
UNKNOWN_ENDING = (
    "Slurm no longer knows its job, and no exit code is recorded; a larger MinJobAge in slurm.conf keeps jobs longer"
)


@dataclass(frozen=True, slots=True)
class PendingReason:
    """Message on a pending job; ``never``: the job will not start without a change."""

    message: str
    never: bool = False


#: Messages by prefix of Slurm's pending reason; the longest matching prefix applies. Other reasons are quoted as they
#: are; the reason "None" (not evaluated yet) has no message.
REASONS: Mapping[str, PendingReason] = {
    "AccountNotAllowed": PendingReason(
        "the account may not use this partition; change the executor's option `account` or `partition`", True
    ),
    "AssocGrp": PendingReason("its account has reached its limit; the job starts when other jobs of that account end"),
    "AssocMax": PendingReason("its account has reached its limit; the job starts when other jobs of that account end"),
    "AssocMaxCpuPerJobLimit": PendingReason(
        "it requests more cores than its account allows for one job; request fewer", True
    ),
    "AssocMaxWallDurationPerJobLimit": PendingReason(
        "its time limit exceeds that of its account; shorten the simulation's timeout", True
    ),
    "BadConstraints": PendingReason("no node satisfies its request; request less, or another partition", True),
    "BeginTime": PendingReason("its start time is in the future, set by hand or after a failed start"),
    "Dependency": PendingReason("it waits for another job to end"),
    "DependencyNeverSatisfied": PendingReason("it depends on a job that has failed", True),
    "InvalidAccount": PendingReason("Slurm does not know its account; change the executor's option `account`", True),
    "InvalidQOS": PendingReason("Slurm does not know its quality of service; change the placement's `priority`", True),
    "JobArrayTaskLimit": PendingReason("its array has reached its limit of running tasks"),
    "JobHeldAdmin": PendingReason("an administrator holds it; ask for its release"),
    "JobHeldUser": PendingReason("a user holds it; `scontrol release` releases it"),
    "Licenses": PendingReason("it waits for a licence that is in use"),
    "NodeDown": PendingReason("a node that it needs is down; ask the cluster's administrators"),
    "Nodes required for job are DOWN, DRAINED": PendingReason(
        "all suitable nodes are down, drained or reserved; ask the cluster's administrators, or cancel the simulation"
    ),
    "PartitionConfig": PendingReason(
        "it requests more resources or time than its partition allows for one job; request less", True
    ),
    "PartitionDown": PendingReason("its partition is down; it starts when the partition is up again"),
    "PartitionInactive": PendingReason("its partition is inactive; it starts when the partition is active again"),
    "PartitionNodeLimit": PendingReason("it requests more nodes than its partition allows for one job", True),
    "PartitionTimeLimit": PendingReason(
        "its time limit exceeds that of its partition; shorten the simulation's timeout", True
    ),
    "Priority": PendingReason("other jobs have a higher priority"),
    "QOSGrp": PendingReason("its quality of service has reached its limit; it starts when other jobs end"),
    "QOSMax": PendingReason("its user has reached the limit of its quality of service; it starts when other jobs end"),
    "QOSMaxCpuPerJobLimit": PendingReason(
        "it requests more cores than its quality of service allows for one job; request fewer", True
    ),
    "QOSMaxWallDurationPerJobLimit": PendingReason("its time limit exceeds that of its quality of service", True),
    "QOSNotAllowed": PendingReason(
        "its partition does not accept its quality of service; change the placement's `priority`", True
    ),
    "ReqNodeNotAvail": PendingReason(
        "suitable nodes are unavailable (drained, down or reserved); it starts when they are available"
    ),
    "Reservation": PendingReason("its reservation has not started, or is full"),
    "Resources": PendingReason("the nodes are in use; it starts when other jobs end"),
    "SchedDefer": PendingReason("Slurm has deferred its scheduling"),
}

#: Errors of sbatch and scancel after which a retry may succeed: the controller is unavailable or overloaded.
TRANSIENT_ERRORS = (
    "AssocMaxSubmitJobLimit",
    "Connection refused",
    "Invalid authentication credential",
    "Job violates accounting/QOS policy",  # usually the limit of submitted jobs
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
