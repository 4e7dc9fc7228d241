"""Programs as models: they answer in lines or on a socket, in the sandbox; their faults are named, and they end."""

import contextlib
import io
import json
import os
import struct
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest

from common.errors import UnknownFormat
from runtimes.formats import detect
from runtimes.harness.evaluator.tasks import TaskPlan
from runtimes.harness.runner import processes
from runtimes.harness.sandbox import level
from tests.contracts.harness_processes import evaluator_pair, play_of, refusal_of, worker_spec
from tests.waiting import until

#: Scripts run with the Python that every sandbox has.
PYTHON = os.path.realpath(sys.executable)
#: A program of noop: what a test changes is what it does before it answers, and its answer to `act`.
SCRIPT = """#!{python} -ISB
import json, os, sys
calls = 0
for line in sys.stdin:
    request = json.loads(line)
    answer = {{}}
    if "load" in request:
        {load}
    if "reset" in request:
        seed = request["reset"]["seed"]
        {reset}
    if "act" in request:
        answer = {{"action": [2 * number + 1 for number in request["act"]]}}
        {act}
        calls += 1
    print(json.dumps(answer), flush=True)
"""
POLICY = """
class Model:
    def act(self, observation):
        return 2.0 * observation + 1.0
"""


def script(load: str = "pass", reset: str = "pass", act: str = "pass") -> bytes:
    return SCRIPT.format(python=PYTHON, load=load, reset=reset, act=act).encode()


def zipped(**files: bytes | str) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        for name, content in files.items():
            archive.writestr(name.replace("__", "."), content)
    return packed.getvalue()


def compiled(source: str, folder: Path, *arguments: str) -> bytes:
    file, output = folder / "source.c", folder / "built"
    file.write_text(source)
    subprocess.run(["cc", "-O1", "-Wall", "-Werror", *arguments, "-o", str(output), str(file)], check=True)
    return output.read_bytes()


def spec(format: str = "program") -> Any:
    return worker_spec(format=format, isolation="scenario", sandbox=level().number)


def play(**changes: Any) -> dict[str, Any]:
    return play_of(isolation="scenario", **changes)


def refusal(model: bytes) -> str:
    return refusal_of(spec(), model, play())


def results_of(model: bytes, format: str = "program", stop: int = 4, **changes: Any) -> list[dict[str, Any]]:
    with evaluator_pair(spec(format), model, play(**changes)) as pair:
        return [result | {"timing": None} for result in pair.run(0, stop)]


# -- what programs answer


def test_a_program_has_the_results_of_the_same_policy_in_python() -> None:
    assert results_of(script()) == results_of(POLICY.encode(), "python")


@pytest.mark.parametrize("batch", [1, 3])
def test_the_results_are_the_same_in_every_run_and_order_of_tasks(batch: int) -> None:
    model = script(act='answer = {"action": [number + calls + seed % 7 for number in request["act"]]}')
    changes: dict[str, Any] = {"params": {"batch": batch}} if batch > 1 else {}
    first = results_of(model, stop=6, **changes)
    with evaluator_pair(spec(), model, play(**changes)) as pair:
        later = [result | {"timing": None} for part in ((3, 6), (0, 3)) for result in pair.run(*part)]
    by_task = {result["task"]: result for result in later}
    assert first == [by_task[task] for task in range(6)]


def test_a_static_program_in_c_answers_as_well(tmp_path: Path) -> None:
    source = r"""
    #include <stdio.h>
    int main(void) {
        static char line[65536];
        double a, b, c, d;
        while (fgets(line, sizeof line, stdin)) {
            if (sscanf(line, "{\"act\":[%lf,%lf,%lf,%lf]}", &a, &b, &c, &d) == 4)
                printf("{\"action\":[%.17g,%.17g,%.17g,%.17g]}\n", 2*a+1, 2*b+1, 2*c+1, 2*d+1);
            else
                puts("{}");
            fflush(stdout);
        }
    }
    """
    expected = results_of(POLICY.encode(), "python")
    assert results_of(compiled(source, tmp_path)) == expected
    assert results_of(compiled(source, tmp_path, "-static")) == expected
    assert results_of(compiled(source, tmp_path, "-static-pie")) == expected


def test_an_archive_names_the_command_and_has_files_beside_it() -> None:
    act = 'answer = {"action": [float(open(sys.argv[1]).read()) * number + 1 for number in request["act"]]}'
    description = json.dumps({"command": ["bin/policy", "scale"]})
    model = zipped(**{"program__json": description, "bin/policy": script(act=act), "scale": "2"})
    assert results_of(model) == results_of(POLICY.encode(), "python")


