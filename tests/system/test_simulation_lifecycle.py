"""Life cycle of simulations over HTTP: cancelled, retried, deleted, listed, compared; and their models."""

import hashlib
import json
import re
import socket
import statistics
import zipfile
import zlib
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy
import pandas
import pytest

from tests.system.platform_process import MODELS, PlatformProcess, has_one_result_per_task, untimed
from tests.waiting import until

SLOW = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 2000]}, "params": {"sleep_ms": 20}}
QUICK = {"runtime": "python", "dataset": "noop", "scenarios": {"range": [0, 200]}}


def submit_and_wait_for_results(platform: PlatformProcess, **submission: Any) -> str:
    """Submit a simulation, wait for its first results and return its id."""
    id = platform.submit(**submission)["id"]
    until(lambda: platform.get(id)["tasks"]["done"] > 0, message="no task is done")
    return id


def object_files(platform: PlatformProcess, id: str, kind: str = "") -> list[Path]:
    """Return the object files of a simulation, of all kinds or of one kind."""
    return [path for path in (platform.home / "objects" / kind).rglob(f"*{id}*/**/*") if path.is_file()]


def test_cancelling_ends_a_simulation_and_keeps_its_results(platform: PlatformProcess) -> None:
    id = submit_and_wait_for_results(platform, **SLOW)
    response = platform.http.post(f"/v1/simulations/{id}/cancel")
    assert response.status_code == 202
    assert response.json()["state"] in {"cancelling", "cancelled"}
    ended = platform.wait_for_end(id)
    assert ended["state"] == "cancelled"
    assert 0 < ended["tasks"]["done"] < 2000
    results = platform.results(id)
    assert len(results) == ended["tasks"]["done"]
    assert len({result["task"] for result in results}) == len(results)
    second_cancel = platform.http.post(f"/v1/simulations/{id}/cancel")
    assert second_cancel.status_code in {202, 409}
    until(lambda: platform.results(id) == results, message="the results still change")


def test_cancelling_a_queued_simulation_ends_it_before_it_starts(platform: PlatformProcess) -> None:
    first = submit_and_wait_for_results(platform, **SLOW)
    waiting = platform.submit(**SLOW)["id"]
    assert platform.http.post(f"/v1/simulations/{waiting}/cancel").status_code == 202
    ended = platform.wait_for_end(waiting)
    assert (ended["state"], ended["tasks"]["done"]) == ("cancelled", 0)
    platform.http.post(f"/v1/simulations/{first}/cancel")
    platform.wait_for_end(first)


def test_a_client_that_sees_a_cancelled_end_has_its_summary_and_archive(platform: PlatformProcess) -> None:
    for ready in (lambda id: True, lambda id: platform.get(id)["tasks"]["done"] > 0):
        id = platform.submit(**SLOW)["id"]
        until(lambda: ready(id), message="no task is done")  # noqa: B023 - run at once
        with platform.http.stream("GET", f"/v1/simulations/{id}/events") as events:
            assert platform.http.post(f"/v1/simulations/{id}/cancel").status_code == 202
            assert any('"state":"cancelled"' in line.replace(" ", "") for line in events.iter_lines())
        summary = platform.http.get(f"/v1/simulations/{id}/summary")
        archive = platform.http.get(f"/v1/simulations/{id}/archive")
        assert (summary.status_code, archive.status_code) == (200, 200), (summary.text, archive.text)
        with zipfile.ZipFile(BytesIO(archive.content)) as members:
            assert len(members.read("results.ndjson").splitlines()) == summary.json()["tasks"]["done"]


def test_a_simulation_without_a_task_that_is_ok_fails_with_the_commonest_reason(platform: PlatformProcess) -> None:
    ended = platform.run(model=MODELS / "raises_always.py", dataset="noop", scenarios={"range": [0, 20]})
    assert ended["state"] == "failed" and ended["tasks"] == {"total": 20, "done": 20, "failed": 20}
    assert ended["reason"].startswith("none of its 20 tasks is ok; each: ") and "on purpose" in ended["reason"]


