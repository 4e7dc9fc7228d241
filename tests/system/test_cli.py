"""The command line `windtunnel` as a process: each command and format, exit codes, pipes, terminals, completion."""

import csv
import io
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
import zipfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.foreign_servers import answer, serving
from tests.ports import free_ports
from tests.pseudo_terminals import CTRL_C, RETURN, TAB, PseudoTerminal
from tests.system.platform_process import MODELS, PlatformProcess
from tests.waiting import until
from windtunnel import Client
from windtunnel.visible_text import visible

ECHO = str(MODELS / "echo.py")
BIN = str(Path(sys.executable).parent)
Run = Callable[..., "subprocess.CompletedProcess[str]"]
#: Options of a simulation that lasts until a test has seen it.
LONG = ("--scenarios", "0-4999", "--param", "sleep_ms=20")


@pytest.fixture
def environ(platform: PlatformProcess, tmp_path: Path) -> dict[str, str]:
    """The environment of a user who works on the platform, with folders of the user's own."""
    return {
        **os.environ,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_STATE_HOME": str(tmp_path / "state"),
        "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        "WINDTUNNEL_URL": platform.url,
        "TERM": "xterm-256color",
    }


def platform_id(text: str) -> str:
    """Return the id of the simulation whose address was printed."""
    match = re.search(r"/simulations/(\w{26})", text)
    assert match is not None, text
    return match[1]


@pytest.fixture
def windtunnel(environ: dict[str, str], tmp_path: Path) -> Run:
    """A function that runs the command line to its end."""

    def run(*arguments: str, stdin: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["windtunnel", *arguments],
            env=environ | variables,
            cwd=tmp_path,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )

    return run


@pytest.fixture(scope="module")
def street(platform: PlatformProcess) -> str:
    """The id of a simulation on a street, which has ended."""
    with Client(platform.url) as client:
        return client.run("idm", "car_street", scenarios="0-3", labels={"kind": "street"}, progress=False).id


@pytest.fixture
def long_run(platform: PlatformProcess) -> Iterator[str]:
    """The id of a simulation that runs for the length of a test."""
    with Client(platform.url) as client:
        simulation = client.submit(
            ECHO, "noop", scenarios=range(5000), params={"sleep_ms": 20}, labels={"test": f"long-{time.time_ns()}"}
        )
        yield simulation.id
        client.simulations.cancel(simulation.id)


# -- each command in each format


@pytest.mark.parametrize(
    ("command", "name"),
    [
        ("simulations", "id"),
        ("simulations list --label kind=street -n 1", "id"),
        ("simulations get STREET", "id"),
        ("models", "name"),
        ("models get idm zero", "name"),
        ("datasets", "name"),
        ("datasets get car_street", "name"),
        ("datasets scenarios car_street -n 2", "index"),
        ("datasets versions car_street", "version"),
        ("runtimes", "name"),
        ("runtimes get python", "name"),
        ("executors", "name"),
    ],
)
def test_documents_are_printed_in_every_format(windtunnel: Run, street: str, command: str, name: str) -> None:
    arguments = command.replace("STREET", street).split()
    if len(arguments) == 1:
        arguments.append("list")
    printed = {}
    for format in ("table", "json", "yaml", "name"):
        process = windtunnel(*arguments, "-o", format)
        assert (process.returncode, process.stderr) == (0, "")
        printed[format] = process.stdout
    document = json.loads(printed["json"])
    assert yaml.safe_load(printed["yaml"]) == document
    documents = document if isinstance(document, list) else [document]
    assert printed["name"].split("\n") == [*(str(item[name]) for item in documents), ""]
    assert all(str(item[name]) in printed["table"] for item in documents)
    assert "\x1b" not in printed["table"]


def test_results_are_printed_and_saved_in_every_format(windtunnel: Run, street: str, tmp_path: Path) -> None:
    table = windtunnel("results", street)
    assert table.stdout.splitlines()[0].split() == ["TASK", "STATUS", "SCORE", "SCENARIO", "REMARK"]
    assert len(table.stdout.splitlines()) == 5
    assert [item["task"] for item in json.loads(windtunnel("results", street, "-o", "json").stdout)] == [0, 1, 2, 3]
    assert len(yaml.safe_load(windtunnel("results", street, "-o", "yaml").stdout)) == 4
    lines = windtunnel("results", street, "-o", "ndjson").stdout.splitlines()
    assert [json.loads(line)["task"] for line in lines] == [0, 1, 2, 3]
    assert len(list(csv.DictReader(io.StringIO(windtunnel("results", street, "-o", "csv").stdout)))) == 4
    worst = json.loads(windtunnel("results", street, "--worst", "2", "-o", "json").stdout)
    scores = sorted(json.loads(line)["metrics"]["score"] for line in lines)
    assert [item["metrics"]["score"] for item in worst] == scores[:2]
    order = ("--where", "task>=1", "--where", "failed!=maybe", "--sort", "-metrics.score", "-o", "json")
    selected = [item["task"] for item in json.loads(windtunnel("results", street, *order).stdout)]
    assert sorted(selected) == [1, 2, 3]
    for suffix in ("parquet", "csv", "ndjson"):
        process = windtunnel("results", street, "-o", f"saved.{suffix}")
        assert (process.returncode, process.stdout) == (0, "")
        assert (tmp_path / f"saved.{suffix}").stat().st_size > 500
    refused = windtunnel("results", street, "-o", "saved.xlsx")
    assert refused.returncode == 2 and "ends in .ndjson" in refused.stderr


