"""Stream slots: of a process, of a project, and of a user; one takes none from another."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from api.stream_slots import StreamOwner, StreamSlot, StreamSlots
from common.errors import TooManyRequests, TooManyStreams

ADA, BOB, EVE = StreamOwner("red", "ada"), StreamOwner("red", "bob"), StreamOwner("blue", "eve")
OWNERS = st.sampled_from([ADA, BOB, EVE, StreamOwner("red", "ada", page=True), StreamOwner("", "operator")])


def test_a_user_has_half_of_what_his_project_has() -> None:
    slots = StreamSlots(10, 4)
    kept = [slots.occupy(ADA) for _ in range(2)]
    with pytest.raises(TooManyRequests, match="ada has 2 streams") as refused:
        slots.occupy(ADA)
    assert refused.value.members["retry_after"] == 5
    kept += [slots.occupy(BOB) for _ in range(2)]
    with pytest.raises(TooManyRequests, match="Project red has 4 streams"):
        slots.occupy(StreamOwner("red", "cyd"))
    slots.occupy(EVE)
    kept[0].release()
    slots.occupy(ADA)


def test_the_page_of_a_user_streams_though_his_scripts_have_their_share() -> None:
    slots = StreamSlots(10, 4)
    for _ in range(2):
        slots.occupy(ADA)
    slots.occupy(StreamOwner("red", "ada", page=True))


def test_without_a_share_one_has_all_of_them() -> None:
    slots = StreamSlots(3)
    for _ in range(3):
        slots.occupy()
    with pytest.raises(TooManyStreams):
        slots.occupy()


@given(st.integers(1, 8), st.integers(1, 8), st.lists(st.tuples(OWNERS, st.booleans()), max_size=80))
def test_what_was_released_is_free_again_and_no_share_is_exceeded(
    most: int, share: int, acts: list[tuple[StreamOwner, bool]]
) -> None:
    slots = StreamSlots(most, share)
    kept: list[tuple[StreamOwner, StreamSlot]] = []
    for owner, ends in acts:
        if ends and kept:
            _, slot = kept.pop()
            slot.release()
            slot.release()
            continue
        with suppress(TooManyRequests, TooManyStreams):
            kept.append((owner, slots.occupy(owner)))
        assert len(kept) <= most
        assert sum(owner.project == "red" for owner, _ in kept) <= share
        assert sum(owner == ADA for owner, _ in kept) <= max(1, share // 2)
    for _, slot in kept:
        slot.release()
    assert not slots._owned
    for number in range(min(most, share)):
        slots.occupy(StreamOwner("red", f"user-{number}"))
