"""The suite of the API beside a second project that does the same first: every answer is, byte for byte, the same.

The suite runs twice, in processes of their own: alone, and with a mirror that makes each request of each test first, in
its own project, with the same names, contents, labels and keys (tests/mirror_requests.py).
"""

import re
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.mirror_answers import AnswerDifference, MirrorException, RecordedTest, differences, read
from tests.mirror_exceptions import EXCEPTIONS
from tests.nested_pytest import nested_pytest

ROOT = Path(__file__).parents[2]
#: Files with a bit of each kind of thing: names, digests, quotas, positions, keys, search, shares, leaderboards.
EVERY_RUN = [f"tests/api/{name}.py" for name in ("test_neighbours", "test_models", "test_simulation_lists")]
#: Files that are compared besides.
MORE = [
    f"tests/api/{name}.py"
    for name in (
        *("test_audit", "test_leaderboards", "test_model_tags", "test_project_quotas", "test_project_usage"),
        *("test_shares", "test_simulations"),
    )
]
#: Files that are not compared yet, by the part of their name after `test_`: nobody has read what differs there.
NOT_COMPARED = """
    access allow_lists answers artifacts binned_things bulk bundles byte_ranges catalogue comparison_lists
    comparisons compat connected_projects costs datasets distributions events executors foreign_things
    full_disk gang_submissions imports launch_waiters limited_tokens lists_of_unreadable_rows
    model_comparisons model_formats openapi_document operations pipelines prefetches problems project_ends
    project_rates provenance_version provider_sign_ins refused_documents report_headers request_guard results
    run_logging secrets sensitivities session sign_ins simulation_outputs size_limits staging_retries
    submission_routes sweeps task_pictures transfers trusted_commands trusted_pages trusted_runs uploads usage
    webhooks estimates open_streams sign_in_records
""".split()
#: The least share of the mirror's requests that end with the status of the test's: it does what the test does.
ALIKE = 0.97


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
    for mode in ("alone", "beside"):
        files[mode] = folder / f"{mode}.ndjson"
        mirror = ["-p", "tests.api.mirror_plugin", f"--mirror={mode}", f"--recording={files[mode]}", *options]
        command = [*nested_pytest(folder / mode), *mirror, *tests]
        running.append(subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True))
    for process in running:
        said, _ = process.communicate()
        assert process.returncode in (0, 1), said[-4000:]  # 1: a test failed, of which there is a recording
    return TwoRuns(read(files["alone"]), read(files["beside"]))


@pytest.fixture(
    scope="module", params=[pytest.param(EVERY_RUN, id="part"), pytest.param([*EVERY_RUN, *MORE], id="whole")]
)
def runs(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> TwoRuns:
    return two_runs(tmp_path_factory.mktemp("mirrors"), request.param)


def excuse(difference: AnswerDifference) -> MirrorException | None:
    return next((exception for exception in EXCEPTIONS if exception.excuses(difference)), None)


def test_every_answer_is_the_same_beside_a_project_with_the_same_things(runs: TwoRuns) -> None:
    assert [test.failure for test in runs.alone.values() if test.outcome == "failed"] == []
    assert [difference for difference in runs.different if excuse(difference) is None] == []


def test_each_file_of_the_api_is_compared_or_named_as_one_that_is_not() -> None:
    named = [*EVERY_RUN, *MORE, *(f"tests/api/test_{name}.py" for name in NOT_COMPARED)]
    assert sorted(named) == sorted(str(path.relative_to(ROOT)) for path in ROOT.glob("tests/api/test_*.py"))


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