def test_a_running_simulation_is_neither_deleted_nor_retried_nor_archived(platform: PlatformProcess) -> None:
    id = submit_and_wait_for_results(platform, **SLOW)
    for response in (
        platform.http.delete(f"/v1/simulations/{id}"),
        platform.http.post(f"/v1/simulations/{id}/retry"),
        platform.http.get(f"/v1/simulations/{id}/archive"),
        platform.http.get(f"/v1/simulations/{id}/summary"),
    ):
        assert response.status_code == 409
        assert response.headers["content-type"] == "application/problem+json"
    platform.http.post(f"/v1/simulations/{id}/cancel")
    platform.wait_for_end(id)


def test_a_retry_keeps_successful_results_unchanged_and_runs_the_others_again(platform: PlatformProcess) -> None:
    submission = {"dataset": "noop", "scenarios": {"range": [0, 60]}}
    first = platform.run(model=MODELS / "raises_sometimes.py", **submission)
    failed = first["tasks"]["failed"]
    assert 0 < failed < 60
    retried = platform.http.post(f"/v1/simulations/{first['id']}/retry")
    assert retried.status_code == 201
    assert retried.json()["retry_of"] == first["id"]
    second = platform.wait_for_end(retried.json()["id"])
    assert (second["state"], second["tasks"]["failed"]) == ("succeeded", failed)
    before, after = platform.lines(first["id"]), platform.lines(second["id"])
    assert len(after) == 60
    pairs = list(zip(before, after, strict=True))
    assert all(old == new for old, new in pairs if b'"status":"ok"' in old)
    rerun = [(old, new) for old, new in pairs if b'"status":"ok"' not in old]
    assert [untimed(old) for old, _ in rerun] == [untimed(new) for _, new in rerun]
    # The timing shows that the tasks were run again; it is in microseconds, so a single timing may repeat.
    assert rerun != [(old, old) for old, _ in rerun]


def test_a_retry_of_all_tasks_runs_all_tasks_again(platform: PlatformProcess) -> None:
    first = platform.run(**QUICK)
    response = platform.http.post(f"/v1/simulations/{first['id']}/retry", json={"only_failed": False})
    second = platform.wait_for_end(response.json()["id"])
    assert second["tasks"] == {"total": 200, "done": 200, "failed": 0}
    before, after = platform.lines(first["id"]), platform.lines(second["id"])
    assert before != after
    assert [untimed(line) for line in before] == [untimed(line) for line in after]


def test_a_retry_of_a_cancelled_simulation_finishes_it(platform: PlatformProcess) -> None:
    id = submit_and_wait_for_results(
        platform, dataset="noop", runtime="python", scenarios={"range": [0, 400]}, params={"sleep_ms": 10}
    )
    platform.http.post(f"/v1/simulations/{id}/cancel")
    cancelled = platform.wait_for_end(id)
    assert cancelled["tasks"]["done"] < 400
    lines_before = platform.lines(id)
    ended = platform.wait_for_end(platform.http.post(f"/v1/simulations/{id}/retry").json()["id"])
    assert (ended["state"], ended["tasks"]["done"]) == ("succeeded", 400)
    lines_after = platform.lines(ended["id"])
    assert set(lines_before) <= set(lines_after)
    assert has_one_result_per_task(platform.results(ended["id"]), 400)


def test_a_retry_survives_the_deletion_of_its_predecessor(platform: PlatformProcess) -> None:
    first = platform.run(model=MODELS / "raises_sometimes.py", dataset="noop", scenarios={"range": [0, 30]})
    second = platform.wait_for_end(platform.http.post(f"/v1/simulations/{first['id']}/retry").json()["id"])
    lines = platform.lines(second["id"])
    assert object_files(platform, first["id"], "logs")
    assert platform.http.delete(f"/v1/simulations/{first['id']}").status_code == 204
    until(
        lambda: platform.get_until_answered(f"/v1/simulations/{first['id']}").status_code == 404,
        message="the simulation still exists",
    )
    until(lambda: not object_files(platform, first["id"], "logs"), message="the logs of the simulation remain")
    # Objects are removed one simulation after another: when this simulation's are removed, the first's are as well.
    other_id = platform.run(**QUICK)["id"]
    assert platform.http.delete(f"/v1/simulations/{other_id}").status_code == 204
    until(lambda: not object_files(platform, other_id), message="objects of another simulation remain")
    assert platform.lines(second["id"]) == lines


