"""Range coalescing: adjacent files share a request, in constant memory; and pauses between retries."""

import random
import tracemalloc
from collections.abc import Iterator

from hypothesis import given
from hypothesis import strategies as st

from datasets.download.downloader import RetryLimits, pause
from datasets.download.range_coalescing import GAP, LONGEST, MOST, SMALL, batches, coalesce
from datasets.versions.manifest import ManifestEntry


def entry(source: str, offset: int, size: int, etag: str | None = None) -> ManifestEntry:
    return ManifestEntry(
        path=f"{source}/{offset}", size=size, digest="sha256:" + "0" * 64, source=source, offset=offset, etag=etag
    )


def test_adjacent_files_share_a_request_in_any_order_of_their_names() -> None:
    pack = [entry("store:p", number * 1000, 1000) for number in range(100)]
    random.Random(1).shuffle(pack)
    [request] = coalesce(pack)
    assert (request.start, request.stop, len(request.entries)) == (0, 100_000, 100)


def test_very_many_tiny_files_are_several_requests() -> None:
    requests = list(coalesce(entry("store:p", number, 1) for number in range(2 * MOST + 1)))
    assert [len(request.entries) for request in requests] == [MOST, MOST, 1]


def test_a_large_file_and_each_further_object_have_a_request_of_their_own() -> None:
    requests = list(coalesce([entry("s3:c/b/large", 0, 100 << 20), *(entry(f"s3:c/b/{n}", 0, 10) for n in range(3))]))
    assert [len(request.entries) for request in requests] == [1, 1, 1, 1]


def test_files_with_different_etags_are_different_requests() -> None:
    assert len(list(coalesce([entry("s", 0, 10, "x"), entry("s", 10, 10, "y")]))) == 2


def test_small_requests_are_batched_and_large_requests_are_alone() -> None:
    small = [entry(f"s3:c/b/{number:02d}", 0, 1000) for number in range(20)]
    large = [entry(f"s3:c/b/x{number}", 0, SMALL) for number in range(3)]
    requests = list(batches(coalesce([*small, *large]), 16))
    assert [len(batch) for batch in requests] == [16, 5, 1, 1]
    assert [request.entries[0] for batch in requests for request in batch] == [*small, *large]


@given(st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 30 << 20), st.integers(0, 12 << 20)), max_size=60))
def test_every_file_is_in_exactly_one_request_of_bounded_length_and_gaps(
    placements: list[tuple[str, int, int]],
) -> None:
    entries = [entry(*placement) for placement in placements]
    requests = list(coalesce(entries))
    key = lambda item: (item.source, item.offset, item.size)  # noqa: E731
    assert sorted((item for request in requests for item in request.entries), key=key) == sorted(entries, key=key)
    for request in requests:
        assert {item.source for item in request.entries} == {request.source}
        assert len(request.entries) == 1 or request.stop - request.start <= LONGEST
        for item, following in zip(request.entries, request.entries[1:], strict=False):
            assert 0 <= following.offset - (item.offset + item.size) <= GAP


def test_memory_use_does_not_depend_on_the_length_of_the_manifest() -> None:
    def manifest(count: int) -> Iterator[ManifestEntry]:
        return (entry(f"store:packs/{number // 4096}", number % 4096 * 16_384, 16_384) for number in range(count))

    def peak(count: int) -> int:
        tracemalloc.start()
        for _ in coalesce(manifest(count)):
            continue
        peak_bytes = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        return peak_bytes

    assert peak(80_000) < 1.2 * peak(20_000)


@given(st.integers(1, 100), st.floats(0, 1, exclude_max=True))
def test_pauses_grow_with_jitter_up_to_a_limit(failures: int, jitter: float) -> None:
    retry_limits = RetryLimits(first=0.2, longest=10.0)
    seconds = pause(failures, retry_limits, jitter)
    assert 0.1 <= seconds <= 10.0
    assert pause(failures, retry_limits, 0.0) <= pause(failures + 1, retry_limits, 0.0)
