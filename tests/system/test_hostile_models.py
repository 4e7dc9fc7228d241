"""Hostile models: each scenario in which a model misbehaves has a named, final result; other scenarios continue."""

import re
import stat
import zipfile
from collections.abc import Callable, Mapping
from io import BytesIO
from typing import Any

import pytest

from tests.system.platform_process import MODELS, PlatformProcess, has_one_result_per_task
from tests.waiting import until

#: Hostile models: name, and the status and a part of the error of the scenarios that trigger the misbehaviour.
HOSTILE_MODELS = [
    ("hangs", "timed_out", ""),
    ("returns_after_the_deadline", "timed_out", ""),
    ("returns_a_slow_number", "timed_out", ""),
    ("exits", "crashed", "ended: it exited with code 0: the model or one of its libraries"),
    ("exits_with_the_code_of_success", "crashed", "ended: it exited with code 94"),
    ("kills_itself", "crashed", "ended: killed by SIG"),  # SIGSYS, unless one process serves all scenarios
    ("kills_every_process", "crashed", "ended: killed by SIG"),
    ("segfaults", "crashed", "ended: killed by SIGSEGV: a fault of machine code"),
    ("closes_every_descriptor", "crashed", "the model's process ended"),
    ("calls_sys_exit", "failed", "SystemExit: I quit"),
    ("raises", "failed", "ValueError: not this street (model.py, line 11)"),
    ("recurses", "failed", "a recursion after 1,000 calls"),
    ("allocates_all_memory", "failed", "at most 4,096 MB of memory"),
    ("fills_the_disk", "failed", "A file that a model writes has at most 64 MB"),
    ("fills_the_folder", "failed", "The writable folder has 64 MB and 1,000 files"),
    ("forks", "failed", "A model starts no programs and no processes"),
    ("starts_a_program", "failed", "A model starts no programs and no processes"),
    ("opens_a_connection", "failed", "A model has no network and no sockets"),
    ("downloads_a_file", "failed", "A model has no network and no sockets"),
    ("opens_many_files", "failed", "A model has at most 64 open files"),
    ("loads_a_library_that_it_wrote", "failed", "are not run or mapped as code"),
    ("calls_another_abi", "crashed", "ended: killed by SIGSYS: a system call that the sandbox does not allow"),
    ("imports_a_missing_module_later", "failed", '# dependencies = ["nothing_of_this_name"]'),
    ("reads_host_files", "failed", "A model of one file has no files beside it"),
    ("starts_many_threads", "failed", "at most 64 threads and processes together"),
    ("writes_to_every_descriptor", "invalid", ""),
    ("writes_to_every_descriptor_later", "invalid", ""),
    ("sends_a_frame_of_gigabytes", "invalid", ""),
    ("returns_nan", "invalid", "not finite"),
    ("returns_infinity", "invalid", "not finite"),
    ("returns_too_many_numbers", "invalid", "an array of shape"),
    ("returns_text", "invalid", ""),
    ("returns_none", "invalid", ""),
    ("returns_a_recursive_list", "invalid", ""),
]
#: The speed limit on the ramp is above the trigger of these models; on the grid it is below.
GRID, RAMP = range(0, 3), range(144, 192, 16)
MACHINE_DETAILS = re.compile(r"/(?!v1/)\w+/\w+|0x[0-9a-f]{6}|\bpid \d")


@pytest.mark.parametrize(("name", "status", "message"), HOSTILE_MODELS, ids=[row[0] for row in HOSTILE_MODELS])
def test_a_failure_in_a_street_has_a_named_result_and_other_scenarios_continue(
    platform: PlatformProcess, name: str, status: str, message: str
) -> None:
    tasks = [*GRID, *RAMP]
    ended = platform.run(model=MODELS / f"{name}.py", dataset="car_street", scenarios={"tasks": tasks}, workers=2)
    results = platform.results(ended["id"])
    assert ended["state"] == "succeeded", ended["reason"]
    assert has_one_result_per_task(results, len(tasks))
    assert {result["scenario"]["street"] for result in results[3:]} == {"ramp_merge"}
    assert [(result["status"], result["error"]) for result in results[:3]] == [("ok", None)] * 3
    assert {result["status"] for result in results[3:]} == {status}
    for result in results[3:]:
        assert message in result["error"]
        assert not MACHINE_DETAILS.search(result["error"]), (
            "the error contains a path, address or process id of this machine"
        )
        assert result["metrics"]["score"] == 0
        assert result["metrics"]["outcome"] not in {"arrived", None}
    summary = platform.summary(ended["id"])
    assert list(summary["statuses"].items()) == [(status, 3), ("ok", 3)]  # failures first
    assert summary["metrics"]["score"]["mean_penalised"] == pytest.approx(summary["metrics"]["score"]["mean_ok"] / 2)


@pytest.mark.parametrize(("name", "status", "message"), HOSTILE_MODELS, ids=[row[0] for row in HOSTILE_MODELS])
def test_in_a_shared_process_the_tasks_after_a_failure_are_run(
    platform: PlatformProcess, name: str, status: str, message: str
) -> None:
    if name == "writes_to_every_descriptor_later":
        # its thread may disturb a later task of the same process, which is the model's own fault
        total, max_failures = 8, 8
    else:
        total, max_failures = 8, 4
    ended = platform.run(model=MODELS / f"{name}.py", dataset="noop", scenarios={"range": [0, total]})
    results = platform.results(ended["id"])
    assert ended["state"] == "succeeded", ended["reason"]
    assert has_one_result_per_task(results, total)
    failures = [result for result in results if result["status"] != "ok"]
    assert 0 < len(failures) <= max_failures
    assert {result["status"] for result in failures} == {status}
    assert all(message in result["error"] for result in failures)