def test_a_program_may_be_a_model_server_on_a_socket(tmp_path: Path) -> None:
    source = Path("tests/contracts/model_server.c").read_text()
    opened = source.replace("connection = atoi(", 'model = open("numbers", O_RDONLY);\n    connection = atoi(')
    server = compiled("#include <fcntl.h>\n" + opened, tmp_path)
    description = json.dumps({"command": ["server"], "protocol": "socket"})
    model = zipped(program__json=description, server=server, numbers="2 1")
    expected = results_of(POLICY.encode(), "python")
    assert results_of(model) == expected
    batched = results_of(model, stop=6, params={"batch": 3})
    assert [row["metrics"] for row in batched[:4]] == [row["metrics"] for row in expected]
    unreadable = zipped(program__json=description, server=server, numbers="none")
    assert "the model is not two numbers" in refusal(unreadable)
    ends = zipped(program__json=description, server=compiled("int main(void) { return 4; }", tmp_path))
    assert "the program exited with code 4 before it had answered `load`" in refusal(ends)
    lines = zipped(program__json=description, server=script())
    assert "the program was ended by" in refusal(lines) or "exited with code" in refusal(lines)


def test_a_program_gets_the_spaces_the_parameters_and_its_folder() -> None:
    told = json.loads(refusal(script(load='answer = {"error": json.dumps(request["load"])}')))
    assert set(told) == {"version", "folder", "params", "observation", "action", "step"}
    assert told["action"]["shape"] == [4]
    assert set(told["action"]) == {"dtype", "shape", "names", "units", "low", "high"}


def test_what_a_program_writes_to_standard_error_is_in_the_log() -> None:
    with evaluator_pair(spec(), script(act='print("turning left", file=sys.stderr)'), play()) as pair:
        pair.run(0, 2)
        assert pair.output_with("turning left", 2).count("turning left") == 2


# -- what cannot be used


@pytest.mark.parametrize(
    ("description", "reason"),
    [
        ("{", "`program.json` is not JSON"),
        ("[]", "has to be an object with the members `command` and `protocol`"),
        ('{"cmd": ["policy"]}', "has to be an object with the members `command` and `protocol`"),
        ('{"protocol": "grpc"}', '`protocol` in `program.json` has to be "json-lines" or "socket"'),
        ('{"command": "policy"}', "`command` in `program.json` has to be a list of strings"),
        ('{"command": []}', "`command` in `program.json` has to be a list of strings"),
        ('{"command": ["policy", 1]}', "`command` in `program.json` has to be a list of strings"),
        ('{"command": ["policy", "\\u0000"]}', "`command` in `program.json` has to be a list of strings"),
        ('{"command": ["other"]}', "the archive has no file 'other', which is to be executed"),
        ('{"command": ["../model/policy"]}', "the archive has no file '../model/policy'"),
        ('{"command": ["/usr/bin/env"]}', "which is to be executed; paths begin at the archive's top"),
        ("[" * 40000, "`program.json`"),
        (" " * (65 << 10) + "{}", "`program.json`"),
    ],
)
def test_a_description_that_names_no_command_is_refused_with_the_reason(description: str, reason: str) -> None:
    assert reason in refusal(zipped(program__json=description, policy=script()))


def test_a_program_that_cannot_be_executed_is_refused_with_the_reason(tmp_path: Path) -> None:
    assert "cannot be executed: it is neither a program for this machine nor a script" in refusal(b"no program\n")
    assert "cannot be executed: it is a script (it begins with `#!`)" in refusal(b"#!/opt/lua\n")
    foreign = bytearray(compiled("int main(void) { return 0; }", tmp_path, "-static"))
    foreign[18:20] = struct.pack("<H", 243)
    assert "the program is for RISC-V, and this machine is" in refusal(bytes(foreign))


@pytest.mark.parametrize(
    ("load", "reason"),
    [
        ('answer = {"error": "four wheels, not three"}', "four wheels, not three"),
        ('answer = {"error": {"wheels": 3}}', '{"wheels": 3}'),
        ("sys.exit(3)", "the program exited with code 3 before it had answered `load`; its output is in the log"),
        ("os.abort()", "the program was ended by SIGABRT before it had answered `load`"),
        ('print("loading")', "the program wrote 'loading' to its standard output"),
        ("answer = [1]", "the program wrote '[1]' to its standard output"),
        ('print("x" * 70000)', "a line of more than"),
    ],
)
def test_a_program_that_does_not_load_is_refused_with_the_reason(load: str, reason: str) -> None:
    assert reason in refusal(script(load=load))


# -- faults in a scenario