def test_deletion_removes_the_objects_of_a_simulation(platform: PlatformProcess) -> None:
    ended = platform.run(runtime="python", dataset="car_street", scenarios={"range": [0, 2]}, record="all")
    id = ended["id"]
    assert object_files(platform, id)
    assert platform.http.delete(f"/v1/simulations/{id}").status_code == 204
    for path in ("", "/results", "/events", "/archive", "/summary", "/artifacts", "/logs"):
        assert platform.http.get(f"/v1/simulations/{id}{path}").status_code == 404
    assert id not in {simulation["id"] for simulation in platform.http.get("/v1/simulations").json()["items"]}
    until(lambda: not object_files(platform, id), message=lambda: f"objects remain: {object_files(platform, id)}")


def test_a_dry_run_says_whether_the_model_fits_and_leaves_nothing_in_the_list(platform: PlatformProcess) -> None:
    before = platform.http.get("/v1/simulations").json()["items"]
    fits = platform.post(runtime="python", dataset="car_street", dry_run=True)
    assert (fits.status_code, fits.json()["fits"], fits.json()["reason"]) == (200, True, None)
    measured = fits.json()
    assert (measured["dataset"], measured["runtime"], measured["format"]) == ("car_street", "python", "python")
    assert measured["model"]["class"] == "Model" and measured["memory"] > 10 << 20
    assert 0 < measured["act_seconds"] <= measured["slowest_act_seconds"] and measured["load_seconds"] > 0
    wrong = platform.post(model=MODELS / "returns_the_wrong_shape.py", dataset="car_street", dry_run=True)
    assert wrong.status_code == 200
    assert wrong.json()["fits"] is False
    assert "(3,)" in wrong.json()["reason"]
    broken = platform.post(model=b"import nothing_of_this_name\nclass Model: pass\n", dataset="noop", dry_run=True)
    assert broken.json()["fits"] is False
    assert "nothing_of_this_name" in broken.json()["reason"]
    assert platform.http.get("/v1/simulations").json()["items"] == before


def test_a_check_of_a_model_lists_the_datasets_that_it_fits_with_the_reasons_for_the_others(
    platform: PlatformProcess,
) -> None:
    model = b"""
class Model:
    def act(self, observation):
        return [0.0] if len(observation) == 4 else None
"""
    platform.http.put("/v1/models/pole", content=model, params={"filename": "pole.py"}).raise_for_status()
    chosen = platform.http.post("/v1/models/pole/check", json={"datasets": ["cartpole", "noop"]}, timeout=300)
    fits, other = chosen.json()["items"]
    assert chosen.status_code == 200 and fits["fits"] and fits["dataset"] == "cartpole" and fits["reason"] is None
    assert not other["fits"] and "shape (1,), not (4,)" in other["reason"] and other["act_seconds"] is None
    unknown = platform.http.post("/v1/models/pole/check", json={"datasets": ["cartpol"]})
    assert unknown.status_code == 422 and "cartpole" in unknown.json()["detail"]


def test_a_list_is_paged_and_filtered(platform: PlatformProcess) -> None:
    ids = [
        platform.submit(
            runtime="python", dataset=dataset, scenarios={"range": [0, 1]}, labels={"batch": "paging", "n": str(n)}
        )["id"]
        for n, dataset in enumerate(["noop", "noop", "cartpole", "noop", "noop"])
    ]
    for id in ids:
        platform.wait_for_end(id)

    def listed(**query: Any) -> list[str]:
        simulation_ids, after = [], None
        while True:
            page = platform.http.get(
                "/v1/simulations",
                params={"label": "batch=paging", "limit": 2, **query} | ({"after": after} if after else {}),
            )
            assert page.status_code == 200
            assert len(page.json()["items"]) <= 2
            simulation_ids += [simulation["id"] for simulation in page.json()["items"]]
            after = page.json()["next"]
            if after is None:
                return simulation_ids
            assert 'rel="next"' in page.headers["link"]

    assert listed() == ids[::-1]
    assert listed(dataset="cartpole") == [ids[2]]
    assert listed(label=["batch=paging", "n=3"]) == [ids[3]]
    assert listed(state="succeeded") == ids[::-1]
    assert listed(state="failed") == []
    assert listed(runtime="onnx") == []
    assert listed(model="zero") == [ids[n] for n in (4, 3, 1, 0)]


