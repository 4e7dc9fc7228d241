"""A pod of runner, evaluator and model server as three containers: every task has one result, whichever ends."""

import os
import shutil
import signal
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from core.domain.access.scopes import PLATFORM
from core.store import simulations
from datasets.catalogue import datasets
from datasets.versions import scenario_folder
from datasets.versions.archives.tar_writer import MeasuredTar
from tests.archives import zipped
from tests.contracts.harness_processes import play_of
from tests.simulators.test_onnx_models import model as onnx_model
from tests.simulators.test_onnx_models import onnx_site
from tests.system.pod import SITE, USERS, Container, Image, Pod
from tests.system.runner_api import LAUNCH, SIMULATION, TOKEN, RunnerApi
from tests.waiting import until

ZERO_MODEL = (Path(__file__).parents[2] / "runtimes/harness/simulators/noop/baselines/zero.py").read_bytes()
EXIT_DONE, EXIT_CONTAINER_ENDED, EXIT_STOPPED = 0, 77, 143


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Image:
    """An interpreter that the users of all containers may run."""
    folder = tmp_path_factory.mktemp("image")
    for parent in (folder, *folder.parents):
        if parent.stat().st_uid == os.geteuid() and len(parent.parts) > 2:
            parent.chmod(parent.stat().st_mode | 0o055)
    return Image(folder)


@pytest.fixture
def start_runner_api(tmp_path: Path) -> Iterator[Callable[..., RunnerApi]]:
    apis: list[RunnerApi] = []

    def make(
        total: int,
        model: bytes = ZERO_MODEL,
        *,
        launched: bool = True,
        trusted: bool = False,
        environment: bytes | None = None,
        **params: Any,
    ) -> RunnerApi:
        play = play_of("noop", select={"range": [0, total]}, params=params) | {"params": params, "trusted": trusted}
        bundles = {"packed": scenario_folder.pack(datasets()["noop"].folder), "environment": environment}
        folder = tmp_path / str(len(apis))
        folder.mkdir()
        apis.append(RunnerApi(folder, total=total, play=play, model=model, launched=launched, **bundles))
        return apis[-1]

    yield make
    for api in apis:
        api.close()


@pytest.fixture
def start_pod(image: Image, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Pod]]:
    pods: list[Pod] = []

    def make(runner_api: RunnerApi, **document: Any) -> Pod:
        folder = tmp_path_factory.mktemp("pod")
        spec = {"format": "python", "isolation": "launch"} | document.pop("worker_spec", {})
        options = {name: document.pop(name) for name in ("model_site", "trusted") if name in document}
        whole = {"id": LAUNCH, "url": runner_api.url, "worker_spec": spec} | document
        pods.append(Pod(image, folder, whole, TOKEN, **options))
        return pods[-1]

    yield make
    for started in pods:
        started.end()


def run_to_end(pod: Pod, runner_api: RunnerApi) -> None:
    """Do the dispatcher's part until the runner has exited."""
    runner_api.settle_until_exit(pod.runner.process)


