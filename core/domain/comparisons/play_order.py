"""Order of play of a comparison: uniformly random by a seed, and the sizes of the batches between two looks.

The test of a list keeps its error rate because each pair is drawn uniformly from those that are left: its null mean is
that of the rest. A sample of a population needs only that the order does not depend on the results. Both hold for a
uniformly random order of all scenarios, whatever their groups are.

Groups are not interleaved in proportion to their sizes, although every prefix would then have their shares: the next
group would be known, the expected next difference would be that group's and not that of the rest, and the capital
would no longer be a supermartingale under every null (a worst-first order is the extreme: it decides wrongly at once).
A random order has the shares in expectation. Of t of N pairs, the share w of a group has a standard deviation of
sqrt(w (1 - w) / t * (N - t) / (N - 1)): 4 percentage points at 64 of 288 pairs and a share of a sixth. Within a group
the order is uniformly random as well, so that the test of a single group keeps its error rate, too.
"""

import hashlib
from collections.abc import Iterator, Sequence
from itertools import accumulate

#: Pairs of the first batch, growth from batch to batch, and most pairs of a batch.
FIRST, GROWTH, LARGEST = 16, 1.3, 8192


def play_order(seed: int, scenarios: Sequence[str]) -> list[int]:
    """Return the positions of ``scenarios`` in the order of play; ``scenarios``: a different text for each.

    Sorted by a keyed hash (BLAKE2b) of each text: equal on every machine and in every version, and independent of the
    sequence in which a dataset lists its scenarios. Raise ValueError for texts that are equal: they would not be in an
    order of their own.
    """
    key = seed.to_bytes(32, "big", signed=True)
    digests = [hashlib.blake2b(scenario.encode(), key=key, digest_size=16).digest() for scenario in scenarios]
    if len(set(digests)) < len(digests):
        raise ValueError("Two scenarios of the order of play have the same name.")
    return sorted(range(len(digests)), key=digests.__getitem__)


def batch_sizes(pairs: int) -> Iterator[int]:
    """Yield the sizes of the batches after which the test is looked at, ``pairs`` in all.

    Each batch is GROWTH - 1 times everything before it, between FIRST and LARGEST: the number of looks
    grows with the logarithm of ``pairs``, and little is played after the deciding pair. The error rate does not depend
    on it.
    """
    played = 0
    while played < pairs:
        size = min(max(FIRST, int(played * (GROWTH - 1))), LARGEST, pairs - played)
        yield size
        played += size


def batches(seed: int, scenarios: Sequence[int]) -> list[list[int]]:
    """Return the scenarios of each batch, by index in the dataset, in the order of play."""
    order = [scenarios[position] for position in play_order(seed, [str(index) for index in scenarios])]
    ends = list(accumulate(batch_sizes(len(order))))
    return [order[start:end] for start, end in zip([0, *ends], ends, strict=False)]