def test_a_simulation_is_followed_replayed_archived_compared_and_retried(
    windtunnel: Run, street: str, tmp_path: Path
) -> None:
    assert "succeeded" in windtunnel("events", street).stdout.splitlines()[-1]
    assert [json.loads(line)["type"] for line in windtunnel("events", street, "-o", "json").stdout.splitlines()]
    assert windtunnel("logs", street).returncode == 0
    replay = windtunnel("replay", street, "-o", "worst.svg")
    assert replay.stdout == "worst.svg\n" and (tmp_path / "worst.svg").read_text().startswith("<svg")
    archive = windtunnel("simulations", "archive", street)
    assert zipfile.is_zipfile(tmp_path / archive.stdout.strip())
    again = windtunnel("retry", street, "--all").stdout.strip()
    assert "succeeded" in windtunnel("events", again).stdout
    compared = windtunnel("compare", again, street)
    assert compared.returncode == 0 and "score" in compared.stdout
    assert json.loads(windtunnel("compare", again, street, "-o", "json").stdout)["metrics"]["score"]["count"] == 4
    assert windtunnel("simulations", "delete", again, "--yes").stdout == f"{again}\n"
    assert windtunnel("simulations", "get", again).returncode == 2


def test_a_sweep_answers_its_question(windtunnel: Run, platform: PlatformProcess) -> None:
    options = ("--scenarios", "0-9", "--sweep", "latency_steps=0,8")
    run = windtunnel("run", "cartpole", "cartpole", *options)
    assert run.returncode == 0, run.stderr
    lines = run.stdout.splitlines()
    (head,) = (number for number, line in enumerate(lines) if line.startswith("LATENCY_STEPS"))
    assert lines[head - 1] == "By latency_steps:"
    assert lines[head].split(maxsplit=4)[:3] == ["LATENCY_STEPS", "TASKS", "FAILURES"]
    swept = [line.split() for line in lines[head + 1 : head + 3]]
    assert [(row[0], row[1]) for row in swept] == [("0", "10"), ("8", "10")]
    means, lows, highs = ([float(row[column]) for row in swept] for column in (3, 4, 5))
    assert means[0] > means[1] and lows[0] > highs[1], "the delay ends the scenarios sooner"
    assert int(swept[0][2]) < int(swept[1][2]) == 10, "of all that have a delay the pole falls"
    assert any("(latency_steps=8)" in line for line in lines[head + 3 :]), "equal rows of the worst have their values"
    id = platform_id(run.stderr)
    assert windtunnel("sweep", id).stdout == "".join(f"{line}\n" for line in lines[head : head + 3])
    steps = windtunnel("sweep", id, "--metric", "length").stdout
    assert "LENGTH" in steps.splitlines()[0]
    unknown = windtunnel("sweep", id, "--metric", "speed")
    assert unknown.returncode == 2 and "there are clipped_actions, length, return" in unknown.stderr
    assert json.loads(windtunnel("sweep", id, "-o", "json").stdout)["parameters"] == ["latency_steps"]
    goes_with = windtunnel("sensitivity", id)
    assert goes_with.returncode == 0 and "latency_steps  sweep" in goes_with.stdout
    with Client(platform.url) as client:
        assert len(client.simulations.sweep(id)["rows"]) == 2
        assert client.simulations.sensitivity(id, metric="return")["metric"] == "return"


def test_a_simulation_without_a_sweep_says_how_to_play_one(windtunnel: Run, street: str) -> None:
    process = windtunnel("sweep", street)
    assert process.returncode == 0 and "--sweep NAME=A,B,C" in process.stderr
    assert len(process.stdout.splitlines()) == 2


