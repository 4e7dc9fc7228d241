"""Limits of models: one source, shown by the API and the documentation."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path

import pytest

from api.schemas.catalogue import LimitsSchema
from runtimes import formats
from runtimes.harness.model_server import deadlines
from runtimes.harness.runner.processes import WorkerSpec
from runtimes.harness.sandbox import Confinement
from runtimes.limits import ModelLimits, ServerLimits, limits_of, limits_of_all

FORMATS = formats.formats()
NO_LIMITS = ServerLimits()


@pytest.mark.parametrize("name", FORMATS)
def test_the_limits_of_a_format_are_those_that_the_sandbox_and_the_evaluator_apply(name: str) -> None:
    limits = limits_of(FORMATS[name], NO_LIMITS)
    spec = WorkerSpec(dataset="", format=name, isolation="launch", sandbox=None)
    assert limits.memory == spec.model_server_memory == Confinement().memory
    assert (limits.tasks, limits.open_files) == (Confinement().processes, Confinement().files)
    assert limits.scratch == limits.largest_file == Confinement().writable_tmp_mb << 20
    assert (limits.start_time, limits.load_time, limits.reset_time) == (
        deadlines.HELLO,
        deadlines.LOAD,
        deadlines.RESET,
    )


def test_the_largest_model_is_the_least_of_the_formats_and_the_servers_limit() -> None:
    assert limits_of(FORMATS["onnx"], ServerLimits(model=10)).largest_model == 10
    assert limits_of(FORMATS["onnx"], ServerLimits(model=4 << 30)).largest_model == FORMATS["onnx"].max_size
    assert limits_of(FORMATS["python"], NO_LIMITS).largest_model is None


def test_only_a_format_that_is_unpacked_has_the_servers_limit_of_unpacked_files() -> None:
    assert limits_of(FORMATS["tflite"], ServerLimits(unpacked=5)).largest_unpacked is None
    assert limits_of(FORMATS["python"], ServerLimits(unpacked=5)).largest_unpacked == 5


def test_a_runtime_has_the_least_limits_of_its_formats() -> None:
    members = [format for format in FORMATS.values() if format.runtime == "tensorflow"]
    limits = limits_of_all(members, ServerLimits(model=4 << 30, unpacked=5))
    assert limits.largest_model == FORMATS["tflite"].max_size
    assert limits.largest_unpacked == 5


def test_the_api_describes_every_limit_and_the_page_of_the_sandbox_lists_its_value() -> None:
    names = {field.name for field in fields(ModelLimits)}
    assert set(LimitsSchema().fields) == names
    rows = {}
    for line in Path("docs/sandbox.md").read_text().splitlines():
        cells = [cell.strip() for cell in line.split("|")]
        if len(cells) > 4 and cells[3].strip("`") in names:
            rows[cells[3].strip("`")] = cells[2]
    assert set(rows) == names
    limits = limits_of(FORMATS["python"], NO_LIMITS)
    for name in ("memory", "scratch", "largest_file"):
        assert f"{getattr(limits, name) >> 20:,} MB" in rows[name]
    for name in ("start_time", "load_time", "reset_time"):
        assert f"{getattr(limits, name):g} s" in rows[name]
    for name in ("tasks", "open_files", "scratch_files"):
        assert rows[name].startswith(f"{getattr(limits, name):,}")


def test_a_server_shows_limits_without_importing_numpy() -> None:
    program = (
        "import sys; from runtimes import formats, limits;"
        "limits.limits_of_all(formats.formats().values(), limits.ServerLimits());"
        "print('numpy' in sys.modules, 'msgspec' in sys.modules)"
    )
    output = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout
    assert output.split()[0] == "False"
