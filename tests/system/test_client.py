"""The Python client against running platforms: all that it does, broken connections, and platforms that die."""

import asyncio
import csv
import http.server
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pandas
import polars
import pytest

from tests.breaking_proxy import BreakingProxy
from tests.foreign_servers import answer, serving
from tests.ports import free_ports
from tests.system.conftest import StartPlatform
from tests.system.platform_process import MODELS, PlatformProcess
from tests.waiting import until
from windtunnel import (
    AsyncClient,
    CannotConnect,
    Client,
    Event,
    Interrupted,
    Refused,
    Simulation,
    WindtunnelError,
)

ECHO = MODELS / "echo.py"
CONTROLLER = Path(__file__).parents[2] / "examples" / "controller.py"
#: Bytes of a model that is large enough to be broken amid its upload.
LARGE = 6 << 20
#: Tasks of a simulation whose results have some hundred kilobytes.
MANY = 2000
#: Reads a table in many processes, one after another, and prints the exit status of each that failed.
READ_TABLES = """
import os, sys
import pandas, pyarrow.dataset, pyarrow.parquet  # once, before the processes are forked
from windtunnel import Client

url, simulation, count = sys.argv[1:]
for _ in range(int(count)):
    if not (process := os.fork()):
        with Client(url) as client:
            client.simulations.results(simulation).to_pandas()
        sys.exit(0)
    if code := os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]):
        print(code)
"""


@pytest.fixture(autouse=True)
def own_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep the contexts and the unfinished uploads of the user out of the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))


@pytest.fixture
def client(platform: PlatformProcess) -> Iterator[Client]:
    with Client(platform.url) as client:
        yield client


@pytest.fixture
def proxy(platform: PlatformProcess) -> Iterator[BreakingProxy]:
    """A proxy in front of the platform."""
    proxy = BreakingProxy(platform.port)
    yield proxy
    proxy.close()


@pytest.fixture
def proxied(proxy: BreakingProxy) -> Iterator[Client]:
    """A client that reaches the platform through the proxy."""
    with Client(proxy.url) as client:
        yield client


@pytest.fixture
def large_model(tmp_path: Path) -> Path:
    """A folder with a model and some megabytes that cannot be compressed, which no test before has uploaded."""
    folder = tmp_path / "large"
    folder.mkdir()
    (folder / "model.py").write_bytes(ECHO.read_bytes())
    (folder / "weights.bin").write_bytes(os.urandom(LARGE))
    return folder


# -- what a user does


def test_a_model_is_run_and_its_results_are_read_in_every_form(client: Client, tmp_path: Path) -> None:
    seen: list[Event] = []
    simulation = client.simulations.run(
        ECHO, "noop", scenarios="0-49", labels={"ticket": "read"}, seed=3, on_event=seen.append
    )
    assert simulation.ok and simulation.ended
    assert (simulation.tasks.total, simulation.model.name, simulation.labels) == (50, "echo", {"ticket": "read"})
    assert [event["state"] for event in seen if event.type == "state"][-1] == "succeeded"
    assert [event.number for event in seen] == sorted({event.number for event in seen})
    results = client.simulations.results(simulation.id)
    records = list(results)
    assert [record.task for record in records] == list(range(50))
    assert {record.status for record in records} == {"ok"}
    assert [json.loads(line)["task"] for line in results.lines()] == list(range(50))
    frame = results.to_pandas()
    assert isinstance(frame, pandas.DataFrame) and list(frame["task"]) == list(range(50))
    assert list(frame["metrics.value"]) == [record.metrics["value"] for record in records]
    table = results.to_polars()
    assert isinstance(table, polars.DataFrame) and table["metrics.value"].to_list() == list(frame["metrics.value"])
    saved = {suffix: results.save(tmp_path / f"results{suffix}") for suffix in (".parquet", ".csv", ".ndjson")}
    assert saved[".parquet"].read_bytes() == results.parquet()
    assert len(list(csv.DictReader(io.StringIO(saved[".csv"].read_text())))) == 50
    assert saved[".ndjson"].read_text().splitlines() == list(results.lines())
    assert sorted(file.name for file in tmp_path.glob("*results*")) == [
        "results.csv",
        "results.ndjson",
        "results.parquet",
    ]
    best = list(client.simulations.results(simulation.id, sort="-metrics.value", limit=3))
    assert [record.metrics["value"] for record in best] == sorted(frame["metrics.value"], reverse=True)[:3]
    assert list(client.simulations.results(simulation.id, statuses=["failed"])) == []
    assert client.simulations.summary(simulation.id)["tasks"]["total"] == 50
    archive = client.simulations.archive(simulation.id, tmp_path / "all.zip")
    with zipfile.ZipFile(archive) as content:
        assert content.testzip() is None


