"""A pod of runner, evaluator and model server as three containers: whichever ends, every task has one result."""

import os
import signal
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from datasets.catalogue import datasets
from datasets.versions import scenario_folder
from tests.contracts.harness_processes import play_of
from tests.system.pod import SITE, USERS, Container, Image, Pod
from tests.system.runner_api import LAUNCH, TOKEN, RunnerApi
from tests.waiting import until

ZERO = (Path(__file__).parents[2] / "runtimes" / "baselines" / "zero.py").read_bytes()
DONE, BEREFT, STOPPED = 0, 77, 143


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """An interpreter that the users of all containers may run."""
    folder = tmp_path_factory.mktemp("image")
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.geteuid() and len(parent.parts) > 2:
            parent.chmod(parent.stat().st_mode | 0o055)
    return Image(folder)


@pytest.fixture
def runner_api(tmp_path: Path) -> Iterator[Callable[..., RunnerApi]]:
    made: list[RunnerApi] = []

    def make(total: int, model: bytes = ZERO, *, launched: bool = True, **params: Any) -> RunnerApi:
        play = play_of("noop", select={"range": [0, total]}, params=params) | {"params": params}
        packed = scenario_folder.pack(datasets()["noop"].folder)
        made.append(RunnerApi(tmp_path, total=total, play=play, model=model, packed=packed, launched=launched))
        return made[-1]

    yield make
    for one in made:
        one.close()


@pytest.fixture
def pod(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Pod]]:
    made: list[Pod] = []

    def make(runner_api: RunnerApi, **document: Any) -> Pod:
        folder = tmp_path_factory.mktemp("pod")
        spec = {"format": "python", "isolation": "launch"} | document.pop("worker_spec", {})
        made.append(Pod(image, folder, {"id": LAUNCH, "url": runner_api.url, "worker_spec": spec} | document, TOKEN))
        return made[-1]

    yield make
    for one in made:
        one.end()


def work_off(one: Pod, runner_api: RunnerApi) -> None:
    """Act as the dispatcher until the runner has ended."""
    runner_api.settle_until_exit(one.runner.process)


