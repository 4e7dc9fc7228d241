"""Fifty clients race for the last places of a project, at three API processes with one database; one is killed."""

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.postgres import own_postgres
from tests.system.servers import Api
from tests.waiting import until

CLIENTS, PROCESSES = 50, 3
OPERATOR = "token-that-the-operator-has-chosen"
PLACES = 7


@pytest.fixture(params=["sqlite", "postgresql"], scope="module")
def settings(request: pytest.FixtureRequest) -> Iterator[Mapping[str, str]]:
    shared = {"MULTI_USER": "yes", "TOKEN": OPERATOR, "PROJECT_RATE": "0"}
    if request.param == "sqlite":
        yield shared
        return
    with own_postgres() as server:
        yield shared | {"DATABASE_URL": server.url.replace("postgresql://", "postgresql+psycopg://")}


@pytest.fixture(scope="module")
def processes(tmp_path_factory: pytest.TempPathFactory, settings: Mapping[str, str]) -> Iterator[list[Api]]:
    """API processes with one home, as replicas with one database and one store."""
    home = tmp_path_factory.mktemp("races") / "home"
    processes = [Api(home, settings) for _ in range(PROCESSES)]
    processes[0].migrate()
    for process in processes:
        process.http.headers["Authorization"] = f"Bearer {OPERATOR}"
        process.start()
    yield processes
    for process in processes:
        process.stop()


class Race:
    """Clients of a new project, of which each has a token of a submitter, at all processes by turns."""

    def __init__(self, processes: list[Api], project: str, limits: Mapping[str, int]) -> None:
        self.processes = processes
        self.project = project
        operator = processes[0].http
        assert operator.post("/v1/projects", json={"name": project}).status_code == 201
        body = {"name": "client", "role": "submitter"}
        made = [operator.post(f"/v1/projects/{project}/tokens", json=body) for _ in range(CLIENTS)]
        self._tokens = [answer.json()["token"] for answer in made]
        assert operator.put(f"/v1/projects/{project}/quotas", json=dict(limits)).status_code == 200

    def run(self, ask: Callable[[httpx.Client, int], httpx.Response]) -> list[httpx.Response]:
        """Let all clients ask at once, each with its number; return the answers that arrived."""

        def answer(number: int) -> httpx.Response | None:
            headers = {"Authorization": f"Bearer {self._tokens[number]}"}
            url = self.processes[number % PROCESSES].url
            with httpx.Client(base_url=url, headers=headers, timeout=120.0, trust_env=False) as client:
                try:
                    return ask(client, number)
                except httpx.TransportError:
                    return None  # its process was killed

        with ThreadPoolExecutor(CLIENTS) as clients:
            return [one for one in clients.map(answer, range(CLIENTS)) if one is not None]

    def submit(self) -> list[httpx.Response]:
        """Let all clients submit a simulation at once."""
        return self.run(lambda client, _: client.post("/v1/simulations", json={"dataset": "noop", "runtime": "python"}))

    def used(self, quota: str) -> int:
        """Return the use that a quota shows, at a process that no test kills."""
        return int(self.processes[-1].http.get(f"/v1/projects/{self.project}/quotas").json()[quota]["used"])

    def simulations(self) -> list[str]:
        """Return the ids of the project's simulations."""
        headers = {"Windtunnel-Project": self.project}
        listed = self.processes[-1].http.get("/v1/simulations?limit=100", headers=headers).json()
        return [one["id"] for one in listed["items"]]


def test_as_many_simulations_are_queued_as_there_are_places(processes: list[Api]) -> None:
    race = Race(processes, "places", {"queued_simulations": PLACES})
    answers = race.submit()
    refused = [answer.json() for answer in answers if answer.status_code == 403]
    accepted = [answer.json()["id"] for answer in answers if answer.status_code == 201]
    assert len(accepted) == PLACES and len(refused) == CLIENTS - PLACES
    assert {(one["quota"], one["limit"], one["used"]) for one in refused} == {("queued_simulations", PLACES, PLACES)}
    assert sorted(race.simulations()) == sorted(accepted) and race.used("queued_simulations") == PLACES
    for id in accepted[:3]:
        headers = {"Windtunnel-Project": "places"}
        assert processes[1].http.post(f"/v1/simulations/{id}/cancel", headers=headers).status_code in (200, 202)
    freed = PLACES - race.used("queued_simulations")
    assert [answer.status_code for answer in race.submit()].count(201) == freed
    assert race.used("queued_simulations") == PLACES


def test_a_process_that_is_killed_in_the_race_leaves_no_place_taken_by_nothing(processes: list[Api]) -> None:
    places = CLIENTS - 5
    race = Race(processes, "killed", {"queued_simulations": places})
    with ThreadPoolExecutor(1) as one:
        racing = one.submit(race.submit)
        until(race.simulations, 60.0)
        processes[0].kill()
        racing.result()
    processes[0].start()
    stored = len(race.simulations())
    assert race.used("queued_simulations") == stored <= places
    assert [answer.status_code for answer in race.submit()].count(201) == places - stored
    assert race.used("queued_simulations") == places


def test_as_many_bytes_are_stored_as_there_is_room_for(processes: list[Api]) -> None:
    model = b"class Model:\n    def act(self, observation):\n        return [0.0]\n"
    size = len(model) + len(b"# 00\n")
    race = Race(processes, "bytes", {"stored_bytes": 10 * size})

    def put(client: httpx.Client, number: int) -> httpx.Response:
        content = model + f"# {number:02}\n".encode()
        return client.put(f"/v1/models/brake-{number}", content=content, headers={"Content-Type": "text/x-python"})

    statuses = [answer.status_code for answer in race.run(put)]
    assert statuses.count(201) == 10 and statuses.count(403) == CLIENTS - 10
    assert race.used("stored_bytes") == 10 * size
