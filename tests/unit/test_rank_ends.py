"""How a gang's task ended, from the ends of its ranks: done, at fault, or lost."""

import json
import math
import os
import signal
import subprocess
import sys
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from runtimes.harness.gang import rank as rank_module
from runtimes.harness.gang.gang_task import GangEnd
from runtimes.harness.gang.gang_transport import ReplicaLost
from runtimes.harness.gang.local_gang import outcome
from runtimes.harness.gang.rank_ends import FAULTS, RankEnd, fault
from tests.waiting import until

LOSSES = [signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP]


def rank_end(rank: int, exit: int = 0, ended: float = 1.0, **told) -> RankEnd:
    return RankEnd(rank=rank, host="h", exit=exit, began=0.0, ended=ended, computing=0.5, **told)


def gang_end(*ranks: RankEnd, result: str | None = None) -> GangEnd:
    return GangEnd(status=0, problem=None, result=result, ranks=ranks)


def test_a_gang_whose_ranks_all_ended_well_has_no_fault():
    assert fault([rank_end(0), rank_end(1)], 2, 0) is None


@pytest.mark.parametrize("number", sorted(FAULTS))
def test_a_signal_for_what_a_program_does_is_its_own_end(number):
    assert fault([rank_end(0, -number, lines=("deep in a loop",))], 2, 1) == (
        f"rank 0 was ended by {number.name}; its last lines: deep in a loop"
    )


@pytest.mark.parametrize("code", [0, 3, -signal.SIGKILL, -signal.SIGSEGV, -signal.SIGTERM])
def test_a_rank_s_process_ends_as_its_program_did(code):
    source = f"from runtimes.harness.gang.rank import end_like; end_like({code:d})"
    assert subprocess.run([sys.executable, "-c", source]).returncode == code


@pytest.mark.parametrize("number", LOSSES)
def test_a_rank_that_something_else_ended_is_lost(number):
    with pytest.raises(ReplicaLost, match=f"rank 1 was killed by {number.name}"):
        fault([rank_end(0), rank_end(1, -number)], 2, 137)


def test_a_rank_that_said_nothing_is_told_with_what_the_first_said():
    ends = [rank_end(0, -9, by_launcher=True, lines=("ERROR: Expected a number",)), rank_end(1, 1)]
    assert fault(ends, 2, 1) == "rank 1 exited with status 1; the last lines of rank 0: ERROR: Expected a number"


def test_ranks_that_their_launcher_ended_are_the_programs_doing_unless_it_was_killed():
    stopped = [rank_end(0, -9, by_launcher=True), rank_end(1, -9, by_launcher=True, lines=("ValueError: coarse",))]
    assert fault(stopped, 2, 3) == (
        "the program ended all ranks with status 3, as MPI_Abort does, also rank 1; its last lines: ValueError: coarse"
    )
    assert str(fault(stopped, 2, 0)).startswith("the program ended all ranks with status 0, as MPI_Abort does")
    for killed in (9, 137):
        with pytest.raises(ReplicaLost, match="rank 0 was lost"):
            fault(stopped, 2, killed)
    text = fault([*stopped, rank_end(2, 4, lines=("why",))], 3, 4)
    assert text == "rank 2 exited with status 4; its last lines: why"


def test_what_other_ranks_make_of_a_lost_one_is_not_the_programs_doing() -> None:
    lost = RankEnd.lost_end(2, "node")
    aborted = [rank_end(0, 7, lines=("Fatal error in internal_Barrier",)), rank_end(1, -9, by_launcher=True)]
    for others in (aborted, aborted[1:]):
        with pytest.raises(ReplicaLost, match="rank 2 was killed by SIGKILL"):
            fault([*others, lost], 3, 7)


def early_ends(after: float, **told) -> list[RankEnd]:
    stopped = [rank_end(rank, -9, 2.0 + after, by_launcher=True) for rank in (0, 3)]
    return [*stopped, rank_end(1, 0, 2.0, **told), rank_end(2, 0, 0.5)]