def test_a_sweep_with_repetitions_has_a_task_for_each_combination(platform: PlatformProcess) -> None:
    ended = platform.run(
        runtime="python", dataset="car_street", scenarios={"range": [0, 2]}, sweep={"latency_steps": [0, 5]}, repeat=3
    )
    assert ended["tasks"] == {"total": 12, "done": 12, "failed": 0}
    results = platform.results(ended["id"])
    assert has_one_result_per_task(results, 12)
    order = [
        (r["scenario"]["params"]["latency_steps"], r["scenario"]["repeat"], r["scenario"]["index"]) for r in results
    ]
    assert order == [(swept, repeat, index) for swept in (0, 5) for repeat in range(3) for index in range(2)]
    seeds = {(r["scenario"]["index"], r["scenario"]["repeat"]): r["scenario"]["seed"] for r in results}
    assert len(set(seeds.values())) == 6  # a repetition has its own seed; values of a sweep share the seed
    assert all(seeds[r["scenario"]["index"], r["scenario"]["repeat"]] == r["scenario"]["seed"] for r in results)


def test_a_registered_model_is_found_by_name_version_and_digest(platform: PlatformProcess) -> None:
    first, second = ((MODELS / name).read_bytes() for name in ("echo.py", "raises_sometimes.py"))
    first_response = platform.http.post("/v1/models", data={"name": "numbered"}, files={"file": ("policy.py", first)})
    assert first_response.status_code == 201, first_response.text
    second_response = platform.http.put("/v1/models/numbered", content=second, params={"filename": "policy.py"})
    assert second_response.status_code == 201, second_response.text
    assert [first_response.json()["version"], second_response.json()["version"]] == [1, 2]
    submission = {"dataset": "noop", "scenarios": {"range": [0, 30]}}
    by_name = platform.run(model="numbered", **submission)
    by_version = platform.run(model="numbered@1", **submission)
    by_digest = platform.run(model=first_response.json()["digest"], **submission)
    assert by_name["model"]["digest"] == second_response.json()["digest"]
    assert by_version["model"]["digest"] == by_digest["model"]["digest"] == first_response.json()["digest"]
    assert by_name["tasks"]["failed"] > 0 == by_version["tasks"]["failed"]
    assert platform.summary(by_version["id"])["results_digest"] == platform.summary(by_digest["id"])["results_digest"]


def test_an_interrupted_upload_leaves_no_model(platform: PlatformProcess) -> None:
    with socket.create_connection(("127.0.0.1", platform.port), timeout=20.0) as connection:
        connection.sendall(
            b"PUT /v1/models/cut?filename=m.py HTTP/1.1\r\nHost: localhost\r\n"
            b"Content-Type: application/octet-stream\r\nContent-Length: 100000\r\n\r\nclass Model:"
        )
        connection.shutdown(socket.SHUT_WR)
        connection.recv(4096)
    assert platform.http.get("/v1/models/cut").status_code == 404


def test_the_same_idempotency_key_gives_the_first_response_again(platform: PlatformProcess) -> None:
    key = {"Idempotency-Key": "once-only"}
    first = platform.post(headers=key, **QUICK)
    again = platform.post(headers=key, **QUICK)
    assert (first.status_code, again.status_code) == (201, 201)
    assert again.json()["id"] == first.json()["id"]
    assert again.headers["location"] == first.headers["location"]
    assert again.headers["idempotency-replayed"] == "true"
    other = platform.post(headers=key, **(QUICK | {"seed": 5}))
    assert other.status_code == 422
    assert other.headers["content-type"] == "application/problem+json"
    form = {"Idempotency-Key": "a-form"}
    responses = [
        platform.post(headers=form, model=MODELS / "echo.py", dataset="noop", scenarios={"range": [0, 5]}) for _ in "12"
    ]
    assert responses[0].json()["id"] == responses[1].json()["id"]  # though the forms' boundaries differ
    platform.wait_for_end(first.json()["id"])


