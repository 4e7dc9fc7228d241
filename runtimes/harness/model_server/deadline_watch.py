"""Deadline watch: waits for a model server's socket, and asks what the machine let the model server do meanwhile."""

import select
import socket
import sys
import time
from collections.abc import Callable
from dataclasses import replace

from .deadlines import UNOBSERVED, Missed, ServerTimes, Usage, decide, longest, usable, usage
from .model_faults import TimedOut

#: Returns the counters of the model server, or None if they cannot be read here: then all time counts.
ReadTimes = Callable[[], ServerTimes | None]
#: Returns the seconds in which the watching thread itself was ready and not run, since the last call.
OwnDelay = Callable[[], float]


class DeadlineWatch:
    """The deadline of one answer, ``seconds`` from the monotonic time ``began``."""

    def __init__(
        self,
        seconds: float,
        read_times: ReadTimes,
        began: float | None = None,
        own_delay: OwnDelay = lambda: 0.0,
    ) -> None:
        self._seconds = seconds
        self._read_times = read_times
        self._own_delay = own_delay
        self._began = time.monotonic() if began is None else began
        self._first: ServerTimes | None = None
        self._seen: dict[str, tuple[float, float]] = {}  # of all threads, also of those that have ended
        self._waits: dict[str, float] = {}  # of threads that wait for a processor: for how long, as looks show it
        self._observed_since = 0.0
        self._looked = 0.0
        self._blocked = 0.0  # seconds before a look at which the model server waited for a disk
        self._share = 1.0  # of its time, what the model server could use until the last look
        self._used = Usage()  # since the first look
        self._untold = 0  # looks at which nobody told the counters
        self._blind = 0.0  # seconds in which the machine did not let this thread look, or take the answer
        self._late = 0.0  # seconds by which waits of this thread took longer than they were to, since the last look
        self._next = self._began + UNOBSERVED * seconds  # the next look

    def wait(self, connection: socket.socket, event: int = select.POLLIN) -> None:
        """Wait until the socket is readable, or has the event; raise TimedOut once the deadline is missed."""
        poll = select.poll()
        poll.register(connection, event)
        while not self.wait_for(poll):
            pass

    def wait_for(self, poll: "select.poll") -> list[tuple[int, int]]:
        """Wait for an event until the next look; return the events. Raise TimedOut once the deadline is missed."""
        self.check()
        until = max(self._next, time.monotonic()) + 0.001
        ready = poll.poll(max(0.0, until - time.monotonic()) * 1000)
        # A machine that was stopped, or whose hypervisor ran another one, tells nothing else.
        self._late += max(0.0, time.monotonic() - until - 0.001)
        return ready

    def check(self) -> None:
        """Look if it is time to; raise TimedOut once the deadline is missed."""
        if time.monotonic() >= self._next:
            self._look()

    def settle(self) -> None:
        """Judge an answer that has arrived: raise TimedOut if it came too late."""
        wall = time.monotonic() - self._began
        if wall > self._seconds:
            # Threads may have ended with the answer, and their time in run queues is unknown then.
            share = min(self._share, self._observed_share())
            if isinstance(decide(self._seconds, wall, share * (wall - self._blind)), Missed):
                raise self._timed_out()

    def _look(self) -> None:
        self._share = self._observed_share()
        now = time.monotonic()
        wall = now - self._began
        if wall < self._seconds:
            self._next = min(now + UNOBSERVED * self._seconds, self._began + self._seconds)
            return
        decision = decide(self._seconds, wall, self._share * (wall - self._blind))
        if isinstance(decision, Missed):
            raise self._timed_out(starved=decision.starved)
        self._next = now + min(decision.seconds, UNOBSERVED * self._seconds)

    def _observed_share(self) -> float:
        """Return the share of its time that the model server could use, as far as it was observed; 1 if unknown."""
        asked = time.monotonic()
        # This thread was to look after a part of the deadline: before that it cannot have been late.
        delay, self._late = max(self._own_delay(), self._late), 0.0
        self._blind += min(delay, max(0.0, asked - self._began - UNOBSERVED * self._seconds - self._blind))
        times = self._read_times()
        if times is None:
            self._untold += 1
            return 1.0
        before, self._looked = self._looked, time.monotonic()
        # The kernel counts a wait when it is over; a thread that is ready and has not run meanwhile has waited.
        still = [thread for thread in times.ready if self._seen.get(thread) == times.threads.get(thread)]
        self._waits = {thread: self._waits.get(thread, 0.0) + self._looked - before for thread in still}
        self._seen.update(times.threads)
        if self._first is None:
            self._first, self._observed_since = times, self._looked
            self._blind += self._looked - asked  # its runner was late to tell
            return 1.0  # what was not observed counts as had, or a model could gain from hiding
        if times.blocked:
            self._blocked += self._looked - before
        waited = {thread: (cpu, queued + self._waits.get(thread, 0.0)) for thread, (cpu, queued) in self._seen.items()}
        self._used = usage(self._first, replace(times, threads=waited), self._blocked)
        return usable(1.0, self._looked - self._observed_since, self._used)

    def _timed_out(self, *, starved: bool = False) -> TimedOut:
        """Return the fault. The log has what it was judged by, which a result, equal on every machine, cannot have."""
        now = time.monotonic()
        print(
            f"deadline: {now - self._began:.3f} s of {self._seconds:g} s have passed, of which {self._blind:.3f} s were"
            f" not watched; in {self._looked - self._observed_since:.3f} s of looks {self._used};"
            f" {self._untold} looks without counters",
            file=sys.stderr,
            flush=True,
        )
        if starved:
            return TimedOut(
                f"no answer within {longest(self._seconds):g} s, in which the machine ran the model for less than"
                f" {self._seconds:g} s; run fewer workers, or give them more processors"
            )
        return TimedOut(f"no answer within {self._seconds:g} s")