def test_a_rank_that_ends_well_without_finishing_mpi_is_the_programs_fault_because_its_launcher_ends_the_others():
    for launcher in (9, 137):
        text = "rank 1 ended with status 0 without finishing MPI (MPI_Finalize), so its launcher ended rank 0"
        assert fault(early_ends(0.01), 4, launcher) == text
        assert fault(early_ends(0.01, lines=("bye",)), 4, launcher) == f"{text}; its last lines: bye"


@pytest.mark.parametrize(
    "ends",
    [
        pytest.param(early_ends(30.0), id="long after"),
        pytest.param(early_ends(-0.01), id="before"),
        pytest.param(early_ends(0.01)[1:], id="with a rank that left no word"),
        pytest.param(early_ends(0.01, finished=True), id="after a rank that finished MPI"),
    ],
)
def test_ranks_that_were_ended_while_others_had_ended_well_are_lost(ends):
    with pytest.raises(ReplicaLost, match="rank 0 was lost"):
        fault(ends, 4, 9)


def test_a_rank_whose_process_its_launcher_kills_prints_nothing_of_its_own(tmp_path):
    rank = [sys.executable, rank_module.__file__, str(tmp_path), "sleep", "600"]
    with subprocess.Popen(rank, stderr=subprocess.PIPE) as launched:
        until(lambda: (tmp_path / ".pid-0").exists() and (tmp_path / ".pid-0").read_text())
        launched.kill()
        assert launched.stderr.read() == b""
    assert RankEnd.of(json.loads((tmp_path / "0").read_text())).by_launcher


def test_a_launcher_that_is_lost_is_a_loss_whatever_the_other_ranks_made_of_it():
    orphan = rank_end(1, -9, by_launcher=True, orphaned=True)
    for others in ([rank_end(0)], [rank_end(0, -9, by_launcher=True)], [rank_end(0, 15, ended=1.1)]):
        with pytest.raises(ReplicaLost, match="what had started rank 1 was lost"):
            fault([*others, orphan], 2, 255)
    assert fault([rank_end(0, 15, ended=0.9), orphan], 2, 255) == "rank 0 exited with status 15"


def test_a_launcher_that_is_killed_is_a_loss_also_if_a_rank_faults_for_it():
    with pytest.raises(ReplicaLost, match="what starts the ranks was killed by SIGKILL"):
        fault([rank_end(0, -signal.SIGSEGV), rank_end(1)], 2, -signal.SIGKILL)


@pytest.mark.parametrize("lost", [True, False])
def test_a_rank_that_faults_after_its_launcher_is_gone_is_an_orphan(tmp_path, lost):
    fault = f"""
import os, pathlib, time
while not pathlib.Path({str(tmp_path)!r}, "go").exists():
    time.sleep(0.01)
os.kill(os.getpid(), 11)
"""
    launch = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()"
    rank = [sys.executable, rank_module.__file__, str(tmp_path), sys.executable, "-c", fault]
    with subprocess.Popen([sys.executable, "-c", launch, *rank], stdout=subprocess.PIPE) as launcher:
        launched = int(launcher.stdout.readline())
        until(lambda: (tmp_path / ".pid-0").exists())
        if lost:  # the launched process is stopped, so that the rank is not ended for it before
            os.kill(launched, signal.SIGSTOP)
            launcher.kill()
            launcher.wait()
        (tmp_path / "go").touch()
        end = RankEnd.of(json.loads(until(lambda: (tmp_path / "0").exists() and (tmp_path / "0").read_text())))
        assert (end.exit, end.by_launcher, end.orphaned) == (-signal.SIGSEGV, False, lost)
        if lost:
            os.kill(launched, signal.SIGKILL)


def test_a_launcher_that_fails_although_all_ranks_ended_well_is_a_loss():
    with pytest.raises(ReplicaLost, match="status 255, although all ranks ended well"):
        fault([rank_end(0), rank_end(1)], 2, 255)


