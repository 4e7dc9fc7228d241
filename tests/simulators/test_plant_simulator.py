"""Plants in the evaluator: FMUs compiled from C and exported by PythonFMU, in the best sandbox; their faults."""

import json
import os
import signal
import subprocess
import threading
import zlib
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import uv

from datasets.catalogue import datasets
from datasets.versions import plant_definition, plant_files, scenario_folder
from datasets.versions.archives.extraction import source_of
from datasets.versions.plants import Plant
from datasets.versions.scenarios import extend
from runtimes.harness.evaluator.evaluator import BROKEN
from runtimes.harness.runner import framed_socket
from runtimes.harness.runner.processes import ChildProcess, WorkerSpec
from tests.contracts.harness_processes import EvaluatorPair, evaluator_pair, play_of, worker_spec
from tests.plants import PLANT, SCENARIOS, THERMOSTAT, dataset_files, plant_site, room
from tests.processes import innermost
from tests.simulators.test_gymnasium import best_level
from tests.waiting import until

#: Actions that do not depend on the observation: heating, mode, window.
CONSTANT = b"""
class Model:
    def act(self, observation):
        return %s
"""


def prepared(
    folder: Path,
    fmu: bytes,
    plant: Mapping[str, Any] = PLANT,
    scenarios: list[dict[str, Any]] = SCENARIOS,
    **changes: Any,
) -> tuple[WorkerSpec, dict[str, Any]]:
    """Return worker spec and set-up of a simulation on a plant, whose files are written below ``folder``."""
    for name, content in dataset_files(fmu, plant, scenarios).items():
        (folder / name).write_bytes(content)
    file, template = folder / plant["file"], datasets()["fmu"]
    own = plant_definition.definition(msgspec.convert(plant, Plant), plant_files.describe(source_of(file)))
    files = scenario_folder.OwnFiles(folder / "lines.ndjson", {}, file, own["plant"])
    place = scenario_folder.create(folder / "plays", "play", template, files)
    for above in (place, *place.parents):
        if above.stat().st_uid == os.getuid() and not above.stat().st_mode & 0o005:
            above.chmod(0o755)
    described = {"title": "", "description": "", "tasks": len(scenarios), "scenarios": "lines", "definition": own}
    dataset = extend(template, name="room", version="1", digest="sha256:0", description=described)
    spec = replace(worker_spec("fmu"), dataset=str(place), evaluator_site=plant_site(), isolation="scenario")
    play = play_of("fmu", isolation="scenario", select={"range": [0, len(scenarios)]}, **changes)
    play["definition"] = dict(dataset.definition)
    play["tasks"]["total_scenarios"] = len(scenarios)
    return replace(spec, sandbox=best_level()), play


def results_of(
    folder: Path, fmu: bytes, plant: Mapping[str, Any] = PLANT, model: bytes = THERMOSTAT, **changes: Any
) -> list[dict[str, Any]]:
    """Run all scenarios of a plant."""
    spec, play = prepared(folder, fmu, plant, **changes)
    with evaluator_pair(spec, model, play) as pair:
        return pair.run(0, play["tasks"]["total_scenarios"])


def replayed(pair: EvaluatorPair, task: int, actions: list[list[float]]) -> Mapping[str, Any]:
    """Return the replay of a task with these actions."""
    trace = zlib.compress(np.array(actions, np.float32).tobytes())
    pair.evaluator.channel.send({"type": "replay", "task": task, "trace": trace})
    answer = pair.evaluator.channel.receive(60)
    assert isinstance(answer, framed_socket.ReplayDone) and answer.replay is not None, answer
    return answer.replay


