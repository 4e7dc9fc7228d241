"""Unfinished request bodies: when a body is idle or too slow, and which body makes room for another."""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import StalledBody, TooManyBodies
from server.request_bodies import BUFFER, BodyLimits, Progress, Reader, RequestBody, UnfinishedBodies, most_idle

LIMITS = BodyLimits(idle=30, rate=1024, grace=30, collected=2, threads=2)


def run(coroutine: Coroutine[Any, Any, None]) -> None:
    asyncio.run(coroutine)


def body(reader: Reader = Reader.LOOP, *, moved_at: float = 0.0) -> RequestBody:
    made = RequestBody(asyncio.get_running_loop(), reader)
    made.progress = Progress(moved_at)
    return made


@given(st.floats(1024, 1e9), st.floats(0.1, 29), st.integers(1, 200))
def test_a_body_at_the_least_rate_or_above_is_never_ended(rate: float, pause: float, moves: int) -> None:
    progress, now = Progress(0.0), 0.0
    for _ in range(moves):
        now += pause
        assert progress.fault(LIMITS, now, paced=True) is None
        progress.move(round(rate * pause) + 1, now)


@given(st.floats(0.1, 29))
def test_a_body_below_the_least_rate_is_ended_unless_it_is_an_upload(pause: float) -> None:
    progress, now = Progress(0.0), 0.0
    while now <= 31:
        now += pause
        progress.move(1, now)
    fault = progress.fault(LIMITS, now, paced=True)
    assert fault is not None and "too slowly" in fault
    assert progress.fault(LIMITS, now, paced=False) is None


def test_a_body_without_a_byte_is_idle_for_every_reader() -> None:
    for paced in (True, False):
        assert Progress(0.0).fault(LIMITS, 30.0, paced=paced) is None
        assert "No byte" in str(Progress(0.0).fault(LIMITS, 30.1, paced=paced))


def test_time_in_which_the_buffer_is_full_does_not_count() -> None:
    progress = Progress(0.0)
    progress.move(BUFFER, 1.0)
    progress.pause()
    assert progress.idle(1000.0) == 0 and progress.fault(LIMITS, 1000.0, paced=True) is None
    progress.resume(1000.0)
    assert progress.idle(1010.0) == 10 and progress.waited == 1.0


def test_the_body_that_is_idle_longest_makes_room() -> None:
    async def attack() -> None:
        table = UnfinishedBodies(LIMITS)
        silent, moving, honest = body(moved_at=0.0), body(moved_at=9.5), body(moved_at=10.0)
        assert table.admit(silent, Reader.LOOP, 0.0) is None and table.admit(moving, Reader.LOOP, 9.5) is None
        assert table.admit(honest, Reader.LOOP, 10.0) is None
        assert isinstance(silent.error, StalledBody) and moving.error is None and len(table) == 2

    run(attack())


def test_bodies_that_move_keep_their_places() -> None:
    async def crowd() -> None:
        table = UnfinishedBodies(LIMITS)
        moving = [body(moved_at=9.0), body(moved_at=9.9)]
        assert [table.admit(each, Reader.LOOP, 9.9) for each in moving] == [None, None]
        assert isinstance(table.admit(body(moved_at=10.0), Reader.LOOP, 10.0), TooManyBodies)
        assert most_idle(moving, 10.0) is None and len(table) == 2

    run(crowd())


def test_each_reader_has_a_number_of_its_own() -> None:
    async def mixed() -> None:
        table = UnfinishedBodies(LIMITS)
        for reader in Reader:
            for _ in range(2):
                assert table.admit(body(), reader, 0.0) is None
        promoted = next(iter(table._bodies[Reader.LOOP]))
        assert isinstance(table.admit(promoted, Reader.THREAD, 0.0), TooManyBodies) and len(table) == 6

    run(mixed())


def test_expired_bodies_are_ended_and_forgotten() -> None:
    async def expiry() -> None:
        table = UnfinishedBodies(LIMITS)
        stalled, moving = body(moved_at=0.0), body(moved_at=20.0)
        for each in (stalled, moving):
            table.admit(each, Reader.LOOP, 20.0)
        table.expire(31.0)
        assert isinstance(stalled.error, StalledBody) and moving.error is None and len(table) == 1
        with pytest.raises(StalledBody):
            stalled.read(1)

    run(expiry())


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=20), st.lists(st.integers(1, 50), min_size=1))
def test_reads_return_the_bytes_in_order_whatever_their_sizes(chunks: list[bytes], sizes: list[int]) -> None:
    async def exchange() -> None:
        stream = body()
        for chunk in chunks:
            await stream.feed(chunk)
        stream.finish()
        read, number = b"", 0
        while piece := stream.read(size := sizes[number % len(sizes)]):
            assert len(piece) == size or stream.read(1) == b""
            read, number = read + piece, number + 1
        assert read == b"".join(chunks)

    run(exchange())


def test_bytes_that_arrived_before_a_stall_are_read_first() -> None:
    async def stall() -> None:
        stream = body(Reader.UPLOAD)
        await stream.feed(b"abc")
        stream.fail(StalledBody())
        assert stream.read(10) == b"abc"
        with pytest.raises(StalledBody):
            stream.read(10)

    run(stall())


def test_bytes_are_read_as_they_arrive() -> None:
    async def arrive() -> None:
        stream = body(Reader.UPLOAD)
        assert stream.read_arrived(100, 0.0) == b""
        await stream.feed(b"abc")
        await stream.feed(b"defg")
        assert stream.read_arrived(2, 60.0) == b"ab"
        assert [stream.read_arrived(100, 0.0) for _ in range(3)] == [b"c", b"defg", b""]
        await stream.feed(b"end")
        stream.finish()
        assert stream.read_arrived(100, 60.0) == b"end"
        assert stream.read_arrived(100, 60.0) is None

    run(arrive())


def test_a_body_that_the_server_ended_says_why_after_its_last_bytes() -> None:
    async def stall() -> None:
        stream = body(Reader.UPLOAD)
        await stream.feed(b"abc")
        stream.fail(StalledBody())
        assert stream.read_arrived(100, 60.0) == b"abc"
        with pytest.raises(StalledBody):
            stream.read_arrived(100, 60.0)

    run(stall())


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=20), st.integers(1, 50))
def test_a_thread_that_waits_for_more_than_arrives_at_once_is_woken(chunks: list[bytes], size: int) -> None:
    async def exchange() -> None:
        stream = body()

        def read_all() -> bytes:
            return b"".join(iter(partial(stream.read, size), b""))

        reading = asyncio.get_running_loop().run_in_executor(None, read_all)
        for chunk in chunks:
            await stream.feed(chunk)
            await asyncio.sleep(0)
        stream.finish()
        async with asyncio.timeout(30):
            assert await reading == b"".join(chunks)

    run(exchange())
