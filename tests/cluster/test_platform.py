"""The platform on a cluster after `helm install`: the 1.0 request, gangs, warm pods, removal."""

import json
import subprocess
from pathlib import Path
from typing import Any

import httpx
import pytest

from runtimes.dependencies.installer import PUBLIC_INDEX
from tests.cluster import mpi_images
from tests.cluster.cluster import Cluster
from tests.cluster.operators import training_runtime
from tests.cluster.platform_release import FINAL, OPERATOR_LABELS, PROJECT, RELEASE, PlatformRelease
from tests.contracts.package_index import PackageIndex, wheel

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


#: Names that the executor's allow-list does not have, by option of `placement`.
REFUSED: dict[str, object] = {
    "resources": {"smarter-devices/fuse": "1"},
    "networks": ["kube-system/host"],
    "claims": {"device": "every-gpu"},
    "annotations": {"container.apparmor.security.beta.kubernetes.io/runner": "unconfined"},
    "node_selector": {"node-role.kubernetes.io/control-plane": ""},
    "exclusive": "topology.kubernetes.io/zone",
    "queue": "production",
    "priority": "system-node-critical",
}
#: A placement that needs nothing of the cluster but a priority class, and selects nodes outside of the operator's.
SELECTIVE = {"cpu": 0.05, "memory": 128 << 20, "priority": "simulations-low", "networks": ["fast"]}
SELECTIVE |= {"annotations": {"example.com/team": "a"}, "node_selector": {"kubernetes.io/os": "windows"}}
#: A placement whose pods are created and wait for devices that no node has.
DEMANDING = {
    "resources": {"example.com/gpu": "1"},
    "claims": {"device": "one-gpu"},
    "exclusive": "kubernetes.io/hostname",
}


def test_names_that_the_operator_has_not_allowed_are_refused_and_reach_no_pod(platform: PlatformRelease) -> None:
    platform.until(lambda: platform.ready, "the API answers")
    request = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 1]}}
    attempts = {f"placement.{option}": {"placement": {option: value}} for option, value in REFUSED.items()}
    gang = {"size": 1, "command": ["x"], "operator": "trainer", "runtime_ref": "privileged"}
    attempts |= {"gang.runtime_ref": {"dataset": "program", "gang": gang}}
    for path, changes in attempts.items():
        answer = httpx.post(f"{platform.url}/v1/simulations", json=request | changes, timeout=60.0)
        assert (answer.status_code, answer.headers["Content-Type"]) == (422, "application/problem+json"), answer.text
        assert answer.json()["type"] == "/problems/not-allowed", answer.text
        assert f"executors.cluster.allowed.{path.partition('.')[2]}" in answer.json()["detail"]
        assert answer.json()["errors"][0].startswith(f"{path}: ")
    multus = {"placement": {"annotations": {"k8s.v1.cni.cncf.io/networks": "fast"}}}
    assert httpx.post(f"{platform.url}/v1/simulations", json=request | multus, timeout=60.0).status_code == 422
    assert not platform.remaining_objects()