def test_models_are_compared_on_a_dataset(windtunnel: Run) -> None:
    words = ("compare", "idm", "zero", "--dataset", "car_street", "--scenarios", "0-3", "--param", "latency_steps=1")
    process = windtunnel(*words)
    assert process.returncode == 0, process.stderr
    simulation = windtunnel("simulations", "get", "last", "-o", "json")
    assert json.loads(simulation.stdout)["spec"]["params"] == {"latency_steps": 1}, simulation.stderr
    assert re.match(r"(idm is better than zero|Undecided between idm)", process.stdout)
    assert "/comparisons/" in process.stderr


def test_a_model_is_uploaded_downloaded_and_deleted(windtunnel: Run, tmp_path: Path) -> None:
    name = f"cli-{time.time_ns()}"
    (tmp_path / f"{name}.py").write_text(Path(ECHO).read_text())
    assert json.loads(windtunnel("models", "upload", f"{name}.py", "-o", "json").stdout)["name"] == name
    (tmp_path / f"{name}.py").rename(tmp_path / "original")
    downloaded = windtunnel("models", "download", name)
    assert (tmp_path / downloaded.stdout.strip()).read_text() == (tmp_path / "original").read_text()
    unanswered = windtunnel("models", "delete", name)
    assert unanswered.returncode == 2 and "--yes" in unanswered.stderr
    assert windtunnel("models", "delete", name, "-y").stdout == f"{name}@1\n"


def test_versions_of_a_dataset_are_tagged_and_deleted_one_by_one(windtunnel: Run, tmp_path: Path) -> None:
    name, folder = f"cli-{time.time_ns()}", tmp_path / "drives"
    folder.mkdir()
    for content in ("a", "b", "c"):
        (folder / "drive.csv").write_text(content)
        assert windtunnel("datasets", "push", "drives", name).returncode == 0
    assert windtunnel("datasets", "tag", name, "gold", "2").returncode == 0
    assert windtunnel("datasets", "get", f"{name}@gold", "-o", "json").returncode == 0
    assert windtunnel("datasets", "untag", name, "gold").stdout == f"{name}@gold\n"
    assert windtunnel("datasets", "get", f"{name}@gold").returncode == 2
    assert windtunnel("datasets", "delete", f"{name}@3", "-y").returncode == 0
    refused = windtunnel("datasets", "delete", name, "-y")
    assert refused.returncode == 2 and f"such as {name}@2; or the name, and --all-versions" in refused.stderr
    assert windtunnel("datasets", "delete", f"{name}@2", "--all-versions", "-y").returncode == 2
    assert windtunnel("datasets", "delete", name, "--all-versions", "-y").returncode == 0
    assert windtunnel("datasets", "versions", name).returncode == 2


def test_an_executor_is_drained_and_undrained(windtunnel: Run, platform: PlatformProcess) -> None:
    try:
        drained = windtunnel("executors", "drain", "local", "--reason", "new\x1b[31m kernel")
        assert drained.returncode == 2 and "one line" in drained.stderr
        drained = windtunnel("executors", "drain", "local", "--reason", "new kernel")
        assert drained.returncode == 0 and "new kernel" in drained.stdout
        with Client(platform.url) as client:
            drain = client.executors()[0].drain
        assert drain is not None and drain["reason"] == "new kernel"
        assert json.loads(windtunnel("executors", "-o", "json").stdout)[0]["drain"] == drain
    finally:
        undrained = windtunnel("executors", "undrain", "local", "-o", "json")
    assert json.loads(undrained.stdout)["drain"] is None
    unknown = windtunnel("executors", "drain", "mars")
    assert unknown.returncode == 2 and "there are local" in unknown.stderr


def test_a_format_that_was_named_once_does_not_stay_with_a_file(windtunnel: Run, tmp_path: Path) -> None:
    (tmp_path / "renamed.py").write_text(Path(ECHO).read_text() + "# its format is named once\n")
    run = ("run", "renamed.py", "noop", "--scenarios", "0")
    assert windtunnel(*run).returncode == 0
    assert windtunnel(*run, "--format", "onnx").returncode != 0
    again = windtunnel(*run)
    assert again.returncode == 0, again.stdout + again.stderr