def test_pandas_reads_the_results_by_their_url(platform: PlatformProcess) -> None:
    ended = platform.run(runtime="python", dataset="car_street", scenarios={"range": [0, 3]})
    url = f"{platform.url}/v1/simulations/{ended['id']}/results?format="
    parquet, csv = pandas.read_parquet(url + "parquet"), pandas.read_csv(url + "csv")
    assert list(parquet["task"]) == list(csv["task"]) == [0, 1, 2]
    assert set(parquet.columns) == set(csv.columns)
    lines = platform.results(ended["id"])
    assert list(parquet["metrics.score"]) == pytest.approx([line["metrics"]["score"] for line in lines])


def test_every_range_of_an_archive_is_a_slice_of_it(platform: PlatformProcess) -> None:
    ended = platform.run(runtime="python", dataset="car_street", scenarios={"range": [0, 4]}, record="all")
    path = f"/v1/simulations/{ended['id']}/archive"
    response = platform.http.get(path)
    size, tag = len(response.content), response.headers["etag"]
    assert int(response.headers["content-length"]) == size
    assert int(platform.http.head(path).headers["content-length"]) == size
    for first, last in ((0, 0), (0, 99), (size // 3, 2 * size // 3), (size - 1, size - 1), (size - 10, size + 100)):
        part = platform.http.get(path, headers={"Range": f"bytes={first}-{last}", "If-Range": tag})
        assert part.status_code == 206
        assert part.content == response.content[first : last + 1]
        assert part.headers["content-range"] == f"bytes {first}-{min(last, size - 1)}/{size}"
    assert platform.http.get(path, headers={"Range": "bytes=-7"}).content == response.content[-7:]
    changed = platform.http.get(path, headers={"Range": "bytes=0-9", "If-Range": '"another"'})
    assert (changed.status_code, len(changed.content)) == (200, size)
    assert platform.http.get(path, headers={"Range": f"bytes={size}-"}).status_code == 416
    assert platform.http.get(path, headers={"If-None-Match": tag}).status_code == 304
    with zipfile.ZipFile(BytesIO(response.content)) as archive:
        assert archive.testzip() is None
        names = archive.namelist()
        results = next(name for name in names if name.endswith("results.ndjson"))
        assert archive.read(results).splitlines() == platform.lines(ended["id"])
        trace = archive.read("artifacts/0/trace.f32.zz")
        (model,) = [name for name in names if name.startswith("model/")]
        digest = "sha256:" + hashlib.sha256(archive.read(model)).hexdigest()
    assert digest == ended["model"]["digest"] and model.endswith(".py")
    # as the README of the archive says
    shape = platform.http.get("/v1/datasets/car_street").json()["interface"]["action"]["shape"]
    actions = numpy.frombuffer(zlib.decompress(trace), "<f4").reshape(-1, *shape)
    assert len(actions) > 10 and numpy.isfinite(actions).all()


def test_two_simulations_are_compared_scenario_by_scenario(platform: PlatformProcess) -> None:
    submission = {"runtime": "python", "dataset": "car_street", "scenarios": {"range": [0, 12]}}
    calm, wild = platform.run(model="idm", **submission), platform.run(model="full_throttle", **submission)
    response = platform.http.get(f"/v1/simulations/{calm['id']}/comparison", params={"to": wild["id"]})
    assert response.status_code == 200
    score = response.json()["metrics"]["score"]
    means = [
        statistics.fmean(json.loads(line)["metrics"]["score"] for line in platform.lines(simulation["id"]))
        for simulation in (calm, wild)
    ]
    assert (score["mean"], score["to"]) == pytest.approx(means) and score["count"] == 12
    assert score["difference"] == pytest.approx(means[0] - means[1])
    assert score["low"] <= score["difference"] <= score["high"]


def test_too_many_failures_fail_a_simulation_with_that_reason(platform: PlatformProcess) -> None:
    ended = platform.run(
        model=MODELS / "raises_sometimes.py", dataset="noop", scenarios={"range": [0, 100]}, max_failures=2
    )
    assert ended["state"] == "failed"
    assert re.fullmatch(r"\d+ tasks failed; max_failures is 2", ended["reason"])


def test_a_simulation_past_its_deadline_fails_with_that_reason(platform: PlatformProcess) -> None:
    ended = platform.run(**SLOW, timeout=1.0)
    assert ended["state"] == "failed"
    assert ended["reason"] == "not done within its timeout of 1 s"
    assert ended["tasks"]["done"] < 2000
