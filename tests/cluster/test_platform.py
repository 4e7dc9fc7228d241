"""The platform on a cluster after `helm install`: the 1.0 request, gangs, warm pods, removal."""

import json
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.cluster import mpi_images
from tests.cluster.cluster import Cluster
from tests.cluster.operators import training_runtime
from tests.cluster.platform_release import FINAL, PROJECT, RELEASE, PlatformRelease

REQUEST_1_0 = '{"runtimePath": "tensorflow", "model_data": "car_street"}'


def submit_1_0_request(platform: PlatformRelease) -> str:
    """Send the 1.0 request verbatim, with the host name resolved to the Service; return the simulation's id."""
    command = ["curl", "-sS", "--connect-to", f"karrozzeria:5000:127.0.0.1:{platform.port}", "-X", "POST"]
    command += ["http://karrozzeria:5000/1.0/simluation/tests", "-d", REQUEST_1_0]
    platform.until(lambda: platform.ready, "the API answers")
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert "id" in answer, answer
    id: str = answer["id"]
    return id


def test_the_1_0_request_has_results_through_the_service_until_it_is_cancelled(platform: PlatformRelease) -> None:
    id = submit_1_0_request(platform)
    platform.until(lambda: platform.get(f"/v1/simulations/{id}")["tasks"]["done"] > 0, "a task is done")
    httpx.post(f"{platform.url}/v1/simulations/{id}/cancel", timeout=30.0).raise_for_status()
    ended = platform.wait_for_end(id)
    assert (ended["state"], ended["executor"], ended["tasks"]["total"]) == ("cancelled", "cluster", 288)
    results = platform.results(id)
    assert results and {result["status"] for result in results} == {"ok"}, results
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


def test_the_1_0_request_runs_to_its_end(platform: PlatformRelease) -> None:
    id = submit_1_0_request(platform)
    ended = platform.wait_for_end(id, 400.0)
    assert (ended["state"], ended["executor"]) == ("succeeded", "cluster"), ended["reason"]
    results = platform.results(id)
    assert [result["task"] for result in results] == list(range(ended["tasks"]["total"])) and len(results) == 288
    assert [result for result in results if result["status"] != "ok"] == []
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


def test_the_notes_of_an_anonymous_installation_name_no_token(platform: PlatformRelease) -> None:
    notes = platform.helm("get", "notes", RELEASE)
    assert "need no token" in notes and "WINDTUNNEL_TOKEN" not in notes


GANG_PROGRAM = """
import json, os, socket
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
task = json.load(open(os.environ["WINDTUNNEL_SCENARIO"]))
if rank == 0:
    server = socket.create_server(("", int(os.environ["MASTER_PORT"])))
    total = task["params"]["first"]
    for _ in range(size - 1):
        peer, _ = server.accept()
        total += int(peer.recv(64))
        peer.close()
    json.dump({"total": total, "index": task["index"]}, open(os.environ["WINDTUNNEL_RESULT"], "w"))
else:
    while True:
        try:
            master = socket.create_connection((os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])), 5)
            break
        except OSError:
            continue
    master.sendall(str(rank).encode())
    master.close()
"""


def submit_gang(platform: PlatformRelease, tasks: int = 4) -> str:
    """Submit a gang whose replicas must connect to each other; each task's total is 11."""
    gang = {"size": 2, "communication": "torch", "command": ["python", "model.py"]}
    form = {
        "dataset": "program",
        "gang": json.dumps(gang),
        "scenarios": json.dumps({"range": [0, tasks]}),
        "sweep": '{"first": [10]}',
    }
    form["placement"] = json.dumps({"cpu": 0.05, "memory": 256 << 20})
    model = {"model": ("model.py", GANG_PROGRAM.encode())}
    answer = httpx.post(f"{platform.url}/v1/simulations", data=form, files=model, timeout=60.0)
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


def test_a_gang_is_submitted_in_one_request_and_its_replicas_find_each_other(platform: PlatformRelease) -> None:
    assert platform.ready
    ended = platform.wait_for_end(submit_gang(platform), 240.0)
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(ended["id"]))
    outcomes = [(result["status"], result["metrics"]) for result in platform.results(ended["id"])]
    assert outcomes == [("ok", {"total": 11, "index": index}) for index in range(4)]
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


