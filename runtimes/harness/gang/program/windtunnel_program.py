"""Tasks of a coupled program that is started once for all of them (`gang.start` is `launch`).

::

    from windtunnel_program import tasks

    for task in tasks():
        drag = solve(**task.params)
        task.finish(drag=drag)      # the first rank's is the result

In another language: connect to the Unix socket that `$WINDTUNNEL_TASKS` names, send a line with `$WINDTUNNEL_RANK`
(or `"alone"`, with its quotes), and then read a line of JSON for each task and answer it with a line, a flat JSON
object. This module has no dependencies.
"""

import json
import os
import socket
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

#: The variable that names the folder of a task's newest checkpoint.
RESTORE = "WINDTUNNEL_RESTORE"


@dataclass
class Task:
    """A task: its number, repeat and seed, and its parameters.

    ``restore``: the folder of its newest checkpoint, if there is one; `WINDTUNNEL_RESTORE` names it meanwhile.
    """

    index: int
    repeat: int = 0
    seed: int = 0
    params: Mapping[str, Any] = field(default_factory=dict)
    restore: str | None = None
    metrics: Mapping[str, object] | None = None

    def finish(self, **metrics: float | int | str | bool | None) -> None:
        """Set the task's metrics; they count when the loop goes on or is left, and only those of the first rank."""
        self.metrics = metrics


def tasks(*, alone: bool = False) -> Iterator[Task]:
    """Yield each task of the launch that this gang gets, in every rank; ``alone``: in the first, which tells others."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.connect(os.environ["WINDTUNNEL_TASKS"])
        connection.sendall(b'"alone"\n' if alone else os.environ["WINDTUNNEL_RANK"].encode() + b"\n")
        for line in connection.makefile("rb"):
            task, left = Task(**json.loads(line)), True
            os.environ.pop(RESTORE, None)
            if task.restore is not None:
                os.environ[RESTORE] = task.restore
            try:
                yield task
                left = False
            finally:
                if not left or task.metrics is not None:  # a loop that an exception left has no result
                    connection.sendall(json.dumps(task.metrics).encode() + b"\n")
