"""Shared libraries as models: built from C, run in the sandbox; faults of the file and of its functions are named."""

import io
import json
import struct
import subprocess
import zipfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from common.errors import UnknownFormat
from runtimes.formats import detect
from runtimes.harness.models.native import FUNCTIONS
from runtimes.harness.sandbox import level
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of, worker_spec

HEADER = Path("runtimes/native")
#: A model of noop in C: what a test changes is a macro.
SOURCE = """
#include <stdlib.h>
#include "windtunnel_model.h"
#ifndef ACT
#define ACT for (size_t i = 0; i < m; i++) action[i] = 2 * observation[i] + 1; return 0;
#endif
#ifndef CREATE
#define CREATE return calloc(1, sizeof(uint64_t));
#endif
static int calls;
void *windtunnel_create(const char *description) { (void)description; CREATE }
void windtunnel_reset(void *model, uint64_t seed) { *(uint64_t *)model = seed; }
#ifndef NO_ACT
int windtunnel_act(void *model, const double *observation, size_t n, double *action, size_t m) {
    (void)model; (void)n; calls++; ACT
}
#endif
#ifdef TEXT
const char *windtunnel_error(void *model) { return model ? TEXT : "no such " TEXT; }
#endif
"""
PYTHON = """
class Model:
    def act(self, observation):
        return 2.0 * observation + 1.0
"""


def library(folder: Path, *arguments: str, source: str = SOURCE, **macros: str) -> bytes:
    """Build a shared library."""
    file, output = folder / "source.c", folder / "policy.so"
    file.write_text(source)
    defined = [f"-D{name}={text}" for name, text in macros.items()]
    warnings = ["-Wall", "-Werror", "-Wno-unused"]
    command = [
        "cc",
        "-shared",
        "-fPIC",
        *warnings,
        *defined,
        "-I",
        str(HEADER),
        "-o",
        str(output),
        str(file),
        *arguments,
    ]
    subprocess.run(command, check=True)
    return output.read_bytes()


def spec(format: str = "native") -> Any:
    return worker_spec(format=format, isolation="scenario", sandbox=level().number)


def play(**changes: Any) -> dict[str, Any]:
    return play_of(isolation="scenario", **changes)


def refusal(model: bytes) -> str:
    return refusal_of(spec(), model, play())


def results_of(model: bytes, format: str = "native", **changes: Any) -> list[dict[str, Any]]:
    with evaluator_pair(spec(format), model, play(**changes)) as pair:
        return [result | {"timing": None} for result in pair.run(0, 8)]


def test_a_library_has_the_results_of_the_same_policy_in_python(tmp_path: Path) -> None:
    assert results_of(library(tmp_path)) == results_of(PYTHON.encode(), "python")


@pytest.mark.parametrize("batch", [1, 3])
def test_the_results_are_the_same_in_every_run_and_order_of_tasks(tmp_path: Path, batch: int) -> None:
    counts = "for (size_t i = 0; i < m; i++) action[i] = observation[i] + calls + *(uint64_t *)model % 7; return 0;"
    model = library(tmp_path, ACT=counts)
    changes: dict[str, Any] = {"params": {"batch": batch}} if batch > 1 else {}
    first = results_of(model, **changes)
    with evaluator_pair(spec(), model, play(**changes)) as pair:
        later = [result | {"timing": None} for part in ((6, 9), (3, 6), (0, 3)) for result in pair.run(*part)]
    by_task = {result["task"]: result for result in later}
    assert first[:6] == [by_task[task] for task in range(6)]


def test_a_trusted_library_has_new_variables_in_each_scenario(tmp_path: Path) -> None:
    counts = "for (size_t i = 0; i < m; i++) action[i] = observation[i] + calls; return 0;"
    model = library(tmp_path, ACT=counts)
    with evaluator_pair(replace(spec(), trusted=True), model, play(trusted=True)) as pair:
        trusted = [result | {"timing": None} for result in pair.run(0, 8)]
    assert trusted == results_of(model)


def test_a_zip_has_a_library_and_the_libraries_and_data_beside_it(tmp_path: Path) -> None:
    part = library(tmp_path, source="double twice(double value) { return 2 * value; }")
    (tmp_path / "libtwice.so").write_bytes(part)
    source = SOURCE.replace("static int calls;", "double twice(double value);\nstatic int calls;")
    act = "for (size_t i = 0; i < m; i++) action[i] = twice(observation[i]) + 1; return 0;"
    linked = ["-L", str(tmp_path), "-ltwice", "-Wl,-rpath,$ORIGIN/lib"]
    whole = library(tmp_path, *linked, source=source, ACT=act)
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("model.so", whole)
        archive.writestr("lib/libtwice.so", part)
    assert results_of(packed.getvalue()) == results_of(PYTHON.encode(), "python")
    assert "cannot be loaded: libtwice.so: cannot open shared object file" in refusal(whole)


