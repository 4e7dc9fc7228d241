"""Staging through the cache service: reads the cache first, then the origin, and fills the cache."""

from collections.abc import Callable
from pathlib import Path

import pytest

from common.errors import PlatformError
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore import ObjectStore, open_store
from datasets.scs_client.client import SimpleCache
from datasets.versions.manifest import ManifestEntry, digest_of
from tests.contracts.cache_nodes import CacheServiceProcess, open_cache, server, servers, token
from tests.contracts.test_staging import packed, some_files

__all__ = ["open_cache", "server", "servers", "token"]  # fixtures

FILES = some_files(60)


class Origin:
    """A dataset in an object store, and the nodes that stage it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.store: ObjectStore = open_store(f"file://{folder / 'objects'}")
        self.entries: list[ManifestEntry] = packed(self.store, FILES, target=1)  # one object per file
        self.distinct = len({entry.digest for entry in self.entries})

    def delete_objects(self) -> None:
        """Delete the dataset from the store, so that only the cache has it."""
        for key in list(self.store.list("packs/")):
            self.store.delete(key)

    def stage_on(self, cache_client: SimpleCache, node: str) -> dict[str, bytes]:
        """Stage on an empty node; return the staged files."""
        cache = NodeCache(self.folder / node, self.store, cache_client=cache_client)
        tree = cache.tree(digest_of(self.entries), lambda: iter(self.entries), holder="test")
        return {str(path.relative_to(tree)): path.read_bytes() for path in tree.rglob("*") if path.is_file()}


@pytest.fixture
def origin(tmp_path: Path) -> Origin:
    return Origin(tmp_path)


def test_a_second_node_reads_from_the_cache_service_the_files_that_the_first_downloaded(
    servers: list[CacheServiceProcess], open_cache: Callable[..., SimpleCache], origin: Origin
) -> None:
    urls = [server.url for server in servers]
    assert origin.stage_on(open_cache(*urls), "first") == FILES
    origin.delete_objects()
    second = open_cache(*urls)
    assert origin.stage_on(second, "second") == FILES
    assert second.counts == {"hits": sum(map(bool, FILES.values()))}  # empty files are not requested


def test_a_killed_cache_node_costs_requests_to_the_origin_only(
    servers: list[CacheServiceProcess], open_cache: Callable[..., SimpleCache], origin: Origin
) -> None:
    urls = [server.url for server in servers]
    client = open_cache(*urls)
    origin.stage_on(client, "first")
    servers[0].kill()
    assert origin.stage_on(client, "second") == FILES
    second_client = open_cache(*urls)
    origin.delete_objects()
    assert origin.stage_on(second_client, "third") == FILES, "the other nodes were filled with the missing files"


def test_flipped_bits_in_the_cache_are_detected_and_repaired_from_the_origin(
    servers: list[CacheServiceProcess], open_cache: Callable[..., SimpleCache], origin: Origin
) -> None:
    server = servers[0]
    origin.stage_on(open_cache(server.url), "first")
    flipped = 0
    for path in (server.folder / "objects").rglob("*.*"):
        if path.is_file() and not path.name.startswith("ledger.db") and path.stat().st_size:
            content = bytearray(path.read_bytes())
            content[len(content) // 2] ^= 1
            path.write_bytes(content)
            flipped += 1
    assert flipped == origin.distinct - 1, "all but the empty file"
    assert origin.stage_on(open_cache(server.url), "second") == FILES
    origin.delete_objects()
    assert origin.stage_on(open_cache(server.url), "third") == FILES, "the cache has the right bytes now"


def test_without_origin_and_cache_the_error_names_the_object_of_the_origin(
    server: CacheServiceProcess, open_cache: Callable[..., SimpleCache], origin: Origin
) -> None:
    origin.delete_objects()
    with pytest.raises(PlatformError, match="packs/d/"):
        origin.stage_on(open_cache(server.url), "first")
