"""Decompositions, without MPI: cells have one owner, neighbours agree on what they exchange, strips cover blocks."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import halo
from halo import Decomposition
from halo.decomposition import cells_in, directions


@st.composite
def decompositions(draw: st.DrawFn) -> Decomposition:
    dimensions = draw(st.integers(1, 3))
    grid = draw(st.tuples(*[st.integers(1, 4)] * dimensions))
    width = draw(st.tuples(*[st.integers(0, 3)] * dimensions))
    rests = draw(st.tuples(*[st.integers(0, 9)] * dimensions))
    shape = tuple(ranks * max(wide, 1) + rest for ranks, wide, rest in zip(grid, width, rests, strict=True))
    return Decomposition(shape, grid, width, draw(st.tuples(*[st.booleans()] * dimensions)))


def opposite(direction: tuple[int, ...]) -> tuple[int, ...]:
    return tuple(-side for side in direction)


def owned(decomposition: Decomposition) -> np.ndarray:
    """Return the number of owners of each cell."""
    owners = np.zeros(decomposition.shape, int)
    for rank in range(decomposition.ranks):
        owners[decomposition.block(rank).place] += 1
    return owners


@given(decompositions())
def test_every_cell_has_one_owner(decomposition):
    assert (owned(decomposition) == 1).all()


@given(decompositions())
def test_blocks_differ_by_one_cell_at_most_in_each_dimension(decomposition):
    shapes = np.array([decomposition.block(rank).shape for rank in range(decomposition.ranks)])
    assert (np.ptp(shapes, axis=0) <= 1).all() and (shapes >= np.maximum(decomposition.width, 1)).all()


@given(decompositions())
def test_ranks_are_in_the_order_of_their_places(decomposition):
    places = [decomposition.place(rank) for rank in range(decomposition.ranks)]
    assert places == [tuple(map(int, place)) for place in np.ndindex(decomposition.grid)]


@given(decompositions())
def test_neighbours_are_neighbours_of_each_other_and_exchange_equal_shapes(decomposition):
    for rank in range(decomposition.ranks):
        for direction, other in decomposition.neighbours(rank).items():
            assert decomposition.neighbours(other)[opposite(direction)] == rank
            sent, received = (
                decomposition.block(rank).sent_cells(direction),
                decomposition.block(other).halo_cells(opposite(direction)),
            )
            assert [part.stop - part.start for part in sent[1:]] == [part.stop - part.start for part in received[1:]]


@given(decompositions())
def test_the_opposite_of_direction_k_is_the_last_but_k(decomposition):
    every = directions(len(decomposition.shape))
    assert [opposite(direction) for direction in every] == every[::-1]


@given(decompositions(), st.data())
def test_a_halo_has_exactly_the_cells_around_a_block_once_each(decomposition, data):
    rank = data.draw(st.integers(0, decomposition.ranks - 1))
    block = decomposition.block(rank)
    times, writes = np.zeros(block.padded, int), np.zeros(block.padded, int)
    for direction in decomposition.neighbours(rank):
        times[block.halo_cells(direction)] += 1
    for region in (
        *map(block.halo_cells, decomposition.messages(rank)),
        *(halo_region for halo_region, _ in decomposition.wraps(rank)),
    ):
        writes[region] += 1
    expected = np.ones(block.padded, int)
    expected[block.cells] = 0
    for edge in decomposition.edges(rank):
        expected[edge.ghosts] = 0
    assert (times == expected).all() and (writes == expected).all()


@given(decompositions())
def test_messages_come_from_others_and_with_wraps_they_are_what_lies_around_a_block(decomposition):
    assert all(rank not in decomposition.messages(rank).values() for rank in range(decomposition.ranks))
    whole = np.arange(np.prod(decomposition.shape)).reshape(decomposition.shape)
    for rank in range(decomposition.ranks):
        block = decomposition.block(rank)
        array = np.full(block.padded, -1)
        array[block.cells] = whole[block.place]
        for direction, other in decomposition.messages(rank).items():
            there = np.full(decomposition.block(other).padded, -1)
            there[decomposition.block(other).cells] = whole[decomposition.block(other).place]
            array[block.halo_cells(direction)] = there[decomposition.block(other).sent_cells(opposite(direction))]
        for halo_region, own in decomposition.wraps(rank):
            array[halo_region] = array[own]
        indices = [
            np.arange(start - width, stop + width)
            for start, stop, width in zip(block.start, block.stop, block.width, strict=True)
        ]
        for numbers, cells, periodic in zip(indices, decomposition.shape, decomposition.periodic, strict=True):
            numbers[:] = numbers % cells if periodic else np.where((numbers < 0) | (numbers >= cells), -1, numbers)
        around = whole[np.ix_(*indices)]
        for dimension, numbers in enumerate(indices):
            np.moveaxis(around, dimension, 0)[numbers < 0] = -1
        assert (array == around).all()


@given(decompositions(), st.data())
def test_interior_and_rim_are_the_own_cells_once_each(decomposition, data):
    block = decomposition.block(data.draw(st.integers(0, decomposition.ranks - 1)))
    times = np.zeros(block.padded, int)
    for region in (block.interior, *block.rim):
        times[region] += 1
    expected = np.zeros(block.padded, int)
    expected[block.cells] = 1
    assert (times == expected).all() and all(cells_in(strip) for strip in block.rim)


@given(decompositions(), st.data())
def test_no_stencil_reaches_from_the_interior_to_the_halo(decomposition, data):
    block = decomposition.block(data.draw(st.integers(0, decomposition.ranks - 1)))
    touched = np.zeros(block.padded, bool)
    if cells_in(block.interior):
        touched[block.around(block.interior)] = True
    touched[block.cells] = False
    assert not touched.any()


@given(decompositions())
def test_edges_that_are_filled_in_order_are_numpys_padding(decomposition):
    whole = np.arange(np.prod(decomposition.shape)).reshape(decomposition.shape)
    alone = Decomposition(decomposition.shape, (1,) * whole.ndim, decomposition.width, (False,) * whole.ndim)
    array = np.full(alone.block(0).padded, -1)
    array[alone.block(0).cells] = whole
    for edge in alone.edges(0):
        array[edge.ghosts] = array[edge.nearest]
    assert (array == np.pad(whole, [(width, width) for width in decomposition.width], mode="edge")).all()


@dataclass(frozen=True)
class Refusal:
    arguments: tuple[object, ...]
    reason: str


@pytest.mark.parametrize(
    "refusal",
    [
        Refusal(((4,), (5,), (1,), (False,)), "4 cells on 5 ranks are 0 a rank, fewer than 1"),
        Refusal(((8, 8), (1, 3), (1, 3), (False, False)), "dimension 1: 8 cells on 3 ranks are 2 a rank, fewer than 3"),
        Refusal(((8, 8), (2,), (1, 1), (False, False)), "an entry for each of one to three dimensions"),
        Refusal(((8,) * 4, (1,) * 4, (1,) * 4, (False,) * 4), "an entry for each of one to three dimensions"),
        Refusal(((8,), (0,), (1,), (False,)), "0 ranks and a halo of 1 cells are not possible"),
        Refusal(((8,), (1,), (-1,), (False,)), "1 ranks and a halo of -1 cells are not possible"),
    ],
    ids=lambda refusal: refusal.reason[:30],
)
def test_a_decomposition_that_cannot_be_is_refused_with_its_reason(refusal):
    with pytest.raises(ValueError, match=refusal.reason):
        Decomposition(*refusal.arguments)


@pytest.mark.parametrize("rank", [-1, 4])
def test_a_rank_that_is_not_there_has_no_block(rank):
    with pytest.raises(ValueError, match=f"no rank {rank} of 4"):
        Decomposition.of(8, 4).block(rank)


def test_one_number_is_for_all_dimensions():
    assert Decomposition.of((8, 9), 2, 3, True) == Decomposition((8, 9), (2, 2), (3, 3), (True, True))


def test_the_header_is_in_the_package():
    assert (halo.include() / "halo.h").is_file()