#: What a program does in place of an answer to `act`, the result's status, and a part of its error.
FAULTS = [
    ('answer = {"error": "no route"}', "failed", "ProgramFailed: no route"),
    ("answer = {}", "invalid", "the program's answer to `act` has no member `action`"),
    ('answer = {"action": [1, 2]}', "invalid", "the model answered an array of shape (2,), not (4,)"),
    ('answer = {"action": [1, 2, 3, None]}', "invalid", "the action is not finite"),
    ('answer = {"action": "left"}', "invalid", "not an array of numbers"),
    ('answer = {"action": [1, 2, 3, float("nan")]}', "invalid", "the action is not finite"),
    ('answer = {"action": [1, 2, 3, 1e300]}', "invalid", "the action is not finite"),
    ('print("thinking")', "invalid", "the program wrote 'thinking' to its standard output"),
    ('print("x" * 70000)', "invalid", "a line of more than"),
    ("os.abort()", "crashed", "killed by SIGABRT"),
    ("sys.exit(3)", "crashed", "it exited with code 3"),
    ("sys.exit(0)", "crashed", "it exited with code 0"),
    ("import ctypes; ctypes.string_at(0)", "crashed", "killed by SIGSEGV: a fault of machine code"),
    ("os.close(1); sys.exit(5)", "crashed", "it exited with code"),
]
#: What it does that takes for ever.
ENDLESS = [
    ("while True: pass", "timed_out", "no answer within"),
    ("sys.stdin.read()", "timed_out", "no answer within"),
]


def test_a_fault_of_a_program_is_the_result_of_its_task() -> None:
    """Which fault the program has follows from the scenario's seed: two scenarios have each, one after the other."""
    assert_faults(FAULTS)


def test_a_program_that_takes_for_ever_misses_the_deadline_of_its_task() -> None:
    assert_faults(ENDLESS, deadline=0.5)


def assert_faults(faults: list[tuple[str, str, str]], **changes: Any) -> None:
    plan = TaskPlan(play()["tasks"])
    acts = {plan.model_server_seed(task): faults[task // 2][0] for task in range(2 * len(faults))}
    model = script(reset=f"statement = {acts!r}[seed]", act="exec(statement)")
    results = results_of(model, stop=2 * len(faults), **changes)
    expected = [fault for fault in faults for _ in range(2)]
    others = [
        (act, result["status"], result["error"])
        for (act, status, text), result in zip(expected, results, strict=True)
        if result["status"] != status or text not in result["error"]
    ]
    assert others == []


def test_a_fault_in_one_scenario_leaves_the_others_as_they_are() -> None:
    act = 'if request["act"][0] < 0.5: sys.exit(9)'
    results = results_of(script(act=act), stop=12)
    expected = results_of(POLICY.encode(), "python", stop=12)
    assert {result["status"] for result in results} == {"crashed", "ok"}
    assert all(result == other for result, other in zip(results, expected, strict=True) if result["status"] == "ok")


def states_below(pid: int) -> list[str]:
    """Return the states of a process's descendants, as proc_pid_stat(5) has them."""
    children: dict[int, list[tuple[int, str]]] = {}
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            stat = path.read_text()
            state, parent = stat.rpartition(")")[2].split()[:2]
            children.setdefault(int(parent), []).append((int(stat.split()[0]), state))
    below = children.get(pid, [])
    return [state for _, state in below] + [state for child, _ in below for state in states_below(child)]


def test_the_programs_of_scenarios_that_have_ended_are_gone() -> None:
    with evaluator_pair(spec(), script(), play()) as pair:
        server = pair.model_servers[-1].process
        assert isinstance(server, processes.ChildProcess)
        pair.run(0, 8)
        until(lambda: "Z" not in (states := states_below(server.popen.pid)) and len(states) > 0)


# -- how it is recognised


def test_programs_are_recognised_by_their_headers_and_archives_by_what_they_contain(tmp_path: Path) -> None:
    def detected(content: bytes, name: str = "model") -> str:
        (tmp_path / "sent").write_bytes(content)
        return detect(tmp_path / "sent", name)

    main = "int main(void) { return 0; }"
    assert detected(compiled(main, tmp_path)) == "program"
    assert detected(compiled(main, tmp_path, "-static")) == "program"
    assert detected(zipped(program=script(), data=b"1")) == "program"
    assert detected(zipped(**{"program__json": "{}", "policy": script(), "model__so": b"\x7fELF"})) == "program"
    with pytest.raises(UnknownFormat, match="may be program or python"):
        detected(zipped(**{"program__json": "{}", "model__py": "class Model: pass"}))
    assert detected(zipped(**{"model__so": b"\x7fELF", "data/program": b""})) == "native"
