"""Packaged datasets: LAMMPS and CalculiX from Debian's packages, against results that are computed in another way."""

import itertools
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

from tests.archives import zipped
from tests.browser import browser as browser
from tests.browser import context as context
from tests.browser import keep_picture
from tests.browser import page as page
from tests.browser import page_errors as page_errors
from tests.browser import pytest_runtest_makereport as pytest_runtest_makereport
from tests.system.platform_process import PlatformProcess
from tests.waiting import until

PATIENCE = 600.0
CELLS, DENSITY, STEPS = 4, 0.8442, 2000


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    settings = {"DEBIAN_PACKAGES": "ngspice"}
    platform = PlatformProcess(tmp_path_factory.mktemp("packages") / "home", settings=settings)
    try:
        yield platform.start()
    finally:
        platform.stop()


def results(platform: PlatformProcess, **fields: object) -> list[dict[str, Any]]:
    """Submit a simulation, and return its results once it has ended."""
    files = {name: (f"{name}.zip", value) for name, value in fields.items() if isinstance(value, bytes)}
    data = {
        name: value if isinstance(value, str) else json.dumps(value)
        for name, value in fields.items()
        if name not in files
    }
    parts: dict[str, Any] = {**{name: (None, value) for name, value in data.items()}, **files}
    answer = platform.http.post("/v1/simulations", files=parts)
    assert answer.status_code == 201, answer.text
    path = f"/v1/simulations/{answer.json()['id']}"

    def state() -> dict[str, Any]:
        document: dict[str, Any] = platform.http.get(path).json()
        assert document["state"] not in {"failed", "errored"}, document["reason"]
        return document

    until(lambda: state()["state"] == "succeeded", PATIENCE, lambda: str(state()["reason"]))
    return [json.loads(line) for line in platform.http.get(f"{path}/results").text.splitlines() if line]


def lattice() -> tuple[np.ndarray, float]:
    """Return the positions of a face-centred cubic lattice, and the edge of its box."""
    edge = (4 / DENSITY) ** (1 / 3)
    basis = np.array([(0, 0, 0), (0.5, 0.5, 0), (0.5, 0, 0.5), (0, 0.5, 0.5)])
    cells = np.array(list(itertools.product(range(CELLS), repeat=3)))
    return ((cells[:, None] + basis).reshape(-1, 3) * edge), edge * CELLS


def forces(positions: np.ndarray, box: float) -> tuple[np.ndarray, float, float]:
    """Return forces, potential energy and virial of Lennard-Jones atoms, cut at 2.5, by all pairs."""
    apart = positions[:, None] - positions
    apart -= box * np.rint(apart / box)
    squares = (apart**2).sum(-1)
    np.fill_diagonal(squares, np.inf)
    inverse = np.where(squares < 2.5**2, 1 / squares, 0.0)
    sixth = inverse**3
    strength = 24 * inverse * (2 * sixth**2 - sixth)
    finite = np.where(np.isfinite(squares), squares, 0.0)
    return (
        (strength[..., None] * apart).sum(1),
        float(4 * (sixth**2 - sixth).sum() / 2),
        float((strength * finite).sum() / 2),
    )


def melt(temperature: float, seed: int) -> dict[str, float]:
    """Simulate the melt by all pairs and velocity Verlet, with velocities of its own."""
    positions, box = lattice()
    atoms = len(positions)
    velocities = np.random.default_rng(seed).normal(size=positions.shape)
    velocities -= velocities.mean(0)
    velocities *= np.sqrt(3 * (atoms - 1) * temperature / (velocities**2).sum())
    force, _, _ = forces(positions, box)
    samples = []
    for step in range(STEPS):
        velocities += 0.0025 * force
        positions = positions + 0.005 * velocities
        force, potential, virial = forces(positions, box)
        velocities += 0.0025 * force
        if step >= STEPS // 2 and step % 10 == 0:
            now = (velocities**2).sum() / (3 * (atoms - 1))
            samples.append((now, (atoms * now + virial / 3) / box**3, potential / atoms))
    mean = np.mean(samples, 0)
    return {"temperature": mean[0], "pressure": mean[1], "potential_energy": mean[2]}