def test_contexts_are_added_used_and_removed_without_showing_a_token(
    windtunnel: Run, platform: PlatformProcess, tmp_path: Path
) -> None:
    def run(*arguments: str, stdin: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        return windtunnel(*arguments, stdin=stdin, WINDTUNNEL_URL="", **variables)

    added = run("context", "add", "lab", platform.url, "--token", stdin="secret-of-lab\n")
    assert added.returncode == 0 and "only you can read" in added.stdout
    refused = run("context", "add", "other", "http://127.0.0.1:1", "--no-use")
    assert refused.returncode == 2 and "Nothing was added" in refused.stderr
    [anyway] = re.findall(r"with (--[\w-]+) it is added anyway", refused.stderr)
    assert run("context", "add", "other", "http://127.0.0.1:1", "--no-use", anyway).returncode == 0
    listed = run("context", "list", "-o", "json")
    assert [(item["name"], item["current"]) for item in json.loads(listed.stdout)] == [("lab", True), ("other", False)]
    shown = run("context", "show")
    assert platform.url in shown.stdout
    assert run("executors", "-o", "name").stdout == "local\n"
    assert run("--context", "other", "executors").returncode == 2
    assert run("executors", "--context", "other", "--url", platform.url).returncode == 0
    used = run("context", "use", "other", WINDTUNNEL_CONTEXT="lab")
    assert used.returncode == 0 and "But WINDTUNNEL_CONTEXT is set" in used.stderr
    assert run("executors").returncode == 2
    assert run("context", "remove", "other").returncode == 0
    assert "there are: lab" in run("context", "use", "other").stderr
    everything = [run(*words.split()) for words in ("context", "context show -o yaml", "context list -o json")]
    assert all("secret" not in process.stdout + process.stderr for process in (*everything, added, listed, shown))
    [file] = (tmp_path / "config").rglob("contexts.json")
    assert file.stat().st_mode & 0o077 == 0


def test_the_platform_of_this_user_is_found_at_its_port_and_in_its_home(
    windtunnel: Run, platform: PlatformProcess
) -> None:
    moved = {"WINDTUNNEL_PORT": str(platform.port)}, {"WINDTUNNEL_HOME": str(platform.home)}
    for variables in moved:
        assert windtunnel("executors", "-o", "name", WINDTUNNEL_URL="", **variables).stdout == "local\n", variables
    # each context is asked: one of another service, and of a platform
    other = windtunnel("context", "add", "runners", f"127.0.0.1:{platform.runner_api_port}")
    assert other.returncode == 2 and "Nothing was added" in other.stderr


# -- run: exit codes, output, progress


@pytest.mark.parametrize(
    ("arguments", "code", "text"),
    [
        ((ECHO, "noop", "--scenarios", "0-9"), 0, "echo on noop: succeeded, 10 of 10 tasks"),
        ((str(MODELS / "raises_always.py"), "noop", "--scenarios", "0-2"), 1, "on purpose"),
        ((str(MODELS / "raises_in_constructor.py"), "noop", "--scenarios", "0"), 1, "windtunnel logs"),
        ((ECHO, "nop"), 2, "Did you mean noop? `windtunnel datasets` lists them."),
        (("no_such_model", "noop"), 2, "If a file was meant, name it by its path; this folder is"),
        (("./missing.py", "noop"), 2, "There is no file ./missing.py."),
        ((ECHO, "noop", "--scenarios", "9-1"), 2, "write numbers and ranges"),
        ((ECHO, "noop", "--label", "x"), 2, "write NAME=VALUE"),
        ((ECHO, "noop", "-o", "results.xlsx"), 2, "ends in .ndjson"),
        ((ECHO, "car_street", "--param", "latency=3"), 2, "it has: lane_guard, latency_steps"),
        ((ECHO, "noop", "--param", "sleep_ms=1", "--sweep", "sleep_ms=1,2"), 2, "in --param and in --sweep"),
        ((ECHO, "noop", "--sweep", "sleep_ms"), 2, "write NAME=VALUE,VALUE"),
        ((ECHO, "noop", "--scenarios", "0-2,1"), 2, "a number is there twice"),
        ((ECHO, "noop", "--sweep", "sleep_ms=1,1"), 2, "a value is there twice"),
        (("idm", "car_street", "--format", "onnx"), 2, "idm is stored with its format"),
        ((ECHO, "noop", "--timeout", "nan"), 2, "not a number of seconds above 0"),
        ((ECHO, "noop", "--label", "ünï=x"), 2, "Write letters (a to z), digits"),
        ((ECHO, "noop", "--scenarios", "٣"), 2, "write numbers and ranges"),
        ((ECHO, "car_street", "--scenarios", "999"), 2, "has the scenarios 0 to 287; 999 is not one of them"),
        ((ECHO, "noop", "-o", "nowhere/x.csv"), 2, "There is no folder nowhere"),
        ((ECHO, "noop", "-o", "results.csv", "--detach"), 2, "--detach submits only"),
        (("/dev/null", "noop"), 2, "/dev/null is neither a file nor a folder"),
        ((ECHO,), 2, "Name a DATASET"),
        ((ECHO, "noop", "--json", "--quiet"), 2, "exclude each other"),
    ],
    ids=lambda value: None,
)
def test_the_exit_code_says_whose_fault_it_is(
    windtunnel: Run, arguments: tuple[str, ...], code: int, text: str
) -> None:
    process = windtunnel("run", *arguments)
    assert process.returncode == code, process.stderr
    assert text in process.stdout + process.stderr
    assert "Traceback" not in process.stderr.replace('Traceback (most recent call last):\n  File "model.py"', "")


def begun(windtunnel: Run, label: str) -> str:
    """Return the id of the simulation that has this label, once it is there."""
    name = ("simulations", "list", "--label", f"of={label}", "-o", "name")
    until(lambda: windtunnel(*name).stdout != "", timeout=60.0)
    return windtunnel(*name).stdout.strip()


def test_a_quiet_run_prints_its_id_when_it_has_ended(windtunnel: Run, environ: dict[str, str]) -> None:
    command = ["windtunnel", "run", ECHO, "noop", *LONG, "--quiet", "--label", "of=quiet"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        id = begun(windtunnel, "quiet")
        process.send_signal(signal.SIGTERM)  # as Ctrl-C, which a background job of a shell ignores
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "") and f"{id} has not ended and goes on" in err
    [follow] = re.findall(r"`windtunnel (events \w+)` follows it", err)
    windtunnel("cancel", id)
    assert windtunnel(*follow.split()).returncode == 0


def test_a_cancelled_run_could_not_be_done(windtunnel: Run, environ: dict[str, str]) -> None:
    command = ["windtunnel", "run", ECHO, "noop", *LONG, "--quiet", "--label", "of=cancelled"]
    with subprocess.Popen(command, env=environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        id = begun(windtunnel, "cancelled")
        cancelled = windtunnel("cancel", id)
        assert cancelled.returncode == 0 and cancelled.stdout.startswith(id)
        assert process.wait(60) == 2 and process.stdout is not None and process.stdout.read() == f"{id}\n"
    assert windtunnel("cancel", id).stdout == f"{id}  cancelled\n"


def test_stdout_has_the_data_and_stderr_the_progress(windtunnel: Run, tmp_path: Path) -> None:
    process = windtunnel("run", ECHO, "noop", "--scenarios", "0-9", "--json")
    assert process.stderr == "" and json.loads(process.stdout)["state"] == "succeeded"
    process = windtunnel("run", ECHO, "noop", "--scenarios", "0-9", "-q", "-o", "a.parquet", "-o", "a.csv")
    assert process.stderr == "" and re.fullmatch(r"[0-9a-z]{26}\n", process.stdout)
    assert (tmp_path / "a.parquet").exists() and (tmp_path / "a.csv").exists()
    process = windtunnel("run", ECHO, "noop", "--scenarios", "0-9")
    assert re.search(r"state +running", process.stderr) and "state  " not in process.stdout
    process = windtunnel("run", ECHO, "noop", "--scenarios", "0-9", "--detach")
    assert re.fullmatch(r"[0-9a-z]{26}\n", process.stdout)
    assert windtunnel("results", "last", "--follow").stdout.count("\n") == 10


def test_a_run_is_repeated_when_the_model_changes(environ: dict[str, str], tmp_path: Path) -> None:
    model = tmp_path / "watched.py"
    model.write_text(Path(ECHO).read_text())
    command = ["windtunnel", "run", str(model), "noop", "--scenarios", "0-4", "--watch"]
    output = tmp_path / "output"
    with open(output, "wb") as file:
        process = subprocess.Popen(command, env=environ, stdout=file, stderr=file)

        def waits(times: int) -> bool:
            assert process.poll() is None, output.read_text()
            return output.read_text().count("Waiting for a change") == times

        try:
            until(lambda: waits(1))
            model.write_text("raise ValueError('half written')\n")
            until(lambda: waits(2))
            model.write_text(Path(ECHO).read_text() + "# changed\n")
            until(lambda: waits(3))
        finally:
            process.terminate()  # as Ctrl-C, which a background job of a shell ignores
            code = process.wait(60)
    assert code == 130
    text = output.read_text()
    assert text.count("5 of 5 tasks") == 2 and text.count("watched on noop: failed") == 1 and "Traceback" not in text


# -- Ctrl-C on a terminal


def test_ctrl_c_leaves_the_simulation_running(environ: dict[str, str], platform: PlatformProcess) -> None:
    with PseudoTerminal(["windtunnel", "run", ECHO, "noop", *LONG], environ) as terminal:
        terminal.wait_for("tasks/s")
        terminal.press(CTRL_C)
        terminal.wait_for("Leave it running (detach), or cancel it?")
        terminal.press(RETURN)
        assert terminal.wait() == 130
        assert "goes on: `windtunnel events" in terminal.shown
        [id] = set(re.findall(r"/simulations/([0-9a-z]{26})", terminal.shown))
    with Client(platform.url) as client:
        assert not client.simulations.get(id).ended
        client.simulations.cancel(id)


def test_ctrl_c_and_cancel_ends_the_simulation(environ: dict[str, str]) -> None:
    with PseudoTerminal(["windtunnel", "run", ECHO, "noop", *LONG], environ) as terminal:
        terminal.wait_for("tasks/s")
        terminal.press(CTRL_C)
        terminal.wait_for("or cancel it?")
        terminal.press(f"cancel{RETURN}")
        assert terminal.wait() == 2
        assert re.search(r"echo on noop: \x1b\[33mcancelled\x1b\[0m, \d+ of 5000 tasks", terminal.shown)
        assert "Traceback" not in terminal.shown


def test_a_second_ctrl_c_leaves_at_once(environ: dict[str, str], platform: PlatformProcess) -> None:
    with PseudoTerminal(["windtunnel", "run", ECHO, "noop", *LONG], environ) as terminal:
        terminal.wait_for("tasks/s")
        terminal.press(CTRL_C)
        terminal.wait_for("or cancel it?")
        terminal.press(CTRL_C)
        assert terminal.wait() == 130
        assert "Traceback" not in terminal.shown
        [id] = set(re.findall(r"/simulations/([0-9a-z]{26})", terminal.shown))
    with Client(platform.url) as client:
        client.simulations.cancel(id)


# -- pipes and hostile text


def test_a_pipe_that_closes_early_is_no_error(environ: dict[str, str]) -> None:
    for command in ("datasets scenarios car_street -n 288 -o json", "datasets scenarios car_street -n 288"):
        script = f"set -o pipefail; windtunnel {command} | head -1"
        process = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60)
        assert (process.returncode, process.stderr) == (0, "")
        assert process.stdout.count("\n") == 1


def test_names_are_piped_to_another_command(environ: dict[str, str], platform: PlatformProcess, long_run: str) -> None:
    with Client(platform.url) as client:
        [(name, value)] = client.simulations.get(long_run).labels.items()
        script = f"windtunnel simulations list --label {name}={value} -o name | xargs windtunnel cancel"
        process = subprocess.run(["bash", "-c", script], env=environ, capture_output=True, text=True, timeout=60)
        assert process.returncode == 0 and process.stdout.startswith(long_run)
        assert client.simulations.wait(long_run).state == "cancelled"


HOSTILE = "\x1b]0;owned\x07\x9b2J\u202eexe.gnp\rOK\nsecond line"


def hostile_platform(document: Mapping[str, Any]) -> Any:
    def send(handler: Any) -> None:
        listed = handler.path.partition("?")[0].endswith("/simulations")
        body = {"items": [document], "next": None} if listed else document
        answer(200, json.dumps(body, ensure_ascii=False))(handler)

    return send


def test_names_with_hostile_characters_cannot_act_on_the_terminal(
    environ: dict[str, str], platform: PlatformProcess, street: str
) -> None:
    with Client(platform.url) as client:
        document = client.simulations.get(street).raw
    document |= {
        "model": {**document["model"], "name": HOSTILE},
        "labels": {HOSTILE: HOSTILE},
        "reason": HOSTILE,
        "id": HOSTILE,
    }
    id = "0" * 26
    with serving(hostile_platform(document)) as url:
        for command in ("simulations list", f"simulations get {id}"):
            for format in ("table", "json", "yaml", "name"):
                arguments = [*command.split(), "-o", format, "--url", url]
                with PseudoTerminal(["windtunnel", *arguments], environ | {"NO_COLOR": "1"}) as terminal:
                    assert terminal.wait() == 0, terminal.shown
                    shown = terminal.shown.replace("\r\n", "\n")
                assert visible(shown) == shown, (format, shown)
                if format in {"json", "yaml"}:
                    read = json.loads(shown) if format == "json" else yaml.safe_load(shown)
                    assert (read[0] if isinstance(read, list) else read)["model"]["name"] == HOSTILE


def test_what_a_model_prints_and_raises_cannot_act_on_the_terminal(
    windtunnel: Run, environ: dict[str, str], tmp_path: Path
) -> None:
    (tmp_path / "hostile.py").write_text(
        "class Model:\n"
        "    def act(self, observation):\n"
        f"        print({HOSTILE!r})\n"
        f"        raise ValueError({HOSTILE!r})\n"
    )
    assert windtunnel("run", "hostile.py", "noop", "--scenarios", "0-1", "-q").returncode == 1
    for command in (
        "logs last",
        "results last",
        "results last -o ndjson",
        "results last -o csv",
        "simulations get last",
        "events last",
    ):
        with PseudoTerminal(["windtunnel", *command.split()], environ | {"NO_COLOR": "1"}) as terminal:
            assert terminal.wait() == 0, terminal.shown
            shown = terminal.shown.replace("\r\n", "\n")
        assert visible(shown) == shown, command


def test_colours_are_for_terminals_that_want_them(environ: dict[str, str], windtunnel: Run, street: str) -> None:
    command = ["windtunnel", "results", street, "--limit", "1"]
    shown = {}
    for name, variables in {"colours": {}, "NO_COLOR": {"NO_COLOR": "1"}, "dumb": {"TERM": "dumb"}}.items():
        with PseudoTerminal(command, environ | variables) as terminal:
            assert terminal.wait() == 0
            shown[name] = terminal.shown
    assert "\x1b[32mok" in shown["colours"]
    assert "\x1b" not in shown["NO_COLOR"] + shown["dumb"]
    assert "\x1b" not in windtunnel(*command[1:]).stdout


def test_a_table_fits_a_narrow_terminal(environ: dict[str, str], street: str) -> None:
    with PseudoTerminal(["windtunnel", "datasets"], environ | {"NO_COLOR": "1"}, columns=90) as terminal:
        assert terminal.wait() == 0
        lines = terminal.shown.split("\r\n")
    assert max(map(len, lines)) <= 90 and any(line.endswith("…") for line in lines)
    with PseudoTerminal(
        ["windtunnel", "run", "idm", "car_street", "--scenarios", "0-1"], environ, columns=30
    ) as terminal:
        assert terminal.wait() == 0, terminal.shown


# -- mistakes


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        ("simulatons", "Did you mean simulations?"),
        ("frobnicate", "`windtunnel --help` lists them"),
        ("models frobnicate", "there are: list, get, upload, tag, untag, download, delete"),
        ("simulations get zzz", "There is no simulation 'zzz'. `windtunnel simulations list` lists them."),
        ("pipeline show zzz", "There is no pipeline 'zzz'. `windtunnel pipeline list` lists them."),
        ("pipeline retry ../models", "is not the id of a pipeline, the beginning of one, or `last`"),
        ("pipeline stpes.json", "'stpes.json' does not exist"),
        ("pipeline frobnicate", "there are: run, list, show"),
        ("simulations list --state asleep", "'queued'"),
        ("events 00000000000000000000000000", "no simulation"),
        ("replay STREET 99999999", "has the tasks 0 to 3"),
        ("retry STREET", "are ok; --all repeats them"),
        ("simulations get ../models", "is not the id of a simulation"),
        ("models get .", "'.' is not a name or an id"),
        ("models get ünï", "is a name or an id in it misspelt?"),
        ("compare idm zero", "To compare models, add --dataset."),
        ("datasets delete car_street -y", "Name a version, such as car_street@"),
        ("executors --url ftp://host", "is not the address of a platform"),
        ("executors --context nowhere", "context add nowhere URL"),
        ("context add x http://user:secret@host", "use a token instead"),
    ],
)
def test_a_mistake_is_answered_with_the_next_step(windtunnel: Run, street: str, arguments: str, text: str) -> None:
    process = windtunnel(*arguments.replace("STREET", street).split())
    assert process.returncode == 2 and process.stdout == ""
    assert text in process.stderr and "Traceback" not in process.stderr and "secret" not in process.stderr


