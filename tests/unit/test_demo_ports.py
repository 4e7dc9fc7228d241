"""Ports of the demo's platform: the configured ones where they are free, else others."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.local.local_platform import NotStarted, Ports, choose_ports

PREFERRED = Ports(api=5000, runner_api=5001)


def chosen(*in_use: int) -> Ports:
    return choose_ports(PREFERRED, lambda port: port not in in_use, lambda port: port not in in_use)


def test_free_ports_are_used_as_configured() -> None:
    assert chosen() == PREFERRED


def test_another_port_is_taken_when_5000_is_in_use() -> None:
    assert chosen(5000) == Ports(api=5002, runner_api=5001)
    assert chosen(5001) == Ports(api=5000, runner_api=5002)
    assert chosen(5000, 5001) == Ports(api=5002, runner_api=5003), "another Windtunnel has both"


@given(st.sets(st.integers(5000, 5050)))
def test_the_ports_are_free_and_differ(in_use: set[int]) -> None:
    ports = chosen(*in_use)
    assert ports.api != ports.runner_api and not in_use & {ports.api, ports.runner_api}


def test_without_a_free_port_the_error_names_the_setting() -> None:
    with pytest.raises(NotStarted, match="WINDTUNNEL_PORT"):
        choose_ports(PREFERRED, lambda port: False, lambda port: True)
