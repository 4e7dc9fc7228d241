"""Ends of a gang's ranks: from how each of them ended, whether a task is done, its program is at fault, or it was lost.

A signal that a program gets for what it does is its own end: another gang would end likewise. SIGKILL and the signals
by which people and systems stop a process are a loss, after which the task is run again.
"""

import signal
from collections.abc import Sequence
from dataclasses import dataclass
from math import inf, isfinite

from .gang_transport import ReplicaLost

#: Signals that a process gets for what its program does.
_FAULTS = ("SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL", "SIGBUS", "SIGSYS", "SIGTRAP", "SIGXFSZ")
FAULTS = frozenset(signal.Signals[name] for name in _FAULTS)
#: The most characters of a line that is kept, and of a host's name.
LONGEST_LINE = 1000
#: Seconds within which a launcher ends the other ranks after one that ended without finishing MPI.
CLEANING_SECONDS = 1.0


@dataclass(frozen=True, kw_only=True, slots=True)
class RankEnd:
    """How a rank ended: ``exit`` is negative for a signal; times in seconds, ``computing`` is processor time.

    ``by_launcher``: its launcher ended it. ``orphaned``: its launcher was lost, and it ended with an error for that.
    ``given_up``: metrics whose expression took too long for a line that it printed.
    ``waiting``: in calls of MPI, of which ``all_reduce`` in MPI_Allreduce; ``sent``: bytes; ``finished``: whether it
    called MPI_Finalize; None: not measured.
    """

    rank: int
    host: str
    exit: int
    began: float
    ended: float
    computing: float
    waiting: float | None = None
    sent: int | None = None
    all_reduce: float | None = None
    finished: bool | None = None
    by_launcher: bool = False
    orphaned: bool = False
    lines: Sequence[str] = ()
    result: str | None = None
    given_up: Sequence[str] = ()

    @classmethod
    def of(cls, document: object) -> "RankEnd":
        """Return the end that a rank's document tells (rank.py), or its program in its name. Raises ValueError."""
        try:
            end = cls(**document)  # type: ignore[arg-type]  # what does not fit is what is looked for
            times = all(isinstance(value, float | int) and isfinite(value) for value in end._times)
            texts = (end.host, *end.lines, *end.given_up)
            short = all(isinstance(text, str) and len(text) <= LONGEST_LINE for text in texts) and end.host.isascii()
            numbers = isinstance(end.rank, int) and isinstance(end.exit, int)
            numbers = numbers and isinstance(end.sent, int | None)
            flags = isinstance(end.by_launcher, bool) and isinstance(end.orphaned, bool)
            flags = flags and isinstance(end.finished, bool | None)
            result = isinstance(end.result, str | None)
        except TypeError as error:
            raise ValueError(f"{error}") from None
        if not (times and short and numbers and flags and result):
            raise ValueError("a member of a rank's document has another type or is too long")
        return end

    @classmethod
    def lost_end(cls, rank: int, host: str) -> "RankEnd":
        """Return the end of a rank that was started and whose watcher has left no document: both were killed.

        It comes before all others, which MPI's library may have ended for it, as MPI_Abort does.
        """
        return cls(rank=rank, host=host, exit=-signal.SIGKILL, began=0.0, ended=0.0, computing=0.0)

    @property
    def _times(self) -> tuple[float, ...]:
        measured = [seconds for seconds in (self.waiting, self.all_reduce) if seconds is not None]
        return self.began, self.ended, self.computing, *measured


def fault(ends: Sequence[RankEnd], expected: int, launcher: int, lines: Sequence[str] = ()) -> str | None:
    """Return how the program failed by itself; None: it did not. Raise ReplicaLost if a rank was lost.

    ``expected``: the number of ranks. ``launcher``: the exit status of what started them, with its last ``lines``;
    negative if a signal ended it.
    The rank that ended first with an error is the reason; the launcher ends the others for it. A launcher that is lost,
    or fails although no rank has, is a loss: it is not the program's. But a launcher ends all others at once after a
    rank that ended well without finishing MPI, for which they might wait for ever.
    """
    if launcher == -signal.SIGKILL:
        raise ReplicaLost("what starts the ranks was killed by SIGKILL")
    failed = sorted(
        (end for end in ends if end.orphaned or (end.exit and not end.by_launcher)), key=lambda end: end.ended
    )
    if failed:
        first = failed[0]
        if first.orphaned:
            raise ReplicaLost(f"what had started rank {first.rank} was lost")
        if first.exit < 0 and -first.exit not in FAULTS:
            raise ReplicaLost(f"rank {first.rank} was killed by {_name(-first.exit)}")
        how = f"exited with status {first.exit}" if first.exit > 0 else f"was ended by {_name(-first.exit)}"
        if first.lines:
            return with_lines(f"rank {first.rank} {how}", first.lines)
        others = sorted((end for end in ends if end.lines), key=lambda end: end.rank)
        said = f"; the last lines of rank {others[0].rank}: {' | '.join(others[0].lines)}" if others else ""
        return f"rank {first.rank} {how}{said}"
    if launcher > 0 and not ends:
        return with_lines(f"no rank was started: the launcher exited with status {launcher}", lines)
    stopped = sorted((end for end in ends if end.by_launcher), key=lambda end: (not end.lines, end.rank))
    if stopped and launcher >= 0 and not is_killed(launcher):
        how = f"the program ended all ranks with status {launcher}, as MPI_Abort does"
        return with_lines(f"{how}, also rank {stopped[0].rank}", stopped[0].lines)
    if len(ends) == expected and (early := _early_end(ends)) is not None:
        how = f"rank {early.rank} ended with status 0 without finishing MPI (MPI_Finalize)"
        other = min(end.rank for end in ends if end.by_launcher)
        return with_lines(f"{how}, so its launcher ended rank {other}", early.lines)
    missing = sorted(set(range(expected)) - {end.rank for end in ends if not end.by_launcher})
    if missing:
        raise ReplicaLost(f"rank {missing[0]} was lost")
    if launcher:
        raise ReplicaLost(f"the launcher exited with status {launcher}, although all ranks ended well")
    return None


def _early_end(ends: Sequence[RankEnd]) -> RankEnd | None:
    """Return the rank that ended well immediately before the launcher ended others; None: there is none.

    A rank that is known to have finished MPI does not count: something else has ended the others.
    """
    stopped_at = min((end.ended for end in ends if end.by_launcher), default=-inf)
    unfinished = [end for end in ends if not end.by_launcher and not end.finished]
    well = [end for end in unfinished if 0.0 <= stopped_at - end.ended <= CLEANING_SECONDS]
    return max(well, key=lambda end: end.ended, default=None)


def is_killed(status: int) -> bool:
    """Whether an exit status is that of a process which SIGKILL ended, as a shell or a launcher tells it."""
    return status % 128 == signal.SIGKILL


def with_lines(text: str, lines: Sequence[str]) -> str:
    """Return a text with the last lines of a program."""
    return f"{text}; its last lines: {' | '.join(lines)}" if lines else text


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