def test_a_defect_of_the_command_line_is_not_taken_for_a_failed_model(environ: dict[str, str]) -> None:
    break_it = "import windtunnel.commands as c; c.cli.main = lambda *a, **k: 1 / 0"
    script = f"{break_it}; from windtunnel.__main__ import main; main()"
    process = subprocess.run([sys.executable, "-c", script], env=environ, capture_output=True, text=True, timeout=60)
    assert process.returncode == 2 and "this is a defect of windtunnel" in process.stderr


@pytest.mark.parametrize("command", ["windtunnel datasets >&-", "windtunnel models get $'\\xff'"])
def test_a_closed_output_and_an_argument_in_another_encoding_are_no_defects(
    environ: dict[str, str], command: str
) -> None:
    process = subprocess.run(["bash", "-c", command], env=environ, capture_output=True, timeout=60)
    assert process.returncode in {0, 2} and b"Traceback" not in process.stderr, process.stderr


def test_the_user_is_told_while_requests_are_repeated(windtunnel: Run, platform: PlatformProcess) -> None:
    busy = iter(range(3))

    def send(handler: Any) -> None:
        answer(503 if next(busy, None) is not None else 200, '{"items": []}')(handler)

    with serving(send) as url:
        process = windtunnel("executors", "--url", url)
    assert process.returncode == 0, process.stderr
    assert "cannot serve this now" in process.stderr and "trying for up to 60 s" in process.stderr