@pytest.mark.parametrize(("code", "status"), [(0, "ok"), (3, "crashed")])
def test_a_gang_of_trainer_ends_like_its_program(
    own_cluster: Cluster, platform: PlatformRelease, code: int, status: str
) -> None:
    own_cluster.trainer()
    own_cluster.apply(training_runtime("plain"))
    program = f"import os, sys; sys.exit({code} if os.environ['PET_NNODES'] == '2' else 9)"
    gang = {"size": 2, "communication": "torch", "operator": "trainer", "runtime_ref": "plain"}
    gang |= {"image": platform.images["python"], "command": ["python", "-c", program]}
    form = {"dataset": "program", "gang": json.dumps(gang), "scenarios": '{"range": [0, 1]}'}
    form["placement"] = json.dumps({"cpu": 0.05, "memory": 128 << 20})
    model = {"model": ("model.py", GANG_PROGRAM.encode())}
    answer = httpx.post(f"{platform.url}/v1/simulations", data=form, files=model, timeout=60.0)
    assert answer.status_code == 201, answer.text
    ended = platform.wait_for_end(answer.json()["id"], 240.0)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1), (ended["reason"], platform.messages(ended["id"]))
    assert [result["status"] for result in platform.results(ended["id"])] == [status]
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


def test_a_gang_of_the_mpi_operator_ends_like_its_program(
    own_cluster: Cluster, platform: PlatformRelease, tmp_path: Path
) -> None:
    own_cluster.mpi_operator()
    image, archive = mpi_images.write("openmpi", tmp_path)
    own_cluster.import_image(archive)
    program = "from mpi4py import MPI; w = MPI.COMM_WORLD; exit({} if (w.allreduce(w.rank), w.size) == (6, 4) else 9)"
    ids = {}
    for code, status in ((0, "ok"), (3, "crashed")):
        gang = {"size": 2, "slots": 2, "communication": "mpi", "operator": "mpi-operator", "image": image}
        gang |= {"command": ["python", "-c", program.format(code)]}
        form = {"dataset": "program", "gang": json.dumps(gang), "scenarios": '{"range": [0, 1]}'}
        form["placement"] = json.dumps({"cpu": 0.05, "memory": 256 << 20})
        model = {"model": ("model.py", GANG_PROGRAM.encode())}
        answer = httpx.post(f"{platform.url}/v1/simulations", data=form, files=model, timeout=60.0)
        assert answer.status_code == 201, answer.text
        ids[answer.json()["id"]] = status
    for id, status in ids.items():
        ended = platform.wait_for_end(id, 240.0)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1), (ended["reason"], platform.messages(id))
        assert [result["status"] for result in platform.results(id)] == [status]
    platform.until(lambda: not platform.remaining_objects(), "all of their objects are deleted")


def test_a_warm_pod_is_used_and_replaced_and_deleted_when_the_option_is_removed(platform: PlatformRelease) -> None:
    platform.set_executor_options(warm=[{"project": "default", "runtime": "python", "dataset": "noop"}])
    platform.until(lambda: len(platform.ready_warm_launches()) == 1, "a warm pod is ready")
    (first,) = platform.ready_warm_launches()
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{PROJECT}/jobsets/wt-{first}"
    request = {"dataset": "noop", "runtime": "python", "params": {"sleep_ms": 5}, "scenarios": {"range": [0, 600]}}
    simulations_in_warm_pod: list[str] = []

    def uses_warm_pod() -> bool:
        id = platform.submit(**request, workers=1)
        while (simulation := platform.get(f"/v1/simulations/{id}"))["state"] not in FINAL:
            labels = (platform.cluster.get(path) or {"metadata": {"labels": {}}})["metadata"]["labels"]
            simulations_in_warm_pod.extend([id] if labels.get("windtunnel/simulation") == id else [])
        assert simulation["state"] == "succeeded", simulation["reason"]
        assert [result["task"] for result in platform.results(id)] == list(range(600))
        return bool(simulations_in_warm_pod)

    platform.until(uses_warm_pod, "the dispatcher uses the warm pod")
    platform.until(
        lambda: platform.ready_warm_launches() and first not in platform.ready_warm_launches(),
        "another warm pod is ready",
    )
    platform.set_executor_options(warm=[])
    platform.until(lambda: not platform.remaining_objects(), "no warm pod exists without the option")
