"""Audit log of a platform: a crash leaves no act without its entry, an end loses no count, wrong tokens are seen."""

import threading
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from tests.system.platform_process import PlatformProcess
from tests.waiting import until

#: Simulations that have been answered when the platform is killed.
ANSWERED = 40


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    platform = PlatformProcess(tmp_path_factory.mktemp("audit"), settings={"MULTI_USER": "yes"})
    yield platform.start()
    platform.stop()


def headers(platform: PlatformProcess) -> dict[str, str]:
    return {"Authorization": f"Bearer {(platform.home / 'operator-token').read_text().strip()}"}


def entries(platform: PlatformProcess, **asked: str) -> list[dict[str, object]]:
    answer = platform.http.get("/v1/audit", params={"limit": "1000", **asked}, headers=headers(platform))
    assert answer.status_code == 200, answer.text
    items: list[dict[str, object]] = answer.json()["items"]
    return items


def test_a_wrong_token_is_seen_with_its_address(platform: PlatformProcess) -> None:
    wrong = {"Authorization": "Bearer wt_" + "y" * 46}
    assert platform.http.get("/v1/models", headers=wrong).status_code == 401
    assert platform.http.put("/v1/models/large", content=b"#" * 3_000_000, headers=wrong).status_code == 401
    until(lambda: sum(int(str(entry["times"])) for entry in entries(platform, act="authenticate")) >= 1)
    assert {entry["address"] for entry in entries(platform, act="authenticate")} == {"127.0.0.1"}


def test_an_end_of_the_platform_writes_what_is_counted(platform: PlatformProcess) -> None:
    def refuse() -> None:
        assert platform.http.delete("/v1/models/nil", headers=headers(platform)).status_code == 404

    refuse()
    until(lambda: entries(platform, act="delete_model"))
    for _ in range(5):  # which are counted for longer than this test lasts
        refuse()
    assert len(entries(platform, act="delete_model")) == 1
    platform.interrupt()
    platform.start()
    assert sum(int(str(entry["times"])) for entry in entries(platform, act="delete_model")) == 6


def test_a_crash_leaves_no_act_without_its_entry_and_no_entry_without_its_act(platform: PlatformProcess) -> None:
    answered: list[str] = []
    ended = threading.Event()

    def submit() -> None:
        with httpx.Client(base_url=platform.url, headers=headers(platform), trust_env=False) as client:
            while not ended.is_set():
                answer = client.post("/v1/simulations", json={"dataset": "noop", "runtime": "python"})
                if answer.status_code == 201:
                    answered.append(answer.json()["id"])

    def submit_until_the_end() -> None:
        with suppress(httpx.HTTPError):
            submit()

    threads = [threading.Thread(target=submit_until_the_end) for _ in range(4)]
    for thread in threads:
        thread.start()
    until(lambda: len(answered) >= ANSWERED)
    platform.crash()
    ended.set()
    for thread in threads:
        thread.join()
    platform.start()
    there: set[str] = set()
    path: str | None = "/v1/simulations?limit=200"
    while path:
        page = platform.http.get(path, headers=headers(platform))
        there |= {item["id"] for item in page.json()["items"]}
        path = page.links["next"]["url"] if "next" in page.links else None
    recorded = {str(entry["subject"]) for entry in entries(platform, act="create_simulation", outcome="done")}
    assert set(answered) <= there
    assert recorded == {f"simulations/{id}" for id in there}