def test_an_address_at_which_nobody_listens_is_an_error_at_once(windtunnel: Run) -> None:
    [port] = free_ports(1)
    process = windtunnel("run", ECHO, "noop", "--url", f"http://127.0.0.1:{port}")
    assert process.returncode == 2 and process.stderr.count("\n") == 1
    assert "No platform answers" in process.stderr and "windtunnel up" in process.stderr


def test_without_arguments_the_help_is_shown(windtunnel: Run) -> None:
    process = windtunnel()
    assert process.returncode == 0 and "Commands:" in process.stdout
    assert windtunnel("--help").stdout == windtunnel("-h").stdout == process.stdout
    module = subprocess.run(
        [sys.executable, "-m", "windtunnel", "--version"], capture_output=True, text=True, timeout=60
    )
    assert re.fullmatch(r"windtunnel \d+\.\d+\.\d+\n", module.stdout)


def test_every_command_has_a_help(windtunnel: Run) -> None:
    from windtunnel.commands import COMMANDS

    for command in COMMANDS:
        process = windtunnel(command, "--help")
        assert process.returncode == 0 and process.stdout.startswith("Usage: windtunnel"), command


# -- completion, by real shells

BASH = """
eval "$(windtunnel completion bash)"
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
$(complete -p windtunnel | sed 's/.*-F \\([^ ]*\\).*/\\1/') windtunnel
printf '%s\\n' "${COMPREPLY[@]}"
"""
COMPLETIONS = [
    (("simul",), "simulations"),
    (("run", "--scen"), "--scenarios"),
    (("run", "idm", "car_"), "car_street"),
    (("run", "id"), "idm"),
    (("run", "idm", "car_street", "--runtime", "pyth"), "python"),
    (("run", "idm", "car_street", "--executor", "lo"), "local"),
    (("datasets", "get", "mujoco_ho"), "mujoco_hopper"),
    (("simulations", "list", "--state", "succ"), "succeeded"),
]