def test_a_rank_whose_launcher_is_killed_ends_at_once_and_says_so(tmp_path):
    launch = "import subprocess, sys; p = subprocess.Popen(sys.argv[1:]); print(p.pid, flush=True); p.wait()"
    rank = [sys.executable, rank_module.__file__, str(tmp_path), "sleep", "600"]
    with subprocess.Popen([sys.executable, "-c", launch, *rank], stdout=subprocess.PIPE) as launcher:
        until(lambda: (tmp_path / ".pid-0").exists() and (tmp_path / ".pid-0").read_text())
        launcher.kill()
    end = RankEnd.of(json.loads(until(lambda: (tmp_path / "0").exists() and (tmp_path / "0").read_text())))
    assert (end.exit, end.by_launcher, end.orphaned) == (-signal.SIGKILL, True, True)
    program = int((tmp_path / ".pid-0").read_text())
    until(lambda: not Path(f"/proc/{program}").exists())


@given(st.lists(st.tuples(st.integers(0, 255), st.floats(0, 100)), min_size=1, max_size=8))
def test_the_rank_that_failed_first_is_the_reason(ends):
    ranks = [rank_end(rank, exit, ended) for rank, (exit, ended) in enumerate(ends)]
    failed = [end for end in ranks if end.exit]
    text = fault(ranks, len(ranks), 0)
    if not failed:
        assert text is None
    else:
        first = min(failed, key=lambda end: end.ended)
        assert text == f"rank {first.rank} exited with status {first.exit}"


@given(st.sets(st.integers(0, 7), max_size=7))
def test_a_rank_that_left_no_word_is_lost(present):
    with pytest.raises(ReplicaLost):
        fault([rank_end(rank) for rank in present], 8, 0)


def test_a_launcher_that_starts_no_rank_is_at_fault_with_its_words():
    text = fault([], 2, 255, ("no such option: --walk",))
    assert text == "no rank was started: the launcher exited with status 255; its last lines: no such option: --walk"


def test_the_first_ranks_last_line_of_json_is_the_result_unless_it_wrote_a_file():
    ends = rank_end(0, result='{"drag": 1.5}'), rank_end(1, result='{"drag": 9}')
    assert outcome(gang_end(*ends), 2, 1.0).metrics == {"drag": 1.5}
    written = gang_end(*ends, result='{"lift": 2}')
    assert outcome(written, 2, 1.0).metrics == {"lift": 2}


def test_a_program_without_a_result_is_invalid_and_says_what_a_result_is():
    played = outcome(gang_end(rank_end(0), rank_end(1)), 2, 1.0)
    assert (played.status, played.metrics) == ("invalid", {})
    assert "WINDTUNNEL_RESULT" in played.error


def test_each_rank_is_in_the_timing_in_order():
    played = outcome(gang_end(rank_end(1), rank_end(0, result="{}")), 2, 1.0)
    assert played.status == "ok" and [rank.computing for rank in played.ranks] == [0.5, 0.5]


def test_a_gangs_end_crosses_processes_as_json():
    end = gang_end(rank_end(0, -11, lines=("a", "b"), result="{}"), rank_end(1), result="{}")
    assert GangEnd.of(end.text()).ranks == [replace(rank, lines=list(rank.lines), given_up=[]) for rank in end.ranks]


WRONG = [None, 3, "text", [], {}, {"rank": 0}]
WRONG += [
    asdict(rank_end(0)) | {name: value}
    for name in ("rank", "exit", "ended", "host")
    for value in ([], None, "x" * 2000)
]
WRONG += [
    asdict(rank_end(0)) | change for change in ({"computing": math.inf}, {"result": 3}, {"lines": [3]}, {"more": 1})
]


@pytest.mark.parametrize("written", WRONG)
def test_a_program_that_writes_its_own_end_is_not_believed(written):
    with pytest.raises(ValueError):
        RankEnd.of(written)
    with pytest.raises(ValueError):
        GangEnd.of(json.dumps({"status": 0, "problem": None, "result": None, "ranks": [written]}).encode())
