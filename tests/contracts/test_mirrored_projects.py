"""The suite of the API beside a second project that does the same first: every answer is, byte for byte, the same.

The suite runs twice, in processes of their own: alone, and with a mirror that makes each request of each test first, in
its own project, with the same names, contents, labels and keys (tests/mirror_requests.py).
"""

import os
import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mirror_answers import AnswerDifference, MirrorException, RecordedTest, differences, read
from tests.mirror_exceptions import EXCEPTIONS, UNREPEATABLE
from tests.nested_pytest import nested_pytest

ROOT = Path(__file__).parents[2]
#: Files with a bit of each kind of thing: names, digests, quotas, positions, keys, search, shares, leaderboards.
EVERY_RUN = [f"tests/api/{name}.py" for name in ("test_neighbours", "test_models", "test_simulation_lists")]
#: Files that are compared besides, by the part of their name after `test_`, in parts of about a minute.
WHOLE: Mapping[str, str] = {
    "whole 1": """
        comparisons connected_projects distributions events launch_waiters limited_tokens model_formats
        openapi_document provenance_version refused_documents report_headers
    """,
    "whole 2": "audit leaderboards model_tags project_quotas project_usage shares",
    "whole 3": "access allow_lists answers artifacts binned_things bundles byte_ranges catalogue",
    "whole 4": """
        bulk comparison_lists compat departed_submitters executors foreign_things problems results run_logging
        sensitivities session
    """,
    "whole 5": "estimates gang_submissions open_streams simulation_outputs staging_retries sweeps task_pictures",
    "whole 6": "datasets project_ends simulations submission_routes uploads",
}
#: Files to be compared next, in parts that have not run as one test yet.
NEXT = "model_comparisons size_limits trusted_runs".split()
#: Files that are not compared, each with the reason.
NOT_COMPARED: Mapping[str, str] = {
    "costs": "It measures the processor time of requests, which has that of the mirror in it.",
    "full_disk": "Its models are random bytes: digests differ in any two runs.",
    "imports": "Its servers have a free port of the machine, which is in references.",
    "lists_of_unreadable_rows": "It writes rows into tables itself, of which the mirror has none.",
    "operations": "It reads the operator's metrics and checks: of all projects, of the process and of its disk.",
    "pipelines": "It stops jobs after so many writes of the process, which are those of both projects.",
    "prefetches": "It adds datasets to the catalogue itself, of which the mirror has none.",
    "project_rates": "Its answers say how much of a second is left, which differs in any two runs.",
    "provider_sign_ins": "Its provider has a free port of the machine, which is in addresses.",
    "request_guard": "It reads the operator's metrics, with the free bytes of the disk.",
    "secrets": "Its buckets have random names.",
    "sign_in_records": "Codes of its programs are random, and its operator reads what is done in all projects.",
    "sign_ins": "Attempts to sign in are counted for users and addresses of the whole platform, by the second.",
    **dict.fromkeys(NEXT, "Its part has not run as one test."),
    "transfers": "Its addresses are of a server with a free port, in a bucket with a random name, and used once.",
    "trusted_commands": "Commands ask until something ends: how often differs in any two runs.",
    "trusted_pages": "Its pages show how long runs took.",
    "usage": "It reads storage, queue and caches as who operates the platform: of all projects, and of the disk.",
    "webhooks": "Its receivers have a free port of the machine, which is in addresses.",
}
#: The least share of the mirror's requests that end with the status of the test's: it does what the test does.
ALIKE = 0.97


def files_of(names: str) -> list[str]:
    return [f"tests/api/test_{name}.py" for name in names.split()]


@dataclass(frozen=True)
class TwoRuns:
    """What the same tests recorded alone and beside a mirror."""

    alone: Mapping[str, RecordedTest]
    beside: Mapping[str, RecordedTest]

    @property
    def different(self) -> list[AnswerDifference]:
        return list(differences(self.alone, self.beside))


def two_runs(folder: Path, tests: Sequence[str], *options: str) -> TwoRuns:
    """Run tests alone and beside a mirror, at the same time."""
    files, running = {}, []
    environment = os.environ | {"PYTHONHASHSEED": "0"}  # the order of sets, in `Allow` and in lists of errors
    for mode in ("alone", "beside"):
        files[mode] = folder / f"{mode}.ndjson"
        mirror = ["-p", "tests.api.mirror_plugin", f"--mirror={mode}", f"--recording={files[mode]}"]
        command = [*nested_pytest(folder / mode), *mirror, "--hypothesis-seed=0", *options, *tests]
        command += [f"--deselect={test}" for test in UNREPEATABLE]
        running.append(
            subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True
            )
        )
    for process in running:
        said, _ = process.communicate()
        assert process.returncode in (0, 1), said[-4000:]  # 1: a test failed, of which there is a recording
    return TwoRuns(read(files["alone"]), read(files["beside"]))


@pytest.fixture(
    scope="module",
    params=[
        pytest.param(EVERY_RUN, id="part"),
        *(pytest.param(files_of(names), id=id) for id, names in WHOLE.items()),
    ],
)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TwoRuns:
    return two_runs(tmp_path_factory.mktemp("mirrors"), request.param)


def excuse(difference: AnswerDifference) -> MirrorException | None:
    return next((exception for exception in EXCEPTIONS if exception.excuses(difference)), None)


def test_every_answer_is_the_same_beside_a_project_with_the_same_things(runs: TwoRuns) -> None:
    assert [test.failure for test in runs.alone.values() if test.outcome == "failed"] == []
    assert [difference for difference in runs.different if excuse(difference) is None] == []


def test_each_file_of_the_api_is_compared_or_named_as_one_that_is_not() -> None:
    named = [*EVERY_RUN, *(file for names in [*WHOLE.values(), " ".join(NOT_COMPARED)] for file in files_of(names))]
    assert sorted(named) == sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/api/test_*.py"))


@pytest.mark.parametrize("test", UNREPEATABLE)
def test_a_test_that_is_not_compared_is_one_of_a_file_that_is(test: str) -> None:
    file, _, name = test.partition("::")
    assert f"def {name}(" in (ROOT / file).read_text()
    assert file in [*EVERY_RUN, *files_of(" ".join(WHOLE.values()))]


def test_the_mirror_does_what_the_tests_do(runs: TwoRuns) -> None:
    alike = sum(test.alike for test in runs.beside.values())
    unlike = [request for test in runs.beside.values() for request in test.unlike]
    assert alike > 5 * len(runs.beside) / 2, "most tests send requests"
    assert len(unlike) <= (1 - ALIKE) * (alike + len(unlike)), unlike
    assert sum(test.alike for test in runs.alone.values()) == 0


def test_every_exception_is_needed(runs: TwoRuns) -> None:
    different = runs.different
    wrong = [
        exception
        for exception in EXCEPTIONS
        if any(re.search(exception.test, test) for test in runs.alone)
        and not any(exception.excuses(difference) for difference in different)
    ]
    assert wrong == []


@pytest.mark.parametrize(
    ("leak", "test"),
    [
        ("positions", "tests/api/test_simulation_lists.py::test_several_states_may_be_listed"),
        ("models", "tests/api/test_models.py::test_models_are_listed_in_pages"),
    ],
)
def test_a_query_that_forgets_its_project_is_found(tmp_path: Path, leak: str, test: str) -> None:
    assert two_runs(tmp_path, [test], f"--leak={leak}").different != []
