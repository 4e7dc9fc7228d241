"""The platform on a cluster, as its users have it: `helm install`, the 1.0 request, gangs, warm pods, removal."""

import json
import subprocess
from pathlib import Path

import httpx
import pytest

from tests.cluster import mpi_images
from tests.cluster.cluster import Cluster
from tests.cluster.operators import training_runtime
from tests.cluster.platform_release import FINAL, PROJECT, RELEASE, Installed

PROMISE = '{"runtimePath": "tensorflow", "model_data": "car_street"}'


def promised(platform: Installed) -> str:
    """Send the 1.0 request verbatim, with the host name resolved to the Service; return the simulation's id."""
    command = ["curl", "-sS", "--connect-to", f"karrozzeria:5000:127.0.0.1:{platform.port}", "-X", "POST"]
    command += ["http://karrozzeria:5000/1.0/simluation/tests", "-d", PROMISE]
    platform.until(lambda: platform.ready, "the API answers")
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert "id" in answer, answer
    id: str = answer["id"]
    return id


def test_the_1_0_request_has_results_through_the_service_until_it_is_cancelled(platform: Installed) -> None:
    id = promised(platform)
    platform.until(lambda: platform.get(f"/v1/simulations/{id}")["tasks"]["done"] > 0, "results come")
    httpx.post(f"{platform.url}/v1/simulations/{id}/cancel", timeout=30.0).raise_for_status()
    ended = platform.ended(id)
    assert (ended["state"], ended["executor"], ended["tasks"]["total"]) == ("cancelled", "cluster", 288)
    results = platform.results(id)
    assert results and {one["status"] for one in results} == {"ok"}, results
    platform.until(lambda: not platform.left(), "nothing is left of it")


def test_the_1_0_request_runs_to_its_end(platform: Installed) -> None:
    id = promised(platform)
    ended = platform.ended(id, 400.0)
    assert (ended["state"], ended["executor"]) == ("succeeded", "cluster"), ended["reason"]
    results = platform.results(id)
    assert [one["task"] for one in results] == list(range(ended["tasks"]["total"])) and len(results) == 288
    assert [one for one in results if one["status"] != "ok"] == []
    platform.until(lambda: not platform.left(), "nothing is left of it")


def test_the_notes_of_an_anonymous_installation_name_no_token(platform: Installed) -> None:
    notes = platform.helm("get", "notes", RELEASE)
    assert "need no token" in notes and "WINDTUNNEL_TOKEN" not in notes


RING = """
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


def ring(platform: Installed, tasks: int = 4) -> str:
    """Submit a gang whose replicas must find each other; each task's total is 11."""
    gang = {"size": 2, "communication": "torch", "command": ["python", "model.py"]}
    form = {
        "dataset": "program",
        "gang": json.dumps(gang),
        "scenarios": json.dumps({"range": [0, tasks]}),
        "sweep": '{"first": [10]}',
    }
    form["placement"] = json.dumps({"cpu": 0.05, "memory": 256 << 20})
    model = {"model": ("model.py", RING.encode())}
    answer = httpx.post(f"{platform.url}/v1/simulations", data=form, files=model, timeout=60.0)
    assert answer.status_code == 201, answer.text
    id: str = answer.json()["id"]
    return id


def test_a_gang_is_submitted_in_one_request_and_its_replicas_find_each_other(platform: Installed) -> None:
    assert platform.ready
    ended = platform.ended(ring(platform), 240.0)
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(ended["id"]))
    found = [(one["status"], one["metrics"]) for one in platform.results(ended["id"])]
    assert found == [("ok", {"total": 11, "index": index}) for index in range(4)]
    platform.until(lambda: not platform.left(), "nothing is left of it")


@pytest.mark.parametrize(("code", "status"), [(0, "ok"), (3, "crashed")])
def test_a_gang_of_trainer_ends_like_its_program(
    own_cluster: Cluster, platform: Installed, code: int, status: str
) -> None:
    own_cluster.trainer()
    own_cluster.apply(training_runtime("plain"))
    program = f"import os, sys; sys.exit({code} if os.environ['PET_NNODES'] == '2' else 9)"
    gang = {"size": 2, "communication": "torch", "operator": "trainer", "runtime_ref": "plain"}
    gang |= {"image": platform.images["python"], "command": ["python", "-c", program]}
    form = {"dataset": "program", "gang": json.dumps(gang), "scenarios": '{"range": [0, 1]}'}
    form["placement"] = json.dumps({"cpu": 0.05, "memory": 128 << 20})
    model = {"model": ("model.py", RING.encode())}
    answer = httpx.post(f"{platform.url}/v1/simulations", data=form, files=model, timeout=60.0)
    assert answer.status_code == 201, answer.text
    ended = platform.ended(answer.json()["id"], 240.0)
    assert (ended["state"], ended["attempt"]) == ("succeeded", 1), (ended["reason"], platform.messages(ended["id"]))
    assert [one["status"] for one in platform.results(ended["id"])] == [status]
    platform.until(lambda: not platform.left(), "nothing is left of it")


def test_a_gang_of_the_mpi_operator_ends_like_its_program(
    own_cluster: Cluster, platform: Installed, tmp_path: Path
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
        model = {"model": ("model.py", RING.encode())}
        answer = httpx.post(f"{platform.url}/v1/simulations", data=form, files=model, timeout=60.0)
        assert answer.status_code == 201, answer.text
        ids[answer.json()["id"]] = status
    for id, status in ids.items():
        ended = platform.ended(id, 240.0)
        assert (ended["state"], ended["attempt"]) == ("succeeded", 1), (ended["reason"], platform.messages(id))
        assert [one["status"] for one in platform.results(id)] == [status]
    platform.until(lambda: not platform.left(), "nothing is left of them")


def test_a_warm_pod_is_used_and_replaced_and_deleted_when_the_option_is_removed(platform: Installed) -> None:
    platform.option(warm=[{"project": "default", "runtime": "python", "dataset": "noop"}])
    platform.until(lambda: len(platform.waiting()) == 1, "a pod waits")
    (first,) = platform.waiting()
    path = f"/apis/jobset.x-k8s.io/v1alpha2/namespaces/{PROJECT}/jobsets/wt-{first}"
    asked = {"dataset": "noop", "runtime": "python", "params": {"sleep_ms": 5}, "scenarios": {"range": [0, 600]}}
    used: list[str] = []

    def use() -> bool:
        id = platform.submit(**asked, workers=1)
        while (found := platform.get(f"/v1/simulations/{id}"))["state"] not in FINAL:
            labels = (platform.cluster.get(path) or {"metadata": {"labels": {}}})["metadata"]["labels"]
            used.extend([id] if labels.get("windtunnel/simulation") == id else [])
        assert found["state"] == "succeeded", found["reason"]
        assert [one["task"] for one in platform.results(id)] == list(range(600))
        return bool(used)

    platform.until(use, "the dispatcher has seen that it is ready")
    platform.until(lambda: platform.waiting() and first not in platform.waiting(), "another waits")
    platform.option(warm=[])
    platform.until(lambda: not platform.left(), "nothing waits where nobody asks for it")
