"""Block checksums: the same for every division of a content into pieces."""

import random
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.scs.block_checksums import BLOCK, BlockHasher, Damaged, blocks_of, verify

CONTENT = random.Random(7).randbytes(3 * BLOCK + 100)


@given(
    size=st.integers(0, len(CONTENT)) | st.sampled_from([BLOCK - 1, BLOCK, BLOCK + 1, 3 * BLOCK]),
    cuts=st.lists(st.integers(0, len(CONTENT)), max_size=5),
)
def test_every_block_has_its_checksum_in_whatever_pieces_it_arrives(size: int, cuts: list[int]) -> None:
    hasher, content = BlockHasher(), memoryview(CONTENT)[:size]
    bounds = [0, *sorted(min(cut, size) for cut in cuts), size]
    for start, end in pairwise(bounds):
        hasher.update(content[start:end])
    checksums = hasher.checksums()
    assert len(checksums) == 8 * len(blocks_of(0, size))
    for block in blocks_of(0, size):
        verify(content[block * BLOCK : (block + 1) * BLOCK], checksums, block)


def test_a_block_of_another_place_or_without_a_checksum_is_damaged() -> None:
    hasher = BlockHasher()
    hasher.update(CONTENT)
    checksums = hasher.checksums()
    for block, place in ((0, 1), (1, 0), (3, 2), (3, 4)):
        with pytest.raises(Damaged, match=f"block {place} "):
            verify(CONTENT[block * BLOCK : (block + 1) * BLOCK], checksums, place)


def test_a_range_touches_the_blocks_of_its_first_and_its_last_byte() -> None:
    assert list(blocks_of(0, 1)) == list(blocks_of(0, BLOCK)) == [0]
    assert list(blocks_of(BLOCK - 1, BLOCK + 1)) == [0, 1]
    assert list(blocks_of(BLOCK, 3 * BLOCK)) == [1, 2]
