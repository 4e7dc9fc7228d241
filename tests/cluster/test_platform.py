"""The platform on a cluster, as its users have it: `helm install`, the oldest promise, and what it leaves: nothing."""

import json
import subprocess

from tests.cluster.house import Installed

PROMISE = '{"runtimePath": "tensorflow", "model_data": "car_street"}'


def test_the_oldest_promise_is_kept_through_the_service(platform: Installed) -> None:
    """The very words; only where the name leads, and the port at this end, are said apart."""
    assert platform.ready
    command = ["curl", "-sS", "--connect-to", f"karrozzeria:5000:127.0.0.1:{platform.port}", "-X", "POST"]
    command += ["http://karrozzeria:5000/1.0/simluation/tests", "-d", PROMISE]
    answer = json.loads(subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout)
    assert "id" in answer, answer
    ended = platform.ended(answer["id"], 400.0)
    assert (ended["state"], ended["executor"]) == ("succeeded", "cluster"), ended["reason"]
    results = platform.results(answer["id"])
    assert [one["task"] for one in results] == list(range(ended["tasks"]["total"])) and len(results) == 288
    assert {one["status"] for one in results} == {"ok"}
    platform.until(lambda: not platform.left(), "nothing is left of it")