def test_a_script_is_the_program_of_a_gang_and_keeps_the_name_that_the_command_has(
    client: Client, tmp_path: Path
) -> None:
    program = tmp_path / "answer.sh"
    program.write_text("#!/bin/sh\necho '{\"answer\": 42}'\n")
    gang = {"size": 1, "communication": "none", "command": ["sh", "answer.sh"]}
    simulation = client.simulations.run(program, "program", scenarios=0, gang=gang)
    assert simulation.ok, simulation.reason
    assert [record.metrics["answer"] for record in client.simulations.results(simulation.id)] == [42]


@pytest.mark.parametrize("format", ["gang_program", "python", None])
def test_a_python_program_is_model_py_in_any_format(client: Client, tmp_path: Path, format: str | None) -> None:
    program = tmp_path / "ranks.py"
    program.write_text("print('{\"answer\": 42}')\n")
    gang = {"size": 1, "communication": "none", "command": ["python", "model.py"]}
    stored = client.models.upload(program, format=format or "gang_program")
    for model in (program, f"{stored.name}@{stored.version}"):
        named = format if model == program else None
        simulation = client.simulations.run(model, "program", scenarios=0, gang=gang, format=named)
        assert simulation.ok, simulation.reason


def test_a_script_that_has_read_a_table_ends_without_an_error(client: Client, platform: PlatformProcess) -> None:
    simulation = client.simulations.run(ECHO, "noop", scenarios="0-19")
    # Four at a time on any number of processors: a thread of Arrow has to be late.
    command = [sys.executable, "-c", READ_TABLES, platform.url, simulation.id, "100"]
    scripts = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    outputs = [script.communicate(timeout=600)[0] for script in scripts]
    assert outputs == [""] * 4 and not any(script.returncode for script in scripts)


def test_results_are_followed_while_they_arrive(client: Client) -> None:
    simulation = client.submit(ECHO, "noop", scenarios=range(60), params={"sleep_ms": 5})
    first = next(iter(client.simulations.results(simulation.id, follow=True)))
    assert first.status == "ok"
    tasks = [result.task for result in client.simulations.results(simulation.id, follow=True)]
    assert sorted(tasks) == list(range(60))
    assert client.simulations.wait(simulation.id).ok


def test_failed_tasks_are_listed_first_and_retried(client: Client) -> None:
    failed = client.run(MODELS / "raises_always.py", "noop", scenarios=[3, 5, 8], progress=False)
    assert (failed.state, failed.ok, failed.tasks.failed) == ("failed", False, 3)
    worst = client.simulations.worst(failed.id, limit=2)
    assert len(worst) == 2 and "on purpose" in (worst[0].error or "")
    again = client.simulations.wait(client.simulations.retry(failed.id).id)
    assert (again.retry_of, again.tasks.total) == (failed.id, 3)
    everything = client.simulations.wait(client.simulations.retry(failed.id, all_tasks=True).id)
    assert everything.tasks.failed == 3


def test_a_simulation_is_cancelled_and_deleted(client: Client) -> None:
    simulation = client.submit(ECHO, "noop", scenarios=range(5000), params={"sleep_ms": 20})
    client.simulations.cancel(simulation.id)
    client.simulations.cancel(simulation.id)  # twice is not an error
    assert client.simulations.wait(simulation.id).state == "cancelled"
    with pytest.raises(Interrupted, match="not complete"):
        list(client.simulations.results(simulation.id, follow=True))
    client.simulations.delete(simulation.id)
    with pytest.raises(Refused) as refusal:
        client.simulations.get(simulation.id)
    assert refusal.value.status == 404


