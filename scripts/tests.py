"""Run a test suite, rerun its failures alone, and record both: ``python -m scripts.tests SUITE PYTEST_ARGUMENTS...``.

Up to five failed tests are rerun serially. A test that passes then does not fail the run, but it is recorded in the
history file with its error message, and a test with two such records in the last ten runs of its suite is no longer
rerun: it must be fixed or removed (docs/testing.md, docs/decisions/0017). ``--history`` prints the
records.
"""

import argparse
import fcntl
import json
import os
import signal
import subprocess
import sys
import tempfile
import textwrap
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from xml.etree import ElementTree

#: More failures at once than this are not rerun: they have one cause.
MAX_RERUNS = 5
#: Characters of a failure's message that are recorded.
MAX_MESSAGE = 1000
#: A test that failed and passed alone this often within the last runs is unstable, and is not rerun.
UNSTABLE, WINDOW = 2, 10
ROOT = Path(__file__).parents[1]


@dataclass(frozen=True, kw_only=True, slots=True)
class Run:
    """A run of a suite: counts of its first pass, outcomes of its failures, and their messages by test."""

    at: str
    suite: str
    commit: str
    seconds: int
    load: float
    passed: int
    failed: tuple[str, ...]
    passed_alone: tuple[str, ...]
    messages: Mapping[str, str] = field(default_factory=dict)


def history_path() -> Path:
    """Return the history file: in the user's cache folder, so that runs from fresh clones are counted together."""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "windtunnel" / "test-runs.ndjson"


def read_history(path: Path) -> list[Run]:
    """Return every recorded run, oldest first."""
    if not path.exists():
        return []
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    return [Run(**row | {key: tuple(row[key]) for key in ("failed", "passed_alone")}) for row in rows]


def record(path: Path, run: Run) -> None:
    """Append a run; several suites may end at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with open(path, "a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        file.write(json.dumps(asdict(run)) + "\n")


def failed_alone_counts(history: Iterable[Run], suite: str) -> Mapping[str, int]:
    """Return how often each test failed and then passed alone within the last ten runs of a suite."""
    recent = [run for run in history if run.suite == suite][-WINDOW:]
    return Counter(test for run in recent for test in run.passed_alone)


def run_pytest(arguments: Sequence[str], cache: Path) -> int:
    """Run pytest with a cache folder of its own and return its exit status; SIGTERM is passed on to it."""
    process = subprocess.Popen([sys.executable, "-m", "pytest", *arguments, "-o", f"cache_dir={cache}"])
    signal.signal(signal.SIGINT, lambda *_: None)  # the terminal sends SIGINT to pytest, too
    signal.signal(signal.SIGTERM, lambda number, _: process.send_signal(number))
    code = process.wait()
    return code if code >= 0 else 128 - code


def failures(cache: Path) -> list[str]:
    """Return the node ids of the tests that failed last."""
    path = cache / "v" / "cache" / "lastfailed"
    return sorted(json.loads(path.read_text())) if path.exists() else []


def read_report(path: Path) -> tuple[int, Mapping[str, str]]:
    """Return from a JUnit report how many tests passed, and the messages of failed tests by dotted name."""
    if not path.exists():
        return 0, {}
    passed, messages = 0, {}
    # A test that fails and whose teardown fails too has two entries.
    for case in ElementTree.parse(path).iter("testcase"):
        problem = next((part for part in case if part.tag in ("failure", "error")), None)
        if problem is not None:
            messages.setdefault(f"{case.get('classname')}.{case.get('name')}", problem.get("message", "")[:MAX_MESSAGE])
        elif case.find("skipped") is None:
            passed += 1
    return passed, messages


def dotted(test: str) -> str:
    """Return the name that a JUnit report has for pytest's ``folder/file.py::test[parameter]``."""
    file, _, name = test.partition("::")
    function, bracket, parameter = name.partition("[")
    return f"{file.removesuffix('.py').replace('/', '.')}.{function.replace('::', '.')}{bracket}{parameter}"


def run_suite(suite: str, arguments: Sequence[str]) -> int:
    """Run a suite and record it; return 0 if every test passed, at once or alone, otherwise pytest's status."""
    path = history_path()
    counts = failed_alone_counts(read_history(path), suite)
    began = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        cache, report = Path(folder), Path(folder) / "report.xml"
        status = run_pytest([*arguments, f"--junitxml={report}"], cache)
        passed, messages = read_report(report)
        first_failures = failures(cache)
        failed: list[str] = first_failures
        unstable = [test for test in first_failures if counts.get(test, 0) >= UNSTABLE]
        if status == 1 and 0 < len(first_failures) <= MAX_RERUNS and not unstable:
            print(f"\n{len(first_failures)} failed; rerunning alone:", flush=True)
            serial_options = ["-n", "0", "--last-failed", "--last-failed-no-failures", "none"]
            status = run_pytest([*arguments, *serial_options], cache)
            failed = failures(cache)
        passed_alone = [test for test in first_failures if test not in failed]
        for test in passed_alone:
            print(f"failed, and passed alone ({counts.get(test, 0) + 1} of the last {WINDOW} runs): {test}", flush=True)
        for test in unstable:
            print(f"not rerun, unstable in the last {WINDOW} runs; fix or remove it: {test}", flush=True)
        if status in (0, 1):
            record(
                path,
                Run(
                    at=datetime.now(UTC).isoformat(timespec="seconds"),
                    suite=suite,
                    commit=commit(),
                    seconds=round(time.monotonic() - began),
                    load=round(os.getloadavg()[1], 1),
                    passed=passed,
                    failed=tuple(failed),
                    passed_alone=tuple(passed_alone),
                    messages={test: messages.get(dotted(test), "") for test in first_failures},
                ),
            )
    return status


def commit() -> str:
    """Return the short hash of the checked-out commit, with a plus where files differ from it."""
    command = ["git", "-C", str(ROOT), "describe", "--always", "--exclude=*", "--dirty=+"]
    return subprocess.run(command, capture_output=True, text=True).stdout.strip() or "unknown"


def print_history() -> None:
    """Print every recorded run, and the tests that are unstable now."""
    history = read_history(history_path())
    for run in history:
        print(f"{run.at}  {run.suite:8} {run.commit:10} {run.seconds:5} s  load {run.load:4}  {run.passed} passed")
        for outcome, tests in (("failed", run.failed), ("failed, and passed alone", run.passed_alone)):
            for test in tests:
                print(f"    {outcome}: {test}")
                print(textwrap.indent(run.messages.get(test, ""), " " * 8))
    for suite in sorted({run.suite for run in history}):
        for test, count in failed_alone_counts(history, suite).items():
            if count >= UNSTABLE:
                print(f"unstable ({count} of the last {WINDOW} runs of {suite}): {test}")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a suite or print the history."""
    parser = argparse.ArgumentParser(description=__doc__, allow_abbrev=False)
    parser.add_argument("--history", action="store_true", help="print the recorded runs and the unstable tests")
    parser.add_argument("suite", nargs="?", help="the name under which the run is recorded")
    options, rest = parser.parse_known_args(arguments)
    if options.history:
        print_history()
        return 0
    if options.suite is None:
        parser.error("name a suite, or --history")
    return run_suite(options.suite, rest)


if __name__ == "__main__":
    sys.exit(main())
