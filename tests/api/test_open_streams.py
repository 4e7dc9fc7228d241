"""Open streams by HTTP: each ends within two seconds after the right by which it was opened, whatever the right was."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from tests.api.people import People, own

#: Seconds in which a stream that nothing has ended goes on, and in which it ends once something has.
GOES_ON, ENDS = 1.0, 2.0
#: Seconds between heartbeats, at which streams look again by themselves: longer than any of the tests waits.
HEARTBEAT = 4.5
PATHS = ("events", "results?follow=true", "logs?follow=true")


@pytest.fixture(autouse=True)
def soon(people: People) -> None:
    """Let streams begin sooner: the client of these tests returns with the first chunk, which may be a heartbeat."""
    context = people.app.extensions["windtunnel"]
    people.app.extensions["windtunnel"] = replace(context, heartbeat=HEARTBEAT)


@contextmanager
def opened(people: People, who: str, path: str) -> Iterator[Callable[[float], bool]]:
    """Open a stream; yield the wait for its end, which returns whether it has come after so many seconds."""
    headers = {"Accept": "application/x-ndjson"} if "results" in path else {}
    answer = people.ask(who, "GET", path, headers=headers)
    assert answer.status_code == 200, answer.text
    ended = threading.Event()

    def read() -> None:
        for _ in answer.response:
            pass
        ended.set()

    reader = threading.Thread(target=read, daemon=True)
    reader.start()
    assert not ended.wait(GOES_ON), "it waits for news"
    yield ended.wait


def do(people: People, method: str, path: str, who: str = "operator") -> None:
    answer = people.ask(who, method, path)
    assert answer.status_code in (200, 202, 204), answer.text


@pytest.mark.parametrize("path", PATHS)
def test_an_open_stream_ends_with_its_token(people: People, path: str) -> None:
    id = own(people, "red")["simulation"]
    made = people.ask("operator", "POST", "/v1/projects/red/tokens", json={"name": "watch", "role": "viewer"}).json
    with opened(people, made["token"], f"/v1/simulations/{id}/{path}") as ends:
        do(people, "DELETE", f"/v1/projects/red/tokens/{made['id']}")
        assert ends(ENDS)


@pytest.mark.parametrize("path", PATHS)
def test_an_open_stream_of_a_shared_simulation_ends_with_the_share(people: People, path: str) -> None:
    id = own(people, "red")["simulation"]
    do(people, "PUT", f"/v1/simulations/{id}/shares/blue", "red maintainer")
    with opened(people, "blue viewer", f"/v1/simulations/{id}/{path}") as ends:
        do(people, "DELETE", f"/v1/simulations/{id}/shares/blue", "red maintainer")
        assert ends(ENDS)


@pytest.mark.parametrize("path", ["simulations/{}/events", "simulations/changes"])
def test_an_open_stream_ends_with_the_membership_of_its_reader(people: People, path: str) -> None:
    id = own(people, "red")["simulation"]
    people.ask("operator", "POST", "/v1/users", json={"name": "ada"})
    people.ask("operator", "PUT", "/v1/projects/red/members/ada", json={"role": "viewer"})
    ada = people.ask("operator", "POST", "/v1/users/ada/tokens", json={"name": "laptop"}).json["token"]
    with opened(people, ada, f"/v1/{path.format(id)}") as ends:
        do(people, "DELETE", "/v1/projects/red/members/ada")
        assert ends(ENDS)


@pytest.mark.parametrize("reader", ["red viewer", "blue viewer", "operator"])
def test_an_open_stream_goes_on_in_a_closed_project_and_ends_when_it_is_deleted(people: People, reader: str) -> None:
    id = own(people, "red")["simulation"]
    do(people, "PUT", f"/v1/simulations/{id}/shares/blue", "red maintainer")
    path = f"/v1/simulations/{id}/events" + ("?project=red" if reader == "operator" else "")
    with opened(people, reader, path) as ends:
        do(people, "POST", "/v1/projects/red/close")
        assert not ends(GOES_ON), "a closed project is read"
        do(people, "DELETE", "/v1/projects/red")
        assert ends(ENDS)
