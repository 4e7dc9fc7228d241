"""The same tasks in other orders and processes: a model may not remember the scenarios before."""

from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

from runtimes.harness.runner.processes import WorkerSpec
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of
from tests.system.platform_process import untimed

#: The tasks of a simulation.
TASKS = range(8)


def result_lines(pair: EvaluatorPair, start: int, stop: int) -> list[bytes]:
    """Run tasks [start, stop); return their result lines without timing."""
    return [untimed(line) for line in pair.run_lines(start, stop).splitlines()]


def results_in_every_order(spec: WorkerSpec, model: bytes, *, workers: int = 4, **play: Any) -> Iterator[list[bytes]]:
    """Yield the results of all tasks: in order, backwards in the same processes, and on several workers.

    Every worker of the last ones has a first task of its own, which nothing ran before.
    """
    options = play_of(deadline=60.0, isolation=spec.isolation, **play)
    with evaluator_pair(spec, model, options) as pair:
        yield result_lines(pair, TASKS.start, TASKS.stop)
        backwards = [result_lines(pair, task, task + 1) for task in reversed(TASKS)]
        yield [line for lines in reversed(backwards) for line in lines]
    with ExitStack() as stack:
        pairs = [stack.enter_context(evaluator_pair(spec, model, options)) for _ in range(workers)]
        by_task = {task: result_lines(pairs[task % workers], task, task + 1) for task in TASKS}
        yield [line for task in TASKS for line in by_task[task]]