def test_evaluator_and_model_server_of_a_pod_are_pinned_to_the_same_core(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(20_000, sleep_ms=5)
    one = pod(at)

    def cores() -> set[str]:
        pids = [pid for container in one.containers[1:] for pid in container.children()]
        said = [Path(f"/proc/{pid}/status").read_text() for pid in pids]
        return {text.partition("Cpus_allowed_list:")[2].split()[0] for text in said}

    until(lambda: "report" in at.asked)
    # the model server in reserve is on none
    until(lambda: any(name.isdigit() for name in cores()) or len(os.sched_getaffinity(0)) == 1)
    one.runner.send(signal.SIGTERM)
    for container in one.containers:
        container.wait()


def test_every_task_has_one_result_and_the_three_containers_end_in_order(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(3000)
    one = pod(at)
    work_off(one, at)
    codes = [container.wait() for container in one.containers]
    assert codes == [DONE, DONE, DONE], [container.said for container in one.containers]
    results = at.results()
    assert [result["task"] for result in results] == list(range(3000))
    assert {result["status"] for result in results} == {"ok"}
    assert one.runner.said.count("its sandbox level is 2") == 2


def test_a_killed_evaluator_costs_no_result(runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]) -> None:
    at = runner_api(400, sleep_ms=5)
    one = pod(at)
    until(lambda: at.held() == 2)  # so that the evaluator that is killed, whichever it is, works on a lease
    os.kill(one.evaluator.children()[0], signal.SIGKILL)
    work_off(one, at)
    assert [container.wait() for container in one.containers] == [DONE] * 3
    assert [(result["task"], result["status"]) for result in at.results()] == [(task, "ok") for task in range(400)]
    assert "death" in at.asked
    assert "the simulator's process ended: killed by SIGKILL" in at.logs()


def test_a_killed_model_server_costs_only_its_current_scenario(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(400, sleep_ms=5)
    one = pod(at)
    until(lambda: "report" in at.asked)
    for pid in one.model_server.children()[:2]:
        os.kill(pid, signal.SIGKILL)
    work_off(one, at)
    assert [container.wait() for container in one.containers] == [DONE] * 3
    results = at.results()
    assert [result["task"] for result in results] == list(range(400))
    assert sum(result["status"] == "crashed" for result in results) <= 2
    assert {result["status"] for result in results} <= {"ok", "crashed"}


@pytest.mark.parametrize("name", ["evaluator", "model_server"])
def test_a_killed_container_ends_the_pod_and_no_task_is_blamed(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod], name: str
) -> None:
    at = runner_api(400, sleep_ms=5)
    one = pod(at)
    until(lambda: "report" in at.asked)
    getattr(one, name).send(signal.SIGKILL)
    codes = {container.name: container.wait() for container in one.containers}
    assert codes.pop("runner") == BEREFT, one.runner.said
    assert f"the {name} container ended" in one.runner.said
    del codes[name]
    assert list(codes.values()) == [DONE]  # the third has gone with its runner
    assert "death" not in at.asked
    at.release()
    following = pod(at)
    work_off(following, at)
    assert [(result["task"], result["status"]) for result in at.results()] == [(task, "ok") for task in range(400)]


def test_a_killed_runner_leaves_no_process_and_another_continues(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(400, sleep_ms=5)
    one = pod(at)
    until(lambda: "report" in at.asked)
    one.runner.send(signal.SIGKILL)
    assert [container.wait() for container in (one.evaluator, one.model_server)] == [DONE, DONE]
    at.release()
    work_off(pod(at), at)
    assert [(result["task"], result["status"]) for result in at.results()] == [(task, "ok") for task in range(400)]


def test_a_pod_that_is_stopped_reports_finished_tasks_and_releases_the_rest(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(400, sleep_ms=20)
    one = pod(at)
    until(lambda: "report" in at.asked)
    for container in one.containers:
        container.send(signal.SIGTERM)
    codes = [container.wait() for container in one.containers]
    assert codes == [STOPPED, DONE, DONE], one.runner.said
    assert at.asked.count("leave") == 1
    assert "death" not in at.asked
    assert at.held() == 0  # nobody waits for the leases to lapse
    work_off(pod(at), at)
    assert [(result["task"], result["status"]) for result in at.results()] == [(task, "ok") for task in range(400)]


def test_a_second_container_init_and_a_stranger_are_refused(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(400, sleep_ms=5)
    one = pod(at)
    until(lambda: "report" in at.asked)
    for user in (os.geteuid(), USERS["model_server"], USERS["evaluator"]):
        assert turned_away(one.sockets / "runner.sock", user), f"user {user} was let in"
    work_off(one, at)
    assert len(at.results()) == 400


def turned_away(path: Path, user: int) -> bool:
    """Return whether the runner closes the connection of a user."""
    child = os.fork()
    if child == 0:
        os.setresuid(user, user, user)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as end:
            end.settimeout(10.0)
            end.connect(str(path))
            os._exit(0 if end.recv(1) == b"" else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_container_inits_without_a_runner_end_at_once(image: Image, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as gone:
        gone.bind(str(tmp_path / "runner.sock"))
    (tmp_path / "runner.sock").chmod(0o666)
    for parent in (tmp_path, *list(tmp_path.parents)[:3]):
        if len(parent.parts) > 2:
            parent.chmod(0o755)
    post = Container(
        image,
        "model_server",
        ["-m", "runtimes.harness.runner.container_init", "model_server", "--sockets", str(tmp_path), "--site", SITE],
    )
    assert post.wait() == 0


def test_a_runner_that_cannot_read_its_launch_ends_its_pod(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    one = pod(runner_api(10), workers="many")
    assert one.runner.wait() == 76
    assert "cannot be read" in one.runner.said
    assert all(container.wait() in {0, 75} for container in (one.evaluator, one.model_server))


#: What a runner must know of its launch before there is one.
NOOP = {"world": {"simulator": "noop", "package": None}}


def waiting(one: Pod) -> None:
    """Wait until a warm pod has its evaluator and its model server."""
    until(lambda: len(one.evaluator.children()) >= 2 and len(one.model_server.children()) >= 2)


def test_a_warm_pod_has_started_its_processes_and_begins_with_its_launch(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(300, launched=False)
    one = pod(at, warm=True, worker_spec=NOOP)
    waiting(one)
    until(lambda: "wait" in at.asked)
    assert set(at.asked) == {"wait"}, "it asks for nothing else, and is told nothing"
    before = one.evaluator.children()
    at.launch()
    work_off(one, at)
    assert [container.wait() for container in one.containers] == [DONE] * 3, [each.said for each in one.containers]
    assert [(result["task"], result["status"]) for result in at.results()] == [(task, "ok") for task in range(300)]
    assert at.asked[0] == "wait" and "the warm runner waits for its launch" in one.runner.said and before


def test_a_warm_pod_ends_completely_when_it_is_stopped(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    one = pod(runner_api(10, launched=False), warm=True, worker_spec=NOOP)
    waiting(one)
    for container in one.containers:
        container.send(signal.SIGTERM)
    assert [container.wait() for container in one.containers] == [STOPPED, DONE, DONE]


def test_a_warm_pod_survives_an_outage_of_the_runner_api(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(10, launched=False)
    at.shut()
    one = pod(at, warm=True, worker_spec=NOOP)
    waiting(one)
    at.open()
    until(lambda: "wait" in at.asked)
    at.launch()
    work_off(one, at)
    assert one.runner.wait() == DONE and len(at.results()) == 10


def test_a_warm_pod_whose_launch_another_pod_took_ends_silently(
    runner_api: Callable[..., RunnerApi], pod: Callable[..., Pod]
) -> None:
    at = runner_api(10, launched=False)
    one = pod(at, warm=True, worker_spec=NOOP)
    at.launch(token="another")
    assert one.runner.wait() == DONE and "401" in one.runner.said
    assert set(at.asked) == {"wait"}