def bash(environ: Mapping[str, str], *words: str) -> list[str]:
    """Return what bash completes after `windtunnel`."""
    command = ["bash", "--norc", "-c", BASH, "bash", "windtunnel", *words]
    process = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    return [*filter(None, process.stdout.split("\n"))]


@pytest.mark.parametrize(("words", "completed"), COMPLETIONS, ids=lambda value: None)
def test_bash_completes(environ: dict[str, str], words: tuple[str, ...], completed: str) -> None:
    assert completed in bash(environ, *words)


def test_bash_completes_ids_and_files(environ: dict[str, str], street: str, tmp_path: Path) -> None:
    assert street in bash(environ, "cancel", street[:20])
    (tmp_path / "idm_mine.onnx").write_text("")
    script = f"cd {tmp_path}; {BASH}"
    command = ["bash", "--norc", "-c", script, "bash", "windtunnel", "run", "idm"]
    process = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert {"idm", "idm_mine.onnx"} <= set(process.stdout.split())


def test_without_a_platform_completion_is_quiet_and_quick(environ: dict[str, str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # connections are taken, and never answered
        addresses = [f"http://127.0.0.1:{port}" for port in (*free_ports(1), silent.getsockname()[1])]
        for url in addresses:
            began = time.monotonic()
            command = ["bash", "--norc", "-c", BASH, "bash", "windtunnel", "run", "idm", "car_"]
            process = subprocess.run(
                command, env=environ | {"WINDTUNNEL_URL": url}, capture_output=True, text=True, timeout=60
            )
            assert (process.stdout.strip(), process.stderr) == ("", "")
            assert time.monotonic() - began < 8  # a second, and the start of processes on a busy machine


def shell(name: str) -> str:
    found = shutil.which(name)
    assert found, f"{name} is missing: `apt-get install {name}` as root"
    return found


@pytest.mark.parametrize(("words", "completed"), COMPLETIONS, ids=lambda value: None)
def test_fish_completes(environ: dict[str, str], words: tuple[str, ...], completed: str) -> None:
    line = " ".join(["windtunnel", *words])
    script = f"windtunnel completion fish | source; complete --do-complete '{line}'"
    command = [shell("fish"), "--no-config", "-c", script]
    process = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=60)
    assert process.returncode == 0, process.stderr
    assert completed in [line.split("\t")[0] for line in process.stdout.splitlines()]


@pytest.mark.parametrize(("words", "completed"), COMPLETIONS, ids=lambda value: None)
def test_zsh_completes(environ: dict[str, str], words: tuple[str, ...], completed: str) -> None:
    with PseudoTerminal([shell("zsh"), "-f", "-i"], environ | {"PS1": "ready> "}) as terminal:
        terminal.wait_for("ready> ")
        terminal.press(
            f'autoload -U compinit; compinit -u -D; eval "$(windtunnel completion zsh)"; echo load"ed"{RETURN}'
        )
        terminal.wait_for("loaded")
        terminal.press(" ".join(["windtunnel", *words]) + TAB)
        terminal.wait_for(completed)