def test_simulations_are_listed_by_filters_and_pages_and_found_by_their_ids(client: Client) -> None:
    made = [client.submit(ECHO, "noop", scenarios=[number], labels={"ticket": "list"}).id for number in range(5)]
    ended = [client.simulations.wait(id) for id in made]
    assert {simulation.state for simulation in ended} == {"succeeded"}
    by_label = [simulation.id for simulation in client.simulations.list(labels={"ticket": "list"})]
    assert by_label == made[::-1]
    assert [item.id for item in client.simulations.list(labels={"ticket": "list"}, limit=2)] == by_label[:2]
    filters: dict[str, Any] = {"labels": {"ticket": "list"}, "dataset": "noop", "model": "echo", "runtime": "python"}
    assert len(list(client.simulations.list(state=["succeeded", "failed"], **filters))) == 5
    assert list(client.simulations.list(state="failed", **filters)) == []
    assert client.simulations.find("last") == made[-1]
    assert client.simulations.find(made[0].upper()) == made[0]
    assert client.simulations.find(made[2][:24]) in made
    with pytest.raises(WindtunnelError, match="There is no simulation 'zzz'"):
        client.simulations.find("zzz")
    with pytest.raises(WindtunnelError, match=r"simulations begin with '01'.*Write more"):
        client.simulations.find("01")


def test_a_model_is_uploaded_once_downloaded_checked_and_deleted(client: Client, tmp_path: Path) -> None:
    sent: list[tuple[int, int]] = []
    name = f"model-{time.time_ns()}"
    source = tmp_path / f"{name}.py"
    source.write_bytes(ECHO.read_bytes() + f"# {name}\n".encode())
    model = client.models.upload(source, progress=lambda done, total: sent.append((done, total)))
    assert (model.name, model.version, model.format) == (name, 1, "python")
    assert sent[-1] == (source.stat().st_size,) * 2
    sent.clear()
    assert client.models.upload(source, progress=lambda done, total: sent.append((done, total))) == model
    assert sent == []  # the platform has the bytes
    assert client.models.download(name, tmp_path / "copy.py").read_bytes() == source.read_bytes()
    assert [check.fits for check in client.models.check(name, ["noop"])] == [True]
    assert client.simulations.check(source, "noop").fits
    assert model.id in [item.id for item in client.models.list(name=name)]
    client.models.delete(name)
    with pytest.raises(Refused) as refusal:
        client.models.get(name)
    assert refusal.value.type == "unknown-model"


def test_a_model_is_tagged_at_its_upload_or_later_and_run_by_the_tag(client: Client, tmp_path: Path) -> None:
    name = f"tagged-{time.time_ns()}"
    source = tmp_path / f"{name}.py"
    source.write_bytes(ECHO.read_bytes() + f"# {name}\n".encode())
    first = client.models.upload(source, tags=["gold", "stable"])
    assert first.tags == ["gold", "stable"]
    assert client.models.upload(source, tags=["again"]).tags == ["again", "gold", "stable"]  # nothing is sent
    source.write_bytes(source.read_bytes() + b"# second\n")
    second = client.models.upload(source)
    assert (second.version, second.tags) == (2, [])
    simulation = client.submit(f"{name}@gold", "noop", scenarios="0-1")
    assert simulation.model.digest == first.digest
    assert client.models.tag(name, "gold", "2").tags == ["gold"] and client.models.get(f"{name}@gold").version == 2
    client.models.untag(name, "stable")
    with pytest.raises(Refused, match="Its tags: latest, again, gold"):
        client.models.get(f"{name}@stable")
    assert client.simulations.wait(simulation.id).model.digest == first.digest


def test_the_command_line_sets_lists_and_deletes_tags(client: Client, tmp_path: Path) -> None:
    name = f"tagged-{time.time_ns()}"
    source = tmp_path / f"{name}.py"
    source.write_bytes(ECHO.read_bytes() + f"# {name}\n".encode())
    command = [str(Path(sys.executable).parent / "windtunnel"), "--url", client.server.url, "models"]

    def run(*arguments: str) -> str:
        finished = subprocess.run([*command, *arguments], capture_output=True, text=True, timeout=60, check=True)
        return finished.stdout

    assert "gold" in run("upload", str(source), "--tag", "gold")
    assert run("tag", name, "stable", "latest") == f"{name}@stable is {name}@1\n"
    assert "gold, stable" in run("list", "--name", name)
    run("untag", name, "gold")
    assert client.models.get(name).tags == ["stable"]


