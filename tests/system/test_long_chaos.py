"""Long chaos: every server and process goes away while every kind of simulation is played, and no result differs.

``CHAOS_SEEDS=3,17`` selects seeds, ``CHAOS_OUTAGE_SECONDS=180`` makes the longest outage of each run that long.
"""

import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.system.chaos import Chaos, kind_of
from tests.system.installations import INSTALLATIONS, Installation
from tests.system.platform_process import END_TIMEOUT, FINAL, has_one_result_per_task, untimed
from tests.system.submissions import SHORT, SUBMISSIONS, Client
from tests.waiting import until

SEEDS = [int(seed) for seed in os.environ.get("CHAOS_SEEDS", "0,1,2,3,4,5,6,7").split(",")]
#: Seconds of the longest outage of each run.
OUTAGE = float(os.environ.get("CHAOS_OUTAGE_SECONDS", "12"))
#: By simulation: result lines without their timing, and their digest.
Results = dict[str, tuple[list[bytes], str]]


def results_of(installation: Installation, id: str) -> tuple[list[bytes], str]:
    """Return the result lines of an ended simulation, without their timing, and their digest."""
    summary = installation.answer("GET", f"/v1/simulations/{id}/summary")
    assert summary.status_code == 200, summary.text
    return [untimed(line) for line in installation.lines(id)], str(summary.json()["results_digest"])


def wait_for_end(installation: Installation, id: str) -> dict[str, object]:
    """Wait until a simulation has ended and return it."""

    def ended() -> dict[str, object] | None:
        simulation = installation.answer("GET", f"/v1/simulations/{id}").json()
        return dict(simulation) if simulation["state"] in FINAL else None

    simulation = until(ended, END_TIMEOUT, f"{id} has not ended")
    assert simulation is not None
    return simulation


@pytest.fixture(scope="module")
def undisturbed(
    prepared_environments: None, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[[str], Results]]:
    """Function that runs every submission once without disturbances, on an installation of a kind."""
    results: dict[str, Results] = {}

    def run_all(kind: str) -> Results:
        if kind not in results:
            with INSTALLATIONS[kind](tmp_path_factory.mktemp(f"undisturbed-{kind}")) as installation:
                submits = {**SUBMISSIONS, "short": SHORT}
                clients = {name: Client(installation, name, submit, name, 0.0) for name, submit in submits.items()}
                found: Results = {}
                for name, client in clients.items():
                    client.join()
                    assert client.id is not None, (name, client.error)
                    simulation = wait_for_end(installation, client.id)
                    assert (simulation["state"], simulation["tasks"]["failed"]) == ("succeeded", 0), (  # type: ignore[index]
                        name,
                        simulation["reason"],
                    )
                    found[name] = results_of(installation, client.id)
                results[kind] = found
        return results[kind]

    yield run_all


@pytest.mark.timeout(1200 + 2 * OUTAGE)
@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("kind", INSTALLATIONS)
def test_whatever_goes_away_every_simulation_has_the_results_of_an_undisturbed_run(
    undisturbed: Callable[[str], Results], kind: str, seed: int, tmp_path: Path
) -> None:
    expected = undisturbed(kind)
    with INSTALLATIONS[kind](tmp_path) as installation:
        chaos = Chaos(installation, kind, seed, OUTAGE)
        chaos.run()
        print(chaos.describe())
        until(lambda: not installation.unready(), message=lambda: f"{installation.unready()}\n{chaos.describe()}")
        for name, progress in chaos.progress.items():
            message = f"{name}\n{chaos.describe()}"
            check_results(installation, progress.id, expected[kind_of(name)], message)


def check_results(installation: Installation, id: str, expected: tuple[list[bytes], str], message: str) -> None:
    """Check that a simulation has the expected results."""
    simulation = wait_for_end(installation, id)
    assert simulation["state"] == "succeeded", f"{simulation}\n{message}"
    results = [json.loads(line) for line in installation.lines(id)]
    assert has_one_result_per_task(results, simulation["tasks"]["total"]), message  # type: ignore[index]
    lines, digest = results_of(installation, id)
    different = [pair for pair in zip(lines, expected[0], strict=True) if pair[0] != pair[1]]
    if different:
        log = installation.answer("GET", f"/v1/simulations/{id}/logs", params={"raw": "true"}).text
        judged = "\n".join(line for line in log.splitlines() if "deadline: " in line)
        raise AssertionError(f"{different[:3]} and {len(different)} pairs in all\n{judged}\n{message}")
    assert digest == expected[1], message