def test_excess_output_is_dropped_and_the_log_says_so(platform: PlatformProcess) -> None:
    ended = platform.run(model=MODELS / "prints_megabytes.py", dataset="noop", scenarios={"range": [0, 6]})
    assert ended["state"] == "succeeded"
    assert has_one_result_per_task(platform.results(ended["id"]), 6)
    logs = platform.http.get(f"/v1/simulations/{ended['id']}/logs", params={"raw": "true"}).content
    assert b"all work and no play" in logs
    assert b"left out" in logs
    assert len(logs) < 3 << 20


#: Models that do not load: name, and a part of the reason.
INVALID_MODELS = [
    ("imports_a_missing_module", "(docs/dependencies.md#declaring-them):\n# /// script"),
    ("allocates_all_memory_at_import", "at most 4,096 MB of memory"),
    ("has_no_model", "no class `Model` (its classes: Driver)"),
    ("has_no_act_method", "no method `act(self, observation)`"),
    ("raises_in_constructor", "no weights found"),
    ("exits_at_import", "it exited with code 3: the model or one of its libraries ended the process"),
]


@pytest.mark.parametrize(("name", "message"), INVALID_MODELS, ids=[row[0] for row in INVALID_MODELS])
def test_a_model_that_does_not_load_fails_at_once_with_the_reason(
    platform: PlatformProcess, name: str, message: str
) -> None:
    ended = platform.run(model=MODELS / f"{name}.py", dataset="car_street")
    assert (ended["state"], ended["tasks"]["done"]) == ("failed", 0)
    assert ended["reason"]
    assert message in ended["reason"]
    assert not MACHINE_DETAILS.search(ended["reason"])


@pytest.mark.parametrize("text", ["class Model:\n    def act(self) return 1\n", "class Model:\n\tpass\n    pass\n"])
def test_a_model_with_a_syntax_error_fails_with_its_line(platform: PlatformProcess, text: str) -> None:
    ended = platform.run(model=text.encode(), dataset="noop", scenarios={"range": [0, 5]})
    assert ended["state"] == "failed"
    assert re.search(r"not valid Python in line \d", ended["reason"])


def test_a_model_that_never_finishes_loading_can_be_cancelled(platform: PlatformProcess) -> None:
    id = platform.submit(model=MODELS / "hangs_at_import.py", dataset="noop", scenarios={"range": [0, 5]})["id"]
    until(lambda: platform.get(id)["state"] == "launching", message="the simulation is not launched")
    platform.http.post(f"/v1/simulations/{id}/cancel")
    assert platform.wait_for_end(id, 15.0)["state"] == "cancelled"


# -- zips


def zipped(*entries: tuple[str | zipfile.ZipInfo, bytes]) -> bytes:
    """Return a zip of entries."""
    buffer = BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, data in entries:
            archive.writestr(name, data)
    return buffer.getvalue()


def link(name: str, target: str) -> tuple[zipfile.ZipInfo, bytes]:
    """Return the zip entry of a symbolic link."""
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, target.encode()


ECHO = (MODELS / "echo.py").read_bytes()
#: Functions that make the zips, called by the test: the bomb takes seconds.
ZIPS: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "empty": (lambda: zipped(), ""),
    "climbing_out": (lambda: zipped(("model.py", ECHO), ("../../etc/cron.d/x", b"x")), "out of its folder"),
    "absolute": (lambda: zipped(("model.py", ECHO), ("/etc/cron.d/x", b"x")), "out of its folder"),
    "backslash": (lambda: zipped(("model.py", ECHO), ("..\\x", b"x")), ""),
    "a_link": (lambda: zipped(("model.py", ECHO), link("weights", "/etc/passwd")), "is a link"),
    "a_linked_model": (lambda: zipped(link("model.py", "/etc/passwd")), "is a link"),
    "a_bomb": (
        lambda: zipped(("model.py", ECHO), *((f"weights-{n}", bytes(100 << 20)) for n in range(3))),
        "unpacks to more",
    ),
    "twice_the_same": (lambda: zipped(("model.py", ECHO), ("./model.py", ECHO)), ""),
    "cut_off": (lambda: zipped(("model.py", ECHO))[:-30], ""),
    "without_model": (lambda: zipped(("driver.py", ECHO)), "model.py"),
}


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize("kind", ZIPS)
def test_a_hostile_zip_is_refused_with_the_reason(platform: PlatformProcess, kind: str) -> None:
    make_zip, message = ZIPS[kind]
    response = platform.post(
        model=make_zip(), filename="model.zip", runtime="python", dataset="noop", scenarios={"range": [0, 3]}
    )
    reason: Any
    if response.status_code == 422:
        reason = response.json()["detail"]
    else:
        assert response.status_code == 201
        ended = platform.wait_for_end(response.json()["id"])
        assert (ended["state"], ended["tasks"]["done"]) == ("failed", 0)
        reason = ended["reason"]
    assert reason
    assert message in reason
    own_text = reason.replace("etc/cron.d/x", "")  # the name of the entry is from the request, not from this machine
    assert not MACHINE_DETAILS.search(own_text.replace("/v1/", ""))


def test_a_valid_zip_runs(platform: PlatformProcess) -> None:
    data = zipped(
        ("model.py", b"from parts.brake import Model\n"), ("parts/__init__.py", b""), ("parts/brake.py", ECHO)
    )
    ended = platform.run(model=data, filename="model.zip", dataset="noop", scenarios={"range": [0, 3]})
    assert (ended["state"], ended["tasks"]["failed"], ended["runtime"]["name"]) == ("succeeded", 0, "python")