def test_a_melt_has_the_energy_of_its_lattice_and_the_state_that_another_program_finds(
    platform: PlatformProcess,
) -> None:
    parameters = {"cells": CELLS, "steps": STEPS}
    found = results(platform, dataset="lammps_melt", params=parameters, sweep={"temperature": [2.0, 3.0]})
    positions, box = lattice()
    atoms = len(positions)
    _, potential, _ = forces(positions, box)
    for temperature, result in zip((2.0, 3.0), found, strict=True):
        assert result["status"] == "ok", result["error"]
        metrics = result["metrics"]
        energy = potential / atoms + 1.5 * temperature * (atoms - 1) / atoms
        assert metrics["atoms"] == atoms
        assert metrics["energy"] - metrics["energy_drift"] == pytest.approx(energy, abs=1e-4)
        assert abs(metrics["energy_drift"]) < 0.02
        reference = melt(temperature, 5)
        assert metrics["temperature"] == pytest.approx(reference["temperature"], rel=0.04)
        assert metrics["potential_energy"] == pytest.approx(reference["potential_energy"], rel=0.01)
        assert metrics["pressure"] == pytest.approx(reference["pressure"], rel=0.08)
        assert len(result["timing"]["ranks"]) == 2
        assert all(rank["computing"] > 0 for rank in result["timing"]["ranks"])
        assert all(rank["waiting"] > 0 and rank["sent"] > 0 for rank in result["timing"]["ranks"])


def test_a_melt_has_the_same_energy_on_one_two_and_four_ranks(platform: PlatformProcess) -> None:
    energies = []
    for ranks in (1, 2, 4):
        (result,) = results(platform, dataset="lammps_melt", params={"steps": 200}, gang={"size": ranks})
        assert len(result["timing"]["ranks"]) == ranks
        energies.append(result["metrics"]["energy"])
    assert energies == pytest.approx([energies[0]] * 3, abs=1e-4)


def test_a_cantilever_bends_as_beam_theory_says(platform: PlatformProcess) -> None:
    found = results(platform, dataset="cantilever", sweep={"thickness": [2.0, 5.0, 10.0], "load": [50.0, 100.0]})
    assert len(found) == 6
    for result in found:
        assert result["status"] == "ok", result["error"]
        thickness, load = (result["scenario"]["params"][name] for name in ("thickness", "load"))
        bending = load * 100**3 / (3 * 210_000 * 10 * thickness**3 / 12)
        shear = 1.2 * load * 100 / (105_000 * 10 * thickness)
        assert result["metrics"]["deflection"] == pytest.approx(bending + shear, rel=2e-3)
        assert result["metrics"]["reaction"] == pytest.approx(load)
        assert [artifact["name"] for artifact in result["artifacts"]] == ["beam.frd", "beam.svg"]


def test_what_simulators_compute_is_seen_side_by_side_over_a_sweep(page: Page, platform: PlatformProcess) -> None:
    sweeps = {
        "cantilever": ("beam.svg", {"thickness": [2.0, 3.0, 4.0, 5.0], "load": [60.0, 120.0]}, {}),
        "lammps_melt": ("melt.png", {"temperature": [0.5, 3.0, 8.0]}, {"steps": 400, "cells": 6}),
    }
    for dataset, (picture, sweep, params) in sweeps.items():
        found = results(platform, dataset=dataset, sweep=sweep, params=params)
        (newest,) = platform.http.get("/v1/simulations", params={"limit": 1}).json()["items"]
        page.goto(f"{platform.url}/simulations/{newest['id']}")
        grid = page.get_by_role("region", name=f"{picture} of {len(found)} tasks")
        expect(grid.get_by_role("img")).to_have_count(len(found))
        for image in grid.get_by_role("img").all():
            image.scroll_into_view_if_needed()
            until(lambda image=image: image.evaluate("image => image.complete && image.naturalWidth > 100"))
        grid.get_by_role("heading").scroll_into_view_if_needed()
        keep_picture(page, dataset)
        grid.get_by_role("link").last.click()
        shown = page.get_by_role("region", name="Pictures").get_by_role("img")
        until(lambda shown=shown: shown.evaluate("image => image.complete && image.naturalWidth > 100"))
        keep_picture(page, f"{dataset}-task")


def test_a_simulator_of_ones_own_case_is_resolved_from_the_signed_index(platform: PlatformProcess) -> None:
    text = Path("docs/packages.md").read_text()
    manifest = text[text.index("<<'END'\n{") + 8 : text.index("END\ncat > divider.cir")]
    circuit = text[text.index("divider.cir <<'END'\n") + 20 : text.index("END\nzip")]
    case = zipped({"package.json": manifest.encode(), "divider.cir": circuit.encode()})
    found = results(platform, runtime="package", model=case, dataset="program", sweep={"volts": [1, 2, 5]})
    assert [result["metrics"]["volts"] for result in found] == [0.5, 1.0, 2.5]


def test_packages_that_the_operator_does_not_allow_are_refused(platform: PlatformProcess) -> None:
    case = zipped({"package.json": b'{"packages": ["nmap"], "command": ["nmap"]}'})
    answer = platform.http.post(
        "/v1/simulations", files={"runtime": (None, "package"), "dataset": (None, "program"), "model": ("c.zip", case)}
    )
    path = f"/v1/simulations/{answer.json()['id']}"
    until(lambda: platform.http.get(path).json()["state"] == "failed", PATIENCE)
    assert "WINDTUNNEL_DEBIAN_PACKAGES" in platform.http.get(path).json()["reason"]
