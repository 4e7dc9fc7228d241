"""Sockets of scenarios between an evaluator and a zygote."""

import socket

import pytest

from runtimes.harness.forking.scenario_sockets import ScenarioSockets, last_words


@pytest.mark.parametrize("kind", [socket.SOCK_SEQPACKET, socket.SOCK_STREAM])
def test_what_a_zygote_said_before_it_ended_is_received_though_it_read_no_offer(kind: int) -> None:
    evaluator, zygote = socket.socketpair(socket.AF_UNIX, kind)
    with evaluator:
        sockets = ScenarioSockets(evaluator, b"offer")
        sockets.offer()
        zygote.send(b"it cannot be imported")
        zygote.close()
        assert last_words(evaluator, 1000) == b"it cannot be imported"
        sockets.close()


def test_of_a_zygote_that_said_nothing_nothing_is_received() -> None:
    evaluator, zygote = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    with evaluator:
        zygote.close()
        assert last_words(evaluator, 1000) == b""
