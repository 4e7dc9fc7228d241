"""Examples of packaged simulators, as a user's own cases: each has a result that is known in another way."""

import itertools
from collections.abc import Iterator
from math import pi
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.archives import zipped
from tests.system.platform_process import PlatformProcess
from tests.system.test_packaged_datasets import results

EXAMPLES = Path("examples/packages")


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    settings = {"DEBIAN_PACKAGES": "ngspice,openfoam,gromacs,sumo,gnuplot-nox"}
    platform = PlatformProcess(tmp_path_factory.mktemp("examples") / "home", settings=settings)
    try:
        yield platform.start()
    finally:
        platform.stop()


def played(platform: PlatformProcess, name: str, picture: str, **fields: object) -> list[dict[str, Any]]:
    """Play an example; return its results, each of which has left a picture that pages show."""
    folder = EXAMPLES / name
    case = zipped({str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()})
    found = results(platform, runtime="package", model=case, dataset="program", **fields)
    (newest,) = platform.http.get("/v1/simulations", params={"limit": 1}).json()["items"]
    for result in found:
        assert result["status"] == "ok", result["error"]
        assert [artifact["name"] for artifact in result["artifacts"]] == [picture]
        shown = platform.http.get(f"/v1/simulations/{newest['id']}/tasks/{result['task']}/pictures/{picture}")
        assert shown.status_code == 200, shown.text
    return found


def test_a_low_pass_rises_in_its_time_constant_and_lets_its_frequencies_through(platform: PlatformProcess) -> None:
    sweep = {"resistance": [1000, 4700], "capacitance": [1e-7, 2.2e-8]}
    for result in played(platform, "ngspice", "step.svg", sweep=sweep):
        constant = result["scenario"]["params"]["resistance"] * result["scenario"]["params"]["capacitance"]
        assert result["metrics"]["rise"] == pytest.approx(constant, rel=1e-3)
        assert result["metrics"]["cutoff"] == pytest.approx(1 / (2 * pi * constant), rel=1e-3)


#: Lowest velocity along the vertical centre line, and its height, by the viscosity: Ghia et al. (1982), table I.
GHIA = {0.01: (-0.21090, 0.4531), 0.0025: (-0.32726, 0.2813)}


def test_a_flow_in_a_cavity_has_the_velocities_of_a_published_one(platform: PlatformProcess) -> None:
    found = played(platform, "openfoam", "cavity.png", params={"cells": 80}, sweep={"viscosity": list(GHIA)})
    for result in found:
        lowest, height = GHIA[result["scenario"]["params"]["viscosity"]]
        assert result["metrics"]["lowest_u"] == pytest.approx(lowest, rel=0.02)
        assert result["metrics"]["at_y"] == pytest.approx(height, abs=0.0125)


def energy_of_lattice() -> float:
    """Return the potential energy of an atom of the example's argon on its lattice in kJ/mol, by all its neighbours.

    Of Lennard-Jones atoms, shifted to 0 at the cutoff of 2.5 sigma.
    """
    edge = (4 / 0.8442) ** (1 / 3)
    cells = np.array(list(itertools.product(range(-3, 4), repeat=3)))
    basis = np.array([(0, 0, 0), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)])
    squares = (((cells[:, None] + basis).reshape(-1, 3) * edge) ** 2).sum(1)
    sixth = squares[(squares > 0) & (squares < 2.5**2)] ** -3.0
    return float(0.99774 * (4 * (sixth**2 - sixth) - 4 * (2.5**-12 - 2.5**-6)).sum() / 2)


def test_argon_has_the_energy_of_its_lattice_and_keeps_its_energy(platform: PlatformProcess) -> None:
    parameters = {"cells": 5, "steps": 2000, "velocities": 7}
    found = played(platform, "gromacs", "energies.svg", params=parameters, sweep={"temperature": [100, 200]})
    for result in found:
        metrics, temperature = result["metrics"], result["scenario"]["params"]["temperature"]
        assert metrics["atoms"] == 500
        assert metrics["potential"] == pytest.approx(energy_of_lattice(), rel=1e-4)
        assert metrics["start"] == pytest.approx(temperature, rel=5e-3)
        assert abs(metrics["drift"]) < 2e-3
        # The lattice takes up about half of the energy of the velocities.
        assert metrics["temperature"] == pytest.approx(temperature / 2, rel=0.2)


def test_vehicles_leave_a_slow_road_as_often_as_its_speed_lets_them(platform: PlatformProcess) -> None:
    found = played(platform, "sumo", "ways.svg", sweep={"limit": [5, 10, 20], "period": [2, 4]})
    for result in found:
        limit, period = (result["scenario"]["params"][name] for name in ("limit", "period"))
        # A vehicle of 5 m and the gap of 2.5 m pass at the limit, and each driver is one second behind.
        queued = 1 + (5 + 2.5) / limit
        assert result["metrics"]["vehicles"] == 60
        assert result["metrics"]["headway"] == pytest.approx(max(period, queued), rel=5e-3)
        if period > 1.5 * queued:  # nobody waits, and each brakes before the slow part
            assert result["metrics"]["travel_time"] == pytest.approx(1500 / 25 + 495 / limit, rel=0.03)
