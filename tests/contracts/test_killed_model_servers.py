"""A model server that is killed from outside changes no result; a model that ends its own process is not run again."""

import os
import signal
import threading
from pathlib import Path
from typing import Any

import pytest

from runtimes.harness import sandbox
from runtimes.harness.evaluator.evaluator import STRIKES
from runtimes.harness.runner.processes import ChildProcess
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec
from tests.processes import innermost
from tests.waiting import until

#: Waits in one of its scenarios to be killed, as often as there are names of files that do not exist yet.
WAITING_MODEL = """
import os, time
import numpy as np
class Model:
    count = 0
    def act(self, observation):
        Model.count += 1
        for number in range({kills}):
            try:
                os.close(os.open(f"{folder}/{{number}}", os.O_CREAT | os.O_EXCL))
            except FileExistsError:
                continue
            time.sleep(600)
        return np.zeros(4, np.float32)
    def act_batch(self, observations):
        return np.stack([self.act(observation) for observation in observations])
"""


def victim(pair: EvaluatorPair, *, child: bool) -> int:
    """Return the id of the newest model server's process, or of the process of its scenario."""
    process = pair.model_servers[-1].process
    assert isinstance(process, ChildProcess)
    return innermost(process.pid) if child else process.pid


def played(tmp_path: Path, isolation: str, kills: int, *, child: bool = False, batch: int = 1) -> tuple[list[Any], int]:
    """Play 32 tasks, and kill the model server so often while it answers; return the results and its successors."""
    spec = worker_spec(isolation=isolation)
    play = play_of(isolation=isolation, params={"batch": batch} if batch > 1 else {})

    def kill(pair: EvaluatorPair) -> None:
        for number in range(kills):
            until((tmp_path / str(number)).exists, message="the model does not wait")
            os.kill(victim(pair, child=child), signal.SIGKILL)

    with evaluator_pair(spec, WAITING_MODEL.format(kills=kills, folder=tmp_path), play) as pair:
        killing = threading.Thread(target=kill, args=(pair,))
        killing.start()
        results = pair.run(0, 32)
        killing.join()
    return results, len(pair.needs)


@pytest.mark.parametrize(
    ("isolation", "child", "batch"), [("launch", False, 16), ("scenario", False, 1), ("scenario", True, 16)]
)
def test_a_model_server_that_is_killed_from_outside_changes_no_result(
    tmp_path: Path, isolation: str, child: bool, batch: int
) -> None:
    results, replaced = played(tmp_path, isolation, 1, child=child, batch=batch)
    assert [(result["task"], result["status"], result["error"]) for result in results] == [
        (task, "ok", None) for task in range(32)
    ]
    assert replaced == 1


def test_a_task_whose_model_server_is_killed_three_times_is_crashed(tmp_path: Path) -> None:
    results, replaced = played(tmp_path, "scenario", STRIKES)
    assert [result["status"] for result in results] == ["crashed"] + ["ok"] * 31
    assert "killed by SIGKILL" in results[0]["error"] and replaced == STRIKES


#: How a model may try to look as if it was killed from outside.
OWN_ENDS = {
    "tgkill": "signal.pthread_kill(threading.get_ident(), 9)",
    "an exit code": "os._exit(128 + 9)",
    "a queued signal": "ctypes.CDLL(None).syscall(297, os.getpid(), os.getpid(), 9, ctypes.c_char_p(bytes(128)))",
    "a limit of processor time": "resource.setrlimit(resource.RLIMIT_CPU, (0, 0)); exec('while True: pass')",
    "a thread": "threading.Thread(target=os.kill, args=(os.getpid(), 9)).start(); time.sleep(9)",
}


@pytest.mark.parametrize("end", OWN_ENDS)
def test_a_model_that_ends_its_own_process_is_not_run_again(end: str) -> None:
    imports = "import ctypes, os, resource, signal, threading, time"
    source = f"{imports}\nclass Model:\n def act(self, observation):\n  {OWN_ENDS[end]}\n  return [0.0] * 4"
    spec = worker_spec(isolation="scenario", sandbox=sandbox.level().number)
    with evaluator_pair(spec, source, play_of(isolation="scenario", deadline=5.0)) as pair:
        (result,) = pair.run(0, 1)
    assert result["status"] in {"crashed", "failed"} and len(pair.needs) <= 1