def expected_temperatures(start: float, outside: float, insulation: float, power: list[float]) -> list[float]:
    """Return the temperatures of the room, as tests/plants.py computes them."""
    temperatures = [start]
    for watts in power:
        losses = (temperatures[-1] - outside) * 200 / insulation
        temperatures.append(temperatures[-1] + (watts - losses) * 60 / 1e5)
    return temperatures


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_a_plant_does_what_its_equations_say_and_scenarios_set_its_parameters(fmi: str, tmp_path: Path) -> None:
    plant = {**PLANT, "parameters": ["insulation", "T", "outside", "seed"]}
    scenarios = [{"parameters": {"T": 10.0, "outside": -5, "insulation": 2, "seed": 0}}]
    spec, play = prepared(tmp_path, room(fmi), plant, scenarios)
    with evaluator_pair(spec, CONSTANT % b"[0.5, 1, 0]", play) as pair:
        (result,) = pair.run(0, 1)
        replay = replayed(pair, 0, [[0.5, 1, 0]] * 60)
    temperatures = expected_temperatures(10.0, -5.0, 2.0, [2500.0] * 60)
    assert [frame["observation"][0] for frame in replay["frames"]] == pytest.approx(temperatures)
    assert [frame["observation"][2] for frame in replay["frames"]] == list(range(61))
    errors = [temperature - 21 for temperature in temperatures[1:]]
    rewards = [-(error**2) - 0.1 * 0.5**2 for error in errors]
    assert replay["frames"][0]["reward"] is None
    assert [frame["reward"] for frame in replay["frames"][1:]] == pytest.approx(rewards)
    assert result["metrics"] == {
        "return": pytest.approx(sum(rewards)),
        "discomfort": pytest.approx((sum(error**2 for error in errors) / 60) ** 0.5),
        "energy": pytest.approx(2500.0 * 3600),
        "length": 60,
        "clipped_actions": 0,
        "outcome": "kept",
    }


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_arrays_truth_values_and_whole_numbers_are_observed_and_set(fmi: str, tmp_path: Path) -> None:
    trend = ["trend"] if fmi == "3" else ["trend[1]", "trend[2]"]
    plant = {**PLANT, "observation": [*trend, "alarm", "T"], "action": ["window", "heating"], "steps": 3}
    del plant["duration"]
    plant |= {"reward": "trend[2]", "ends": [], "metrics": [{"name": "late", "of": "trend[2]", "by": "last"}]}
    spec, play = prepared(tmp_path, room(fmi), plant, [{"parameters": {"T": 40.0}}])
    assert play["definition"]["interface"]["observation"]["names"] == ["trend[1]", "trend[2]", "alarm", "T"]
    assert play["definition"]["interface"]["action"]["high"] == [1, 1.0]
    with evaluator_pair(spec, THERMOSTAT, play) as pair:
        frames = replayed(pair, 0, [[0.4, 0.0], [0.6, 0.0], [7.0, 2.0]])["frames"]
    closed, opened = frames[1]["observation"][0], frames[2]["observation"][0]
    assert opened < 2.4 * closed < 0, "the window was opened in the second step, when it was rounded to 1"
    assert [frame["observation"][1] for frame in frames[1:]] == [0.0, closed, opened]
    assert [frame["observation"][2] for frame in frames] == [0.0, 1.0, 0.0, 0.0]
    assert frames[3]["action"] == [1.0, 1.0]
    assert frames[3]["reward"] == pytest.approx(opened, rel=1e-6)  # observations have seven digits


def test_a_parameter_of_a_simulation_replaces_that_of_its_scenarios_and_may_be_swept(tmp_path: Path) -> None:
    spec, play = prepared(tmp_path, room(), scenarios=[{"parameters": {"insulation": 9.0}}])
    plan = play["tasks"] | {"sweep": {"insulation": [0.5, 9.0]}}
    with evaluator_pair(spec, THERMOSTAT, play | {"tasks": plan}) as pair:
        swept = pair.run(0, 2)
    with evaluator_pair(spec, THERMOSTAT, play) as pair:
        (own,) = pair.run(0, 1)
    energy = [result["metrics"]["energy"] for result in swept]
    assert energy[0] > 2 * energy[1] and energy[1] == own["metrics"]["energy"]
    assert [result["scenario"]["params"]["insulation"] for result in swept] == [0.5, 9.0]


def test_an_end_has_the_outcome_that_the_dataset_gives_it(tmp_path: Path) -> None:
    (result, _) = results_of(tmp_path, room(), model=CONSTANT % b"[1, 2, 0]")
    assert result["metrics"]["outcome"] == "overheated" and result["metrics"]["length"] < 60