def test_allowed_names_are_on_the_pods_and_the_operators_node_labels_win(platform: PlatformRelease) -> None:
    priority = {"metadata": {"name": "simulations-low"}, "value": 10, "description": "for tests of allow-lists"}
    platform.cluster.apply({"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"} | priority)
    request = {"dataset": "noop", "runtime": "python", "scenarios": {"range": [0, 400]}, "workers": 1}
    id = platform.submit(**request, params={"sleep_ms": 5}, placement=SELECTIVE)
    pods: list[Any] = []

    def pods_are_listed() -> bool:
        pods.extend(platform.pods(f"windtunnel/simulation={id}"))
        return bool(pods)

    platform.until(pods_are_listed, "the simulation has a pod")
    pod = pods[0]
    assert pod["spec"]["nodeSelector"] == OPERATOR_LABELS
    assert (pod["spec"]["priorityClassName"], pod["spec"]["priority"]) == ("simulations-low", 10)
    assert pod["spec"]["serviceAccountName"] == "default" and not pod["spec"]["automountServiceAccountToken"]
    assert {
        name for name in pod["metadata"]["annotations"] if "jobset" not in name and "batch.kubernetes" not in name
    } == {
        "example.com/team",
        "k8s.v1.cni.cncf.io/networks",
    }
    ended = platform.wait_for_end(id)
    assert ended["state"] == "succeeded", (ended["reason"], platform.messages(id))

    pods.clear()
    id = platform.submit(**request, placement=DEMANDING)
    platform.until(pods_are_listed, "the demanding simulation has a pod")
    (model_server,) = [item for item in pods[0]["spec"]["containers"] if item["name"] == "model-server"]
    assert model_server["resources"]["limits"]["example.com/gpu"] == "1"
    assert [claim["resourceClaimTemplateName"] for claim in pods[0]["spec"]["resourceClaims"]] == ["one-gpu"]
    assert pods[0]["metadata"]["annotations"]["alpha.jobset.sigs.k8s.io/exclusive-topology"] == "kubernetes.io/hostname"
    platform.cancel(id)
    assert platform.wait_for_end(id)["state"] == "cancelled"
    platform.cluster.kubectl("delete", "priorityclass", "simulations-low")
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


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


@pytest.mark.parametrize(("code", "state", "status"), [(0, "succeeded", "ok"), (3, "failed", "crashed")])
def test_a_gang_of_trainer_ends_like_its_program(
    own_cluster: Cluster, platform: PlatformRelease, code: int, state: str, status: str
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
    assert (ended["state"], ended["attempt"]) == (state, 1), (ended["reason"], platform.messages(ended["id"]))
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
    for code, state, status in ((0, "succeeded", "ok"), (3, "failed", "crashed")):
        gang = {"size": 2, "slots": 2, "communication": "mpi", "operator": "mpi-operator", "image": image}
        gang |= {"command": ["python", "-c", program.format(code)]}
        form = {"dataset": "program", "gang": json.dumps(gang), "scenarios": '{"range": [0, 1]}'}
        form["placement"] = json.dumps({"cpu": 0.05, "memory": 256 << 20})
        model = {"model": ("model.py", GANG_PROGRAM.encode())}
        answer = httpx.post(f"{platform.url}/v1/simulations", data=form, files=model, timeout=60.0)
        assert answer.status_code == 201, answer.text
        ids[answer.json()["id"]] = state, status
    for id, (state, status) in ids.items():
        ended = platform.wait_for_end(id, 240.0)
        assert (ended["state"], ended["attempt"]) == (state, 1), (ended["reason"], platform.messages(id))
        assert [result["status"] for result in platform.results(id)] == [status]
    platform.until(lambda: not platform.remaining_objects(), "all of their objects are deleted")


def test_the_packages_of_a_model_are_installed_by_a_job_and_reach_its_pods(
    platform: PlatformRelease, own_cluster: Cluster
) -> None:
    index = PackageIndex(wheel("alpha", "1.0", {"alpha.py": b"VERSION = 7.0\n"}), host="0.0.0.0", behind=PUBLIC_INDEX)
    script = "# /// script\n# dependencies = ['alpha']\n# ///\nimport alpha\nclass Model:\n"
    script += "    def act(self, observation):\n        return [alpha.VERSION, 0, 0, 0]\n"
    url = f"http://{own_cluster.host_address}:{index.port}/simple"
    settings = platform.settings
    try:
        platform.set_values(settings=settings | {"packageIndexes": [url], "packageHosts": []})
        platform.upgrade()
        platform.wait_for_rollout()
        platform.upload("with-packages", script.encode())
        for _ in range(2):  # the second one finds the lock and the bundle
            id = platform.submit(model="with-packages", dataset="noop", scenarios={"range": [0, 20]}, workers=1)
            ended = platform.wait_for_end(id, 400.0)
            assert (ended["state"], ended["executor"]) == ("succeeded", "cluster"), platform.messages(id)
            assert {result["metrics"]["value"] for result in platform.results(id)} == {7.0}
    finally:
        index.close()
        platform.set_values(settings=settings)
        platform.upgrade()
        platform.wait_for_rollout()
    platform.until(lambda: not platform.remaining_objects(), "all of its objects are deleted")


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