def test_datasets_runtimes_and_executors_are_described(client: Client) -> None:
    names = [dataset.name for dataset in client.datasets.list()]
    assert "car_street" in names and len(names) == len(set(names))
    street = client.datasets.get("car_street")
    assert street.score_metric == "score" and street.tasks == 288
    assert len(list(client.datasets.scenarios("car_street"))) == 288  # more than a page
    assert len(list(client.datasets.scenarios("car_street", limit=3))) == 3
    assert {".py", ".zip", ".tar.gz"} <= {*client.runtime("python").suffixes}
    assert "python" in [runtime.name for runtime in client.runtimes()]
    assert [executor.healthy for executor in client.executors()] == [True]
    assert client.get("/v1/datasets/noop")["name"] == "noop"


def test_drives_are_replayed_and_compared(client: Client, tmp_path: Path) -> None:
    first, second = (client.run(model, "car_street", scenarios="0-3", progress=False) for model in ("idm", "zero"))
    worst = client.simulations.worst(second.id, limit=1)[0]
    replay = client.simulations.replay(second.id, worst.task)
    assert replay.save(tmp_path / "worst.svg").read_text().startswith("<svg")
    assert "sandbox" in replay._repr_html_()
    difference = client.simulations.compare(first.id, second.id)
    assert difference["metrics"]["score"]["count"] == 4 and difference["verdict"]["sentence"]


def test_models_are_compared_until_a_verdict_or_the_end(client: Client) -> None:
    types: list[str] = []
    comparison = client.comparisons.create(["idm", CONTROLLER], "car_street", scenarios="0-7")
    comparison = client.comparisons.wait(comparison.id, lambda event: types.append(event.type))
    assert comparison.ended and comparison.state == "finished" and types
    assert comparison.reference.name in {"idm", CONTROLLER.stem}
    assert all(compared.verdict and compared.simulations[0].id for compared in comparison.models)
    assert comparison.id in [item.id for item in client.comparisons.list(limit=10)]
    other = client.comparisons.create(["idm", "zero"], "car_street")
    client.comparisons.cancel(other.id)
    assert client.comparisons.wait(other.id).state == "cancelled"


def test_everything_is_there_with_await_too(platform: PlatformProcess, tmp_path: Path) -> None:
    async def use() -> None:
        async with AsyncClient(platform.url) as client:
            runs = (client.run(ECHO, "noop", scenarios=range(20 * n), progress=False) for n in (1, 2))
            first, second = await asyncio.gather(*runs)
            assert first.ok and second.ok
            assert [result.task async for result in client.simulations.results(first.id)] == list(range(20))
            assert len(await client.simulations.results(second.id).to_pandas()) == 40
            assert len(await client.simulations.results(second.id).to_polars()) == 40
            found = [item.id async for item in client.simulations.list(limit=2)]
            assert set(found) == {first.id, second.id}
            states = [event["state"] async for event in client.simulations.events(first.id) if event.type == "state"]
            assert states[-1] == "succeeded"
            archive = await client.simulations.archive(first.id, tmp_path / "all.zip")
            assert zipfile.is_zipfile(archive)
            with pytest.raises(Refused):
                await client.datasets.get("nop")

    asyncio.run(use())


# -- broken connections


