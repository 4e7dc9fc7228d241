"""Deadlines of a model server: what counts of the time that passes before it answers.

Time that the model server could not use, because the machine ran something else or nothing at all, is not held against
the model. Everything else is: computing, sleeping, and waiting for what does not come.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

#: Seconds for a model server's hello, load and reset; a reset has the deadline of `act` if that is longer.
HELLO, LOAD, RESET = 120.0, 300.0, 10.0
#: The share of a deadline after which the model server is observed, and again each time so much has passed: faster
#: answers cost nothing, and of a thread that begins and ends between two looks no more time is missed than this.
UNOBSERVED = 0.1
#: Seconds beyond ten deadlines after which no answer is waited for, however little the machine ran the model server.
LONGEST = 60.0
#: The least share of a deadline to wait before the next look.
LEAST_WAIT = 0.02


@dataclass(frozen=True, kw_only=True, slots=True)
class ServerTimes:
    """Counters of a model server's processes, in seconds, and the most bytes that one of them had in memory.

    ``threads``: of each living thread, by number, the time on a processor and the time on a run queue, ready to run but
    not running (proc_pid_schedstat(5)), without a wait that still lasts. ``ready``: the threads that run at this
    moment, or wait for a processor. ``throttled``: the time in which the CPU limit of a control group let none of
    its processes run (cpu.stat). ``stalled``: the time in which the machine lacked memory so much that nothing made
    progress (PSI, the ``full`` line of /proc/pressure/memory). ``blocked``: whether a thread waits in the kernel at
    this moment for what no signal ends, which is a page or a file that comes from a disk (state D of
    proc_pid_stat(5)). ``stolen``: the time in which the hypervisor ran other machines in place of this one's
    processors, on average (``steal`` of proc_stat(5)); a kernel that knows it counts it neither as processor time nor
    as time on a run queue. ``memory``: peak resident bytes; 0: unknown.
    """

    threads: Mapping[str, tuple[float, float]]
    ready: Collection[str] = ()
    throttled: float = 0.0
    stalled: float = 0.0
    blocked: bool = False
    stolen: float = 0.0
    memory: int = 0


@dataclass(frozen=True, kw_only=True, slots=True)
class Usage:
    """What the processes of a model server got in a period, in seconds; of several threads, the sums.

    ``blocked``: for how long a thread waited for a disk, as far as looks show it.
    """

    cpu: float = 0.0
    queued: float = 0.0
    throttled: float = 0.0
    stalled: float = 0.0
    blocked: float = 0.0
    stolen: float = 0.0


def usage(before: ServerTimes, after: ServerTimes, blocked: float = 0.0) -> Usage:
    """Return what was used between two observations, of which the model server was ``blocked`` for so many seconds.

    A thread that ended in between is not counted.
    """
    grown = [
        (max(0.0, cpu - start_cpu), max(0.0, queued - start_queued))
        for thread, (cpu, queued) in after.threads.items()
        for start_cpu, start_queued in (before.threads.get(thread, (0.0, 0.0)),)
    ]
    return Usage(
        cpu=sum(cpu for cpu, _ in grown),
        queued=sum(queued for _, queued in grown),
        throttled=max(0.0, after.throttled - before.throttled),
        stalled=max(0.0, after.stalled - before.stalled),
        blocked=blocked,
        stolen=max(0.0, after.stolen - before.stolen),
    )


def usable(wall: float, observed: float, used: Usage) -> float:
    """Return how many of ``wall`` seconds the model server could use, of which the last ``observed`` were observed.

    Threads that wait for each other on one core do not lack the machine: processor time always counts. The time before
    the observation is taken to have been like the rest.
    """
    if observed <= 0.0:
        return 0.0
    ready = min(observed, used.cpu + used.queued)
    lacking = ready * used.queued / (used.cpu + used.queued) if ready else 0.0
    # A lack of memory is a wait for a disk, too: the two are one.
    lacking = min(observed, lacking + used.throttled + used.stolen + max(used.stalled, used.blocked))
    had = max(observed - lacking, min(observed, used.cpu))
    return wall * (had / observed)


@dataclass(frozen=True, slots=True)
class Wait:
    """Wait for the answer for so many seconds more."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Missed:
    """The deadline is missed; ``starved``: the machine is to blame, but nothing can be waited for without end."""

    starved: bool = False


def decide(seconds: float, wall: float, had: float) -> Wait | Missed:
    """Decide about a model server that has not answered within ``wall`` seconds, of which it could use ``had``."""
    if had >= seconds:
        return Missed()
    limit = longest(seconds)
    if wall >= limit:
        return Missed(starved=True)
    return Wait(min(max(seconds - had, LEAST_WAIT * seconds), limit - wall))


def longest(seconds: float) -> float:
    """Return the wall time in seconds after which a deadline is missed in any case."""
    return 10.0 * seconds + LONGEST
