"""Caches in use: what the node cache and the nodes of the cache service count, as the platform reads it."""

import socket
from dataclasses import replace
from pathlib import Path
from typing import Any

from core.services.operations.cache_use import CacheUse
from core.settings import Settings
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
from datasets.scs_client.cache_nodes import CacheNode, StaticMembership
from datasets.scs_client.client import SimpleCache
from server import composition as root
from server.preparation import _configure_cache
from tests.contracts.cache_nodes import CacheServiceProcess, FaultyNode, open_cache, server, servers, token
from tests.contracts.test_staging import digest
from tests.waiting import until

__all__ = ["open_cache", "server", "servers", "token"]  # fixtures


def caches_of(folder: Path, *urls: str) -> CacheUse:
    cache = NodeCache(folder / "cache", FilesystemStore(folder / "objects"))
    return CacheUse(cache, StaticMembership(CacheNode(url) for url in urls).nodes)


def services_in(caches: CacheUse) -> list[dict[str, Any]]:
    return [item for item in caches.describe()["items"] or () if item["kind"] == "service"]


def test_a_bucket_of_a_cache_node_has_its_size_hits_and_misses(
    server: CacheServiceProcess, open_cache: Any, tmp_path: Path
) -> None:
    content = b"x" * 1000
    file = tmp_path / "file"
    file.write_bytes(content)
    client: SimpleCache = open_cache(server.url)
    with open(tmp_path / "target", "w+b") as target:
        assert not client.get(digest(content), len(content), target)
        client.put(digest(content), file)
        assert client.get(digest(content), len(content), target)
    caches = caches_of(tmp_path, server.url)

    def counted() -> dict[str, Any]:
        return next((item for item in services_in(caches) if item["hits"]), {})

    shown = until(counted, message=lambda: f"the node reports no hit: {caches.describe()}")
    assert (shown["name"], shown["bucket"], shown["reason"]) == (server.url, "private", None)
    assert (shown["entries"], shown["bytes"], shown["capacity"]) == (1, len(content), 64 << 20)
    assert (shown["hits"], shown["misses"], shown["hit_ratio"], shown["pinned"]) == (1, 1, 0.5, None)


def test_a_cache_node_that_does_not_answer_has_a_reason_and_no_figures(tmp_path: Path) -> None:
    nodes = [FaultyNode(b"HTTP/1.1 500 No\r\nContent-Length: 0\r\n\r\n"), FaultyNode(b"nothing")]
    try:
        caches = caches_of(tmp_path, *(node.url for node in nodes))
        shown = until(lambda: services_in(caches), message="the caches are not read")
    finally:
        for node in nodes:
            node.close()
    assert {item["name"] for item in shown} == {node.url for node in nodes}
    for item in shown:
        assert item["reason"].startswith("the cache node does not answer")
        assert item["entries"] is item["hits"] is item["hit_ratio"] is None


def test_evictions_of_the_node_cache_are_counted(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path / "objects")
    cache = NodeCache(tmp_path / "cache", store, capacity=2500)
    for name in "abc":
        content = name.encode() * 1000
        store.put(f"models/{name}", [content])
        cache.object(f"models/{name}", digest(content))
    use = cache.use()
    assert use is not None
    assert (use.entries, use.bytes, use.capacity) == (2, 2000, 2500)
    assert (use.hits, use.misses, use.evictions, use.pinned) == (0, 3, 1, 0)


def test_damaged_counts_begin_at_zero(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path / "objects")
    store.put("models/a", [b"a"])
    cache = NodeCache(tmp_path / "cache", store)
    cache.object("models/a", digest(b"a"))
    (tmp_path / "cache" / "counts.json").write_text("[1")
    cache.object("models/a", digest(b"a"))
    use = cache.use()
    assert use is not None and (use.hits, use.misses) == (1, 0)


def test_counts_that_cannot_be_written_do_not_fail_a_request(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path / "objects")
    store.put("models/a", [b"a"])
    (tmp_path / "cache" / "counts.json").mkdir(parents=True)  # it cannot be replaced by a file
    cache = NodeCache(tmp_path / "cache", store)
    assert cache.object("models/a", digest(b"a")).read_bytes() == b"a"
    assert not list((tmp_path / "cache").glob(".counts*"))


def test_the_nodes_that_are_shown_are_those_of_the_settings_or_this_machines_own(tmp_path: Path) -> None:
    settings = Settings(home=tmp_path, scs_port=5099)
    own = root.cache_nodes_of(settings).nodes()
    assert [node.url for node in own] == ["http://127.0.0.1:5099"]
    assert root.cache_nodes_of(replace(settings, scs_port=0)).nodes() == ()
    others = root.cache_nodes_of(replace(settings, scs_nodes=("http://a:1", "zone=http://b:2"))).nodes()
    assert {node.url for node in others} == {"http://a:1", "http://b:2"}


def test_what_answers_at_the_port_of_another_cache_service_is_not_shown(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        settings = Settings(home=tmp_path, scs_port=other.getsockname()[1])
        environ: dict[str, str] = {}
        assert _configure_cache(settings, environ) is None
    assert environ == {"WINDTUNNEL_SCS_PORT": "0"}