#: Answers its description as the reason why it cannot be created, if it can read a file of its folder.
DESCRIBED = """
#define _GNU_SOURCE
#include <stdio.h>
#include <string.h>
#include "windtunnel_model.h"
static char *seen;
void *windtunnel_create(const char *description) {
    char path[4096];
    const char *folder = strstr(description, "\\"folder\\": \\"") + 11;
    snprintf(path, sizeof path, "%.*s/model.so", (int)strcspn(folder, "\\""), folder);
    seen = strdup(fopen(path, "r") ? description : "the folder is not readable");
    return 0;
}
void windtunnel_reset(void *model, uint64_t seed) { (void)model; (void)seed; }
int windtunnel_act(void *model, const double *o, size_t n, double *a, size_t m) { return model && o && n && a && m; }
const char *windtunnel_error(void *model) { return model ? 0 : seen; }
"""


def test_a_library_gets_the_spaces_the_parameters_and_its_readable_folder(tmp_path: Path) -> None:
    reason = refusal(library(tmp_path, source=DESCRIBED))
    description = json.loads(reason.partition("returned NULL: ")[2])
    assert set(description) == {"version", "folder", "params", "observation", "action"}
    assert description["version"] == 1 and description["action"]["shape"] == [4]
    assert set(description["action"]) == {"dtype", "shape", "names", "units", "low", "high"}


@pytest.mark.parametrize(
    ("macros", "reason"),
    [
        ({"NO_ACT": "1"}, "the library does not export windtunnel_act of `windtunnel_model.h`"),
        ({"CREATE": "return 0;"}, "windtunnel_create returned NULL"),
        ({"CREATE": "return 0;", "TEXT": '"weights"'}, "windtunnel_create returned NULL: no such weights"),
    ],
)
def test_a_library_that_cannot_be_used_is_refused_with_the_reason(
    macros: dict[str, str], reason: str, tmp_path: Path
) -> None:
    assert reason in refusal(library(tmp_path, **macros))


def test_a_library_with_an_undefined_symbol_or_for_another_machine_is_refused_by_name(tmp_path: Path) -> None:
    source = SOURCE.replace("static int calls;", "double nowhere(double);\nstatic int calls;")
    undefined = library(tmp_path, source=source, ACT="action[0] = nowhere(m); return 0;")
    assert "cannot be loaded: undefined symbol: nowhere" in refusal(undefined)
    foreign = bytearray(library(tmp_path))
    foreign[18:20] = struct.pack("<H", 243)
    assert "the library is for RISC-V, and this machine is" in refusal(bytes(foreign))
    assert detect_bytes(tmp_path, bytes(foreign)) == "native"


@pytest.mark.parametrize(
    ("macros", "status", "text"),
    [
        ({"ACT": "return 7;"}, "failed", "CallFailed: windtunnel_act returned 7"),
        ({"ACT": "return -2;", "TEXT": '"no route"'}, "failed", "windtunnel_act returned -2: no route"),
        ({"ACT": "action[0] = 1; (void)m; return 0;"}, "invalid", "the action is not finite: [1.0, nan"),
        ({"ACT": "for (size_t i = 0; i < m; i++) action[i] = 1e300; return 0;"}, "invalid", "not finite: [inf"),
        (
            {"ACT": "action[0] = *(volatile double *)0; return 0;"},
            "crashed",
            "killed by SIGSEGV: a fault of machine code",
        ),
        ({"ACT": "abort();"}, "crashed", "killed by SIGABRT"),
        ({"ACT": "exit(3);"}, "crashed", "it exited with code 3"),
    ],
)
def test_a_fault_of_a_function_is_the_result_of_its_task(
    macros: dict[str, str], status: str, text: str, tmp_path: Path
) -> None:
    with evaluator_pair(spec(), library(tmp_path, **macros), play()) as pair:
        results = pair.run(0, 2)
    assert [result["status"] for result in results] == [status] * 2
    assert text in results[0]["error"]


def detect_bytes(folder: Path, content: bytes, name: str = "model") -> str:
    path = folder / "sent"
    path.write_bytes(content)
    return detect(path, name)


def test_a_library_is_recognised_by_its_header_and_a_program_is_not(tmp_path: Path) -> None:
    assert detect_bytes(tmp_path, library(tmp_path)) == "native"
    assert detect_bytes(tmp_path, Path("/bin/true").read_bytes(), "policy.so") == "program"
    with pytest.raises(UnknownFormat, match="The file is not a shared library for Linux"):
        detect_bytes(tmp_path, b"\x01\x02\x03\x04" * 100, "policy.so")


def test_a_static_program_that_looks_like_a_library_is_refused_with_the_format_to_name(tmp_path: Path) -> None:
    (tmp_path / "source.c").write_text("int main(void) { return 0; }")
    program = tmp_path / "policy"
    subprocess.run(["cc", "-static-pie", "-o", str(program), str(tmp_path / "source.c")], check=True)
    assert detect(program, "policy") == "native"
    assert "If it is a program, say `format`: `program`" in refusal(program.read_bytes())


def test_the_header_declares_the_functions_that_are_called() -> None:
    text = (HEADER / "windtunnel_model.h").read_text()
    assert all(f"{name}(" in text for name in FUNCTIONS)