def test_evaluator_and_model_server_of_a_pod_are_pinned_to_the_same_core(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(20_000, sleep_ms=5)
    pod = start_pod(runner_api)

    def pinned_cores(container: Container) -> set[str]:
        statuses = [Path(f"/proc/{pid}/status").read_text() for pid in container.children()]
        allowed = {text.partition("Cpus_allowed_list:")[2].split()[0] for text in statuses}
        return {cores for cores in allowed if cores.isdigit()}  # a spare process is not pinned to any core

    until(lambda: "report" in runner_api.requests)
    _, evaluators, model_servers = pod.containers
    until(lambda: (cores := pinned_cores(evaluators)) and cores == pinned_cores(model_servers))
    pod.runner.send(signal.SIGTERM)
    for container in pod.containers:
        container.wait()


def test_every_task_has_one_result_and_the_three_containers_exit_with_code_0(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(3000)
    pod = start_pod(runner_api)
    run_to_end(pod, runner_api)
    codes = [container.wait() for container in pod.containers]
    assert codes == [EXIT_DONE, EXIT_DONE, EXIT_DONE], [container.output for container in pod.containers]
    results = runner_api.results()
    assert [result["task"] for result in results] == list(range(3000))
    assert {result["status"] for result in results} == {"ok"}
    assert pod.runner.output.count("its sandbox level is 2") == 2


@pytest.mark.parametrize("format", ["python", "onnx"])
def test_a_trusted_model_is_loaded_in_the_container_of_evaluators(
    format: str, image: Image, start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    """The packages of the format onnx come from the image of model servers, those of python are there."""
    model, site = ZERO_MODEL, SITE
    if format == "onnx":
        model, site = onnx_model("gru"), str(image.root.parent / "onnx")
        shutil.copytree(onnx_site(), site)
    results = {}
    for trusted in (False, True):
        runner_api = start_runner_api(200, model, trusted=trusted)
        spec = {"format": format, "trusted": trusted}
        pod = start_pod(runner_api, worker_spec=spec, model_site=site, trusted=trusted and site != SITE)
        run_to_end(pod, runner_api)
        assert [container.wait() for container in pod.containers] == [EXIT_DONE] * 3, pod.runner.output
        results[trusted] = [result | {"timing": None} for result in runner_api.results()]
    assert results[True] == results[False] and {result["status"] for result in results[True]} == {"ok"}


def test_a_model_that_is_an_archive_is_unpacked_in_its_pod_and_loads_its_shared_library(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    (tmp_path / "four.c").write_text("int four(void) { return 4; }")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", tmp_path / "four.so", tmp_path / "four.c"], check=True)
    model = b"""
import ctypes, os
FOUR = ctypes.CDLL(os.path.join(os.path.dirname(__file__), "four.so")).four()
class Model:
    def act(self, observation):
        return [FOUR, 0, 0, 0]
"""
    packed = zipped({"model.py": model, "four.so": (tmp_path / "four.so").read_bytes()})
    runner_api = start_runner_api(50, packed)
    pod = start_pod(runner_api)
    run_to_end(pod, runner_api)
    assert [container.wait() for container in pod.containers] == [EXIT_DONE] * 3, pod.runner.output
    assert {result["metrics"]["value"] for result in runner_api.results()} == {4.0}


def test_an_archive_that_cannot_be_unpacked_is_refused_by_its_pod_with_the_reason(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(50, zipped({"../model.py": ZERO_MODEL}))
    pod = start_pod(runner_api)
    run_to_end(pod, runner_api)
    assert [container.wait() for container in pod.containers] == [EXIT_DONE] * 3, pod.runner.output
    with runner_api.database.read() as c:
        row = simulations.find(c, PLATFORM, SIMULATION)
    assert row.outcome == "failed" and "leads out of its folder" in row.reason


def test_a_model_with_packages_of_its_own_runs_on_them_in_its_pod(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod], tmp_path: Path
) -> None:
    site = tmp_path / "tree" / "site"
    for name in ("msgspec", "numpy", "numpy.libs"):
        shutil.copytree(Path(SITE, name), site / name)
    (site / "alpha.py").write_text("VERSION = 7.0\n")
    model = b"import alpha\nclass Model:\n    def act(self, observation):\n        return [alpha.VERSION, 0, 0, 0]\n"
    runner_api = start_runner_api(50, model, environment=b"".join(MeasuredTar(tmp_path / "tree")))
    pod = start_pod(runner_api)
    run_to_end(pod, runner_api)
    assert [container.wait() for container in pod.containers] == [EXIT_DONE] * 3, pod.runner.output
    assert {result["metrics"]["value"] for result in runner_api.results()} == {7.0}


def test_a_killed_evaluator_costs_no_result(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(400, sleep_ms=5)
    pod = start_pod(runner_api)
    until(
        lambda: runner_api.count_leases() == 2
    )  # so that the evaluator that is killed, whichever it is, works on a lease
    os.kill(pod.evaluator.children()[0], signal.SIGKILL)
    run_to_end(pod, runner_api)
    assert [container.wait() for container in pod.containers] == [EXIT_DONE] * 3
    assert [(result["task"], result["status"]) for result in runner_api.results()] == [
        (task, "ok") for task in range(400)
    ]
    assert "death" in runner_api.requests
    assert "the simulator's process ended: killed by SIGKILL" in runner_api.logs()


def test_a_killed_model_server_costs_only_its_current_scenario(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(400, sleep_ms=5)
    pod = start_pod(runner_api)
    until(lambda: "report" in runner_api.requests)
    for pid in pod.model_server.children()[:2]:
        os.kill(pid, signal.SIGKILL)
    run_to_end(pod, runner_api)
    assert [container.wait() for container in pod.containers] == [EXIT_DONE] * 3
    results = runner_api.results()
    assert [result["task"] for result in results] == list(range(400))
    assert sum(result["status"] == "crashed" for result in results) <= 2
    assert {result["status"] for result in results} <= {"ok", "crashed"}


@pytest.mark.parametrize("name", ["evaluator", "model_server"])
def test_a_killed_container_ends_the_pod_and_no_task_is_blamed(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod], name: str
) -> None:
    runner_api = start_runner_api(400, sleep_ms=5)
    pod = start_pod(runner_api)
    until(lambda: "report" in runner_api.requests)
    getattr(pod, name).send(signal.SIGKILL)
    codes = {container.name: container.wait() for container in pod.containers}
    assert codes.pop("runner") == EXIT_CONTAINER_ENDED, pod.runner.output
    assert f"the {name} container ended" in pod.runner.output
    del codes[name]
    assert list(codes.values()) == [EXIT_DONE]  # the third container ends with its runner
    assert "death" not in runner_api.requests
    runner_api.release()
    following = start_pod(runner_api)
    run_to_end(following, runner_api)
    assert [(result["task"], result["status"]) for result in runner_api.results()] == [
        (task, "ok") for task in range(400)
    ]


def test_a_killed_runner_leaves_no_process_and_the_next_runner_continues(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(400, sleep_ms=5)
    pod = start_pod(runner_api)
    until(lambda: "report" in runner_api.requests)
    pod.runner.send(signal.SIGKILL)
    assert [container.wait() for container in (pod.evaluator, pod.model_server)] == [EXIT_DONE, EXIT_DONE]
    runner_api.release()
    run_to_end(start_pod(runner_api), runner_api)
    assert [(result["task"], result["status"]) for result in runner_api.results()] == [
        (task, "ok") for task in range(400)
    ]


def test_a_pod_that_is_stopped_reports_finished_tasks_and_releases_the_rest(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(400, sleep_ms=20)
    pod = start_pod(runner_api)
    until(lambda: "report" in runner_api.requests)
    for container in pod.containers:
        container.send(signal.SIGTERM)
    codes = [container.wait() for container in pod.containers]
    assert codes == [EXIT_STOPPED, EXIT_DONE, EXIT_DONE], pod.runner.output
    assert runner_api.requests.count("leave") == 1
    assert "death" not in runner_api.requests
    assert runner_api.count_leases() == 0  # the leases are released, not left to expire
    run_to_end(start_pod(runner_api), runner_api)
    assert [(result["task"], result["status"]) for result in runner_api.results()] == [
        (task, "ok") for task in range(400)
    ]


def test_connections_from_other_processes_are_refused(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(400, sleep_ms=5)
    pod = start_pod(runner_api)
    until(lambda: "report" in runner_api.requests)
    for user in (os.geteuid(), USERS["model_server"], USERS["evaluator"]):
        assert is_refused(pod.sockets / "runner.sock", user), f"a connection of user {user} is accepted"
    run_to_end(pod, runner_api)
    assert len(runner_api.results()) == 400


def is_refused(path: Path, user: int) -> bool:
    """Return whether the runner closes a connection that a process of this user opens."""
    child = os.fork()
    if child == 0:
        os.setresuid(user, user, user)
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.settimeout(10.0)
            connection.connect(str(path))
            os._exit(0 if connection.recv(1) == b"" else 1)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_container_inits_without_a_runner_end_at_once(image: Image, tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as closed_socket:
        closed_socket.bind(str(tmp_path / "runner.sock"))
    (tmp_path / "runner.sock").chmod(0o666)
    for parent in (tmp_path, *list(tmp_path.parents)[:3]):
        if len(parent.parts) > 2:
            parent.chmod(0o755)
    container = Container(
        image,
        "model_server",
        ["-m", "runtimes.harness.runner.container_init", "model_server", "--sockets", str(tmp_path), "--site", SITE],
    )
    assert container.wait() == 0


def test_a_runner_that_cannot_read_its_launch_ends_its_pod(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    pod = start_pod(start_runner_api(10), workers="many")
    assert pod.runner.wait() == 76
    assert "cannot be read" in pod.runner.output
    assert all(container.wait() in {0, 75} for container in (pod.evaluator, pod.model_server))


#: The part of a worker spec that a warm runner has before its launch.
WARM_SPEC = {"world": {"simulator": "noop", "package": None}}


def wait_until_warm(pod: Pod) -> None:
    """Wait until a warm pod has its evaluator and its model server."""
    until(lambda: len(pod.evaluator.children()) >= 2 and len(pod.model_server.children()) >= 2)


def test_a_warm_pod_starts_its_processes_before_its_launch_and_runs_the_launch_when_it_comes(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(300, launched=False)
    pod = start_pod(runner_api, warm=True, worker_spec=WARM_SPEC)
    wait_until_warm(pod)
    until(lambda: "wait" in runner_api.requests)
    assert set(runner_api.requests) == {"wait"}, "a warm runner sends no other request before its launch"
    before = pod.evaluator.children()
    runner_api.launch()
    run_to_end(pod, runner_api)
    assert [container.wait() for container in pod.containers] == [EXIT_DONE] * 3, [
        container.output for container in pod.containers
    ]
    assert [(result["task"], result["status"]) for result in runner_api.results()] == [
        (task, "ok") for task in range(300)
    ]
    assert runner_api.requests[0] == "wait" and "the warm runner waits for its launch" in pod.runner.output and before


def test_a_warm_pod_ends_completely_when_it_is_stopped(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    pod = start_pod(start_runner_api(10, launched=False), warm=True, worker_spec=WARM_SPEC)
    wait_until_warm(pod)
    for container in pod.containers:
        container.send(signal.SIGTERM)
    assert [container.wait() for container in pod.containers] == [EXIT_STOPPED, EXIT_DONE, EXIT_DONE]


def test_a_warm_pod_survives_an_outage_of_the_runner_api(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(10, launched=False)
    runner_api.stop_listening()
    pod = start_pod(runner_api, warm=True, worker_spec=WARM_SPEC)
    wait_until_warm(pod)
    runner_api.listen()
    until(lambda: "wait" in runner_api.requests)
    runner_api.launch()
    run_to_end(pod, runner_api)
    assert pod.runner.wait() == EXIT_DONE and len(runner_api.results()) == 10


def test_a_warm_pod_whose_launch_was_given_to_another_pod_exits_without_a_report(
    start_runner_api: Callable[..., RunnerApi], start_pod: Callable[..., Pod]
) -> None:
    runner_api = start_runner_api(10, launched=False)
    pod = start_pod(runner_api, warm=True, worker_spec=WARM_SPEC)
    runner_api.launch(token="another")
    assert pod.runner.wait() == EXIT_DONE and "401" in pod.runner.output
    assert set(runner_api.requests) == {"wait"}