def test_a_seed_of_the_plant_is_the_scenarios(tmp_path: Path) -> None:
    results = results_of(tmp_path, room(), scenarios=[{}] * 8, model=CONSTANT % b"[0, 0, 0]")
    assert len({result["metrics"]["discomfort"] for result in results}) > 1


#: What a faulty plant does at its third step, and what is told of it.
THIRD = "if (m->i[COUNT] == 3) { %s; }"
FAULTS = {
    "crash": ("*(volatile int *)0 = 0", "the plant's code ended its process during a step: killed by SIGSEGV"),
    "abort": ("abort()", "the plant's code ended its process during a step: killed by SIGABRT"),
    "kill": ("raise(9)", "the plant's code ended its process during a step: killed by SIGSYS"),
    "exit": ("exit(0)", "the plant's code ended its process during a step: it exited with code 0"),
    "hang": ("for (;;) ;", "the plant has not finished a step within 1 s"),
    "sleep": ("for (;;) sleep(9)", "the plant has not finished a step within 1 s"),
    "nan": ("m->r[POWER] = NAN", "the plant's power is nan at 180 s"),
    "infinite": ("m->r[T] = INFINITY", "the plant's T is inf at 180 s"),
    "error": ("return 3", "a step of the FMU failed: fmi2DoStep failed with status 3"),
    "ended": ("*ended = 1; return 2", "the FMU has ended its simulation at 180 s"),
    "fork": ("if (fork() < 0) abort()", "killed by SIGABRT"),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_fault_of_a_plant_is_the_result_of_its_task_and_of_no_other(fault: str, tmp_path: Path) -> None:
    code, text = FAULTS[fault]
    plant = {**PLANT, "patience": 1.0}
    spec, play = prepared(tmp_path, room(FAULT=THIRD % code), plant, [{"name": "a"}, {"name": "b"}])
    with evaluator_pair(spec, THERMOSTAT, play) as pair:
        results = pair.run(0, 2)
        assert not pair.needs, "the model server is not replaced"
    assert [result["status"] for result in results] == ["failed"] * 2
    for result in results:
        assert result["error"].startswith("simulator: PlantFailed: ") and text in result["error"], result
        assert result["metrics"] == {}


def test_a_scenario_whose_plant_is_killed_from_outside_is_no_result(tmp_path: Path) -> None:
    """The evaluator ends, and its task is run again by another one, as always when an evaluator dies."""
    waiting = room(FAULT=THIRD % "for (;;) sleep(9)")
    spec, play = prepared(tmp_path, waiting, {**PLANT, "patience": 200.0}, [{"name": "a"}])
    with evaluator_pair(spec, THERMOSTAT, play) as pair:
        process = pair.evaluator.process
        assert isinstance(process, ChildProcess)

        def kill() -> None:
            until(lambda: pair.evaluator.page.task == 0, message="the scenario does not begin")
            os.kill(innermost(process.pid), signal.SIGKILL)

        killing = threading.Thread(target=kill)
        killing.start()
        with pytest.raises(framed_socket.PeerClosed):
            pair.run(0, 1)
        killing.join()
        assert process.popen.wait() == BROKEN


def test_a_plant_may_end_its_simulation_if_its_dataset_names_the_outcome(tmp_path: Path) -> None:
    for fmi in ("2", "3"):
        folder = tmp_path / fmi
        folder.mkdir()
        code = "*ended = 1; return 2" if fmi == "2" else "*ended = 1"
        results = results_of(folder, room(fmi, FAULT=THIRD % code), {**PLANT, "ended": "empty"})
        assert {result["metrics"]["outcome"] for result in results} == {"empty"}
        assert {result["metrics"]["length"] for result in results} == {2}


def test_a_library_that_does_not_load_or_initialize_is_told(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    missing = room(files={"binaries/linux64/room.so": b"\x7fELF\x02\x01" + bytes(10) + b"\x03\x00\x3e\x00" + bytes(99)})
    (result, _) = results_of(tmp_path / "a", missing)
    assert "PlantFailed: the FMU's library cannot be loaded: Failed to load shared library" in result["error"]


#: What is left of other scenarios in the library's globals, in memory that it did not write, and in files.
REMEMBERS = {
    "REMEMBERED": '1e-3 * calls + (m->i[COUNT] == 1 && m->noise[7] != 0) + 0.5 * (access("/tmp/left", 0) == 0)',
    "FAULT": 'm->noise[7] = 1; fclose(fopen("/tmp/left", "w"))',
}


@pytest.mark.parametrize("fmi", ["2", "3"])
def test_nothing_is_left_of_a_scenario_in_any_order(fmi: str, tmp_path: Path) -> None:
    if best_level() != 3:
        pytest.skip("plants write files at level 3 only")
    spec, play = prepared(tmp_path, room(fmi, **REMEMBERS), scenarios=[{"name": name} for name in "abcdef"])
    runs = []
    for parts in [((0, 6),), ((3, 6), (0, 3)), tuple((task, task + 1) for task in (5, 0, 4, 1, 3, 2))]:
        with evaluator_pair(spec, THERMOSTAT, play) as pair:
            runs.append({result["task"]: result | {"timing": None} for part in parts for result in pair.run(*part)})
    assert {result["status"] for result in runs[0].values()} == {"ok"}
    assert runs[0] == runs[1] == runs[2]


#: Counts the bytes of new memory that are not zero, of blocks of several sizes, and writes to some of them.
UNWRITTEN = """
    int found = 0;
    for (int size = 1100; size < 100000; size += size / 2) for (int block = 0; block < 3; block++) {
        unsigned char *memory = malloc(size);
        for (int k = 0; k < size; k++) found += memory[k] != 0;
        memset(memory, 77, size);
        if (block) free(memory);
    }
    m->r[POWER] = found"""


def test_memory_that_a_plant_has_not_written_is_zero(tmp_path: Path) -> None:
    plant = {**PLANT, "metrics": [{"name": "found", "of": "power", "by": "max"}]}
    results = results_of(tmp_path, room(FAULT=UNWRITTEN.replace("\n", " ")), plant)
    assert [result["metrics"]["found"] for result in results] == [0.0, 0.0]


def example(begin: str, end: str) -> str:
    """Return a part of the example in docs/datasets.md."""
    text = Path("docs/datasets.md").read_text().partition("## A plant given as an FMU")[2]
    return text.partition(begin)[2].partition(end)[0]


def test_the_documented_plant_of_pythonfmu_is_controlled(tmp_path: Path) -> None:
    (tmp_path / "tank.py").write_text(example("```python\n", "```"))
    command = [uv.find_uv_bin(), "tool", "run", "--from", "pythonfmu==0.7.0", "pythonfmu", "build", "-f", "tank.py"]
    subprocess.run(command, cwd=tmp_path, check=True)
    described = json.loads(example("cat > dataset.json <<'JSON'\n", "JSON\n"))
    model = example("cat > valve.py <<'PY'\n", "PY\n").encode()
    fmu = (tmp_path / "Tank.fmu").read_bytes()
    scenarios: list[dict[str, Any]] = [{"name": "tight"}, {"name": "leaky", "parameters": {"leak": 0.4}}]
    results = results_of(tmp_path, fmu, described["plant"], model, scenarios=scenarios)
    assert [result["metrics"]["outcome"] for result in results] == ["kept", "kept"], results
    levels, rewards = [1.0], 0.0
    for _ in range(120):
        valve = 1 if levels[-1] < 1.5 else 0
        levels.append(levels[-1] + 0.5 * (valve - 0.4 * levels[-1]))
        rewards -= (levels[-1] - 1.5) ** 2 + 0.01 * valve
    assert results[1]["metrics"]["return"] == pytest.approx(rewards)


def test_a_plant_does_several_steps_of_its_own_between_two_actions(tmp_path: Path) -> None:
    plant = {**PLANT, "substeps": 5, "steps": 4, "observation": ["count"]}
    del plant["duration"]
    spec, play = prepared(tmp_path, room(), plant)
    with evaluator_pair(spec, THERMOSTAT, play) as pair:
        frames = replayed(pair, 0, [[0.0, 0, 0]] * 4)["frames"]
    assert [frame["observation"] for frame in frames] == [[0], [5], [10], [15], [20]]


#: What a hostile plant tries, one bit of `power` for each attempt that succeeds.
CONTROL = "read what is its own"
ATTACKS = {
    "have more descriptors than its own": "extra() > 0",
    CONTROL: 'readable("/proc/self/maps", 0) && getppid() > 1',
    "signal its zygote": "kill(getppid(), 0) == 0",
    "signal everything": "kill(-1, 0) == 0",
    "trace its zygote": "ptrace(PTRACE_ATTACH, getppid(), 0, 0) == 0",
    "read the memory of its zygote": 'readable("/proc/%d/mem", getppid())',
    "read what its zygote was started with": 'readable("/proc/%d/environ", getppid())',
    "list the descriptors of its zygote": 'listed("/proc/%d/fd", getppid())',
    "list the descriptors of any process but itself": "listed_other()",
    "find a secret in its environment": 'getenv("WINDTUNNEL_TOKEN") != 0 || getenv("DATABASE_URL") != 0',
    "read users of the machine": 'readable("/etc/passwd", 0) || readable("/root/.bashrc", 0)',
    "open a socket": "socket(AF_INET, SOCK_STREAM, 0) >= 0 || socket(AF_UNIX, SOCK_STREAM, 0) >= 0",
    "start a program": 'execl("/bin/true", "true", (char *)0) == 0 || system("true") == 0',
    "fork": "fork() >= 0",
    "write beside its own library": 'writable("%s/left")',
    "write its own library": 'writable("%s/room.so")',
    "read the dataset beside its own": "readable(beside, 0)",
}
HOSTILE_HEAD = """
#include <dirent.h>
#include <fcntl.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/types.h>
#include <stdio.h>
#include <unistd.h>
"""
HOSTILE = """
static int readable(const char *pattern, int number) {
    char path[5000], byte; snprintf(path, sizeof path, pattern, number);
    int file = open(path, O_RDONLY); return file >= 0 && read(file, &byte, 1) > 0;
}
static int listed(const char *pattern, int number) {
    char path[5000]; snprintf(path, sizeof path, pattern, number); return opendir(path) != 0;
}
static int listed_other(void) {
    int found = 0;
    for (int process = 1; process < 64; process++) found += process != getpid() && listed("/proc/%d/fd", process);
    return found;
}
static int writable(const char *pattern) {
    char path[5000]; snprintf(path, sizeof path, pattern, folder); return open(path, O_WRONLY | O_CREAT, 0600) >= 0;
}
static int extra(void) {
    int found = 0; for (int number = 4; number < 1024; number++) found += fcntl(number, F_GETFD) >= 0; return found;
}
"""


def test_a_hostile_plant_reaches_nothing_but_its_own_scenario(tmp_path: Path) -> None:
    if best_level() != 3:
        pytest.skip("the file system is private at level 3 only")
    (tmp_path / "plays").mkdir(mode=0o755)
    (tmp_path / "plays/other").write_text("secret")
    attempts = " ".join(f"if ({attempt}) found |= 1 << {bit};" for bit, attempt in enumerate(ATTACKS.values()))
    code = f"int found = 0; {attempts} m->r[POWER] = found"
    plant = {**PLANT, "steps": 1, "metrics": [{"name": "found", "of": "power"}]}
    del plant["duration"]
    folder = tmp_path / "plays/play/plant/binaries/linux64"
    names = f'static const char folder[] = "{folder}", beside[] = "{tmp_path}/plays/other";'
    more = f"{HOSTILE_HEAD}{names}\n{HOSTILE}"
    results = results_of(tmp_path, room(FAULT=code, more=more), plant)
    assert [result["error"] for result in results] == [None, None]
    found = [name for bit, name in enumerate(ATTACKS) if int(results[0]["metrics"]["found"]) & 1 << bit]
    assert found == [CONTROL]