def test_an_upload_goes_on_where_it_broke(proxied: Client, proxy: BreakingProxy, large_model: Path) -> None:
    proxy.break_after_sending(LARGE // 4, times=3)
    model = proxied.models.upload(large_model)
    assert proxy.breaks == 3 and proxy.count("POST /v1/uploads") == 1
    assert LARGE < proxy.sent < 1.9 * LARGE, "a reset loses what the kernel holds, a quarter of the file each"
    assert model.size >= LARGE
    assert proxied.run(f"{model.name}@{model.digest}", "noop", scenarios=[0], progress=False).ok


def test_an_upload_goes_on_in_another_process(proxy: BreakingProxy, large_model: Path) -> None:
    command = [sys.executable, "-m", "windtunnel", "models", "upload", str(large_model), "-o", "json"]
    environ = {**os.environ, "WINDTUNNEL_URL": proxy.url}
    proxy.hold_after_sending(LARGE // 2)
    first = subprocess.Popen(command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    until(lambda: proxy.holds)
    first.send_signal(signal.SIGKILL)
    assert first.wait(30) == -signal.SIGKILL
    proxy.release()
    second = subprocess.run(command, env=environ, capture_output=True, text=True, timeout=120)
    assert second.returncode == 0, second.stderr
    assert json.loads(second.stdout)["size"] >= LARGE
    assert LARGE < proxy.sent < 1.5 * LARGE


def test_events_and_results_arrive_once_over_broken_connections(proxied: Client, proxy: BreakingProxy) -> None:
    simulation = proxied.submit(ECHO, "noop", scenarios=range(MANY), params={"sleep_ms": 1})
    proxy.break_after_receiving(20_000, times=4)
    followed = [result.task for result in proxied.simulations.results(simulation.id, follow=True)]
    assert sorted(followed) == list(range(MANY))
    assert proxied.simulations.wait(simulation.id).ok
    breaks = proxy.breaks
    proxy.break_after_receiving(20_000, times=4)
    assert [result.task for result in proxied.simulations.results(simulation.id)] == list(range(MANY))
    assert proxy.breaks == breaks + 4
    whole = [event.raw for event in proxied.simulations.events(simulation.id)]
    proxy.break_after_receiving(700, times=2)
    assert [event.raw for event in proxied.simulations.events(simulation.id)] == whole
    assert proxy.breaks == breaks + 6


def test_results_of_chosen_tasks_arrive_once_over_broken_connections(proxied: Client, proxy: BreakingProxy) -> None:
    chosen = list(range(0, 4 * MANY, 7))[:MANY]  # their numbers in the dataset have gaps
    simulation = proxied.run(ECHO, "noop", scenarios=chosen, progress=False)
    indices = [result.scenario["index"] for result in proxied.simulations.results(simulation.id)]
    proxy.break_after_receiving(30_000, times=3)
    assert [result.scenario["index"] for result in proxied.simulations.results(simulation.id)] == indices == chosen


@pytest.mark.parametrize("suffix", [".parquet", ".csv", ".ndjson"])
def test_a_file_of_results_is_whole_over_a_broken_connection(
    proxied: Client, proxy: BreakingProxy, tmp_path: Path, suffix: str
) -> None:
    simulation = proxied.run(ECHO, "noop", scenarios=range(MANY), seed=1, progress=False)
    whole = proxied.simulations.results(simulation.id).save(tmp_path / f"whole{suffix}").read_bytes()
    breaks = proxy.breaks
    proxy.break_after_receiving(10_000)
    proxy.break_after_receiving(len(whole) // 2)
    assert proxied.simulations.results(simulation.id).save(tmp_path / f"broken{suffix}").read_bytes() == whole
    assert proxy.breaks == breaks + 2


def test_a_submission_whose_response_is_lost_makes_one_simulation(proxied: Client, proxy: BreakingProxy) -> None:
    proxied.models.upload(ECHO)
    label = {"ticket": f"lost-{time.time_ns()}"}
    proxy.lose_response("POST /v1/simulations ")
    simulation = proxied.submit("echo", "noop", scenarios=[0], labels=label)
    assert proxy.count("POST /v1/simulations") == 2
    assert [item.id for item in proxied.simulations.list(labels=label)] == [simulation.id]


def test_an_upload_whose_model_is_made_but_not_answered_is_no_error(
    proxied: Client, proxy: BreakingProxy, large_model: Path
) -> None:
    proxy.lose_response("POST /v1/models ")
    model = proxied.models.upload(large_model)
    assert model.size >= LARGE
    assert proxy.count("POST /v1/models") >= 1


def test_a_retry_whose_response_is_lost_makes_one_simulation(proxied: Client, proxy: BreakingProxy) -> None:
    simulation = proxied.run(MODELS / "raises_always.py", "noop", scenarios=[0], progress=False)
    proxy.lose_response(f"POST /v1/simulations/{simulation.id}/retry")
    retried = proxied.simulations.retry(simulation.id)
    assert proxy.count(f"POST /v1/simulations/{simulation.id}/retry") == 2
    assert [item.id for item in proxied.simulations.list(limit=5) if item.retry_of == simulation.id] == [retried.id]


def test_a_cancellation_whose_response_is_lost_is_repeated(proxied: Client, proxy: BreakingProxy) -> None:
    simulation = proxied.submit(ECHO, "noop", scenarios=range(5000), params={"sleep_ms": 20})
    proxy.lose_response(f"POST /v1/simulations/{simulation.id}/cancel")
    assert proxied.simulations.cancel(simulation.id).state in {"cancelling", "cancelled"}
    assert proxied.simulations.wait(simulation.id).state == "cancelled"


# -- platforms that die, refuse, or are no platforms


def test_a_run_survives_kill_9_of_the_platform(start_platform: StartPlatform) -> None:
    platform = start_platform()
    running, ended = threading.Event(), []

    def run() -> None:
        with Client(platform.url, patience=120.0) as client:
            on_event = lambda event: running.set() if event.type == "progress" else None  # noqa: E731
            ended.append(
                client.simulations.run(ECHO, "noop", scenarios=range(1500), params={"sleep_ms": 3}, on_event=on_event)
            )

    thread = threading.Thread(target=run)
    thread.start()
    assert running.wait(60)
    platform.crash()
    platform.start()
    thread.join(120)
    simulation: Simulation = ended[0]
    assert simulation.ok and simulation.tasks.done == 1500


def test_a_platform_that_stays_away_ends_the_patience(platform: PlatformProcess) -> None:
    proxy = BreakingProxy(platform.port)
    with Client(proxy.url, patience=1.5) as client:
        simulation = client.submit(ECHO, "noop", scenarios=range(3000), params={"sleep_ms": 10})
        events = client.simulations.events(simulation.id)
        next(events)
        proxy.close()
        began = time.monotonic()
        with pytest.raises(Interrupted, match=r"has not answered for 2 s.*goes on there"):
            list(events)
        assert time.monotonic() - began < 20
    with Client(platform.url) as client:
        client.simulations.cancel(simulation.id)


def test_an_address_at_which_nobody_listens_is_an_error_at_once() -> None:
    [port] = free_ports(1)
    with Client(f"http://127.0.0.1:{port}") as client:
        began = time.monotonic()
        for request in (client.executors, lambda: list(client.simulations.events("x")), lambda: client.run("m", "d")):
            with pytest.raises(CannotConnect, match=r"No platform answers at http.*windtunnel up.*--url"):
                request()
        assert time.monotonic() - began < 5


def test_a_token_is_asked_for_by_name_and_used(start_platform: StartPlatform) -> None:
    platform = start_platform(token="right-token-of-the-tests")
    for token in (None, "wrong"):
        with Client(platform.url, token=token) as client, pytest.raises(Refused, match="WINDTUNNEL_TOKEN") as refusal:
            client.executors()
        assert refusal.value.status == 401
    with Client(platform.url, token="right-token-of-the-tests") as client:
        assert client.executors()
        assert "right-token" not in repr(client) + repr(client.server)


PAGE = "<html><head><title>502 Bad\n Gateway</title></head><body><script>evil()</script></body></html>"


@pytest.mark.parametrize(
    ("status", "body", "headers", "error", "message"),
    [
        (502, PAGE, {"Content_Type": "text/html"}, Refused, r"answered 502: 502 Bad Gateway$"),
        (404, "", {}, Refused, r"answered 404: Not Found$"),
        (301, "", {"Location": "https://elsewhere/"}, Refused, r"redirects to https://elsewhere/; name that address"),
        (200, PAGE, {"Content_Type": "text/html"}, CannotConnect, r"not as a platform does \(text/html"),
        (200, '{"hello": "world"}', {}, WindtunnelError, r"is the address that of a platform"),
    ],
    ids=["bad gateway", "not found", "redirect", "web site", "other API"],
)
def test_what_is_not_a_platform_is_named(
    status: int, body: str, headers: dict[str, str], error: type[Exception], message: str
) -> None:
    with serving(answer(status, body, **headers)) as url, Client(url, patience=0.5) as client:
        with pytest.raises(error, match=message):
            list(client.simulations.list())


def test_a_busy_platform_is_asked_again_after_the_time_that_it_names() -> None:
    asked: list[float] = []

    def busy_twice(handler: http.server.BaseHTTPRequestHandler) -> None:
        asked.append(time.monotonic())
        busy = answer(503, '{"detail": "busy"}', Retry_After="0.6")
        (busy if len(asked) < 3 else answer(200, '{"items": [], "next": null}'))(handler)

    with serving(busy_twice) as url, Client(url) as client:
        assert list(client.simulations.list()) == []
    assert len(asked) == 3 and asked[1] - asked[0] >= 0.6


def test_lines_of_results_end_with_a_line_feed_only() -> None:
    result = {"task": 0, "status": "failed", "error": "one\u2028two\x85three\x0bfour\x1cfive"}
    with serving(answer(200, json.dumps(result, ensure_ascii=False) + "\n")) as url, Client(url) as client:
        assert [item.error for item in client.simulations.results("x")] == [result["error"]]
