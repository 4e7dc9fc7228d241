"""Task progress: how far the program of a gang is with its task, as it tells while it runs.

It is kept with what the dispatcher sums up, until that is summed up again: at the next result.
"""

import msgspec

from core.domain.scheduling.states import State
from core.domain.submissions.stored_documents import decode_document
from core.notifications.notifier import Notifier
from core.services.scheduling.task_files import TaskFiles
from core.store import events, simulations
from core.store.database import Connection, Database
from runtimes.harness.runner.runner_api_messages import ProgressReport


class _SummedProgress(msgspec.Struct):
    """The sums that the dispatcher has stored."""

    rate: float | None = None
    eta: float | None = None
    metrics: dict[str, object] = {}
    answer: dict[str, object] | None = None
    score: dict[str, object] | None = None


class TaskProgress:
    """Records the progress of tasks that run."""

    def __init__(self, database: Database, notifier: Notifier, files: TaskFiles) -> None:
        self._database = database
        self._notifier = notifier
        self._files = files

    def record(self, simulation: str, report: ProgressReport) -> None:
        """Write the progress of a task as an event. Raise Conflict if its lease is lost."""
        self._files.require_held(simulation, report)

        def write(c: Connection) -> bool:
            total, done, failed = simulations.counts(c, simulation)
            summed = decode_document(simulations.locked_progress(c, simulation) or "{}", _SummedProgress)
            body: dict[str, object] = {
                "total": total,
                "done": done,
                "failed": failed,
                "rate": summed.rate,
                "eta": summed.eta,
            }
            body |= {"metrics": summed.metrics, "answer": summed.answer}
            body["running"] = {"task": report.task, "fraction": report.fraction}
            newest = events.last_of_types(c, simulation, ("storage", "progress"))
            if newest is not None and newest[0] == "storage":  # progress after it would say that results were stored
                told = False
            else:
                told = events.say_while(c, simulation, State.RUNNING, "progress", body, self._database.now(c))
            simulations.set_progress(c, simulation, {**body, "score": summed.score})
            return told

        if self._database.write(write, durable=False):
            self._notifier.publish(simulation)
