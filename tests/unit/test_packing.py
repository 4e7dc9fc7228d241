"""Parts of a dataset registration: packs, external sort, file names and manifests."""

import hashlib
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from datasets.objectstore.filesystem import FilesystemStore
from datasets.versions import file_names, manifest_object
from datasets.versions.external_sort import Sorter
from datasets.versions.manifest import ManifestEntry, digest_of
from datasets.versions.packs import SourceFile, pack
from errors import BadName


@given(st.lists(st.binary(max_size=300), max_size=40), st.integers(1, 500))
def test_every_file_is_at_the_offset_of_its_entry_in_its_pack(bodies: list[bytes], target: int) -> None:
    packs: dict[str, bytes] = {}

    def put(key: str, chunks: Iterable[bytes]) -> None:
        packs[key] = b"".join(chunks)

    files = (SourceFile(f"f{at}", iter([body[:7], body[7:]])) for at, body in enumerate(bodies))
    entries = list(pack(files, put, lambda: f"p{len(packs)}", target=target))
    assert [entry.path for entry in entries] == [f"f{at}" for at in range(len(bodies))]
    for entry, body in zip(entries, bodies, strict=True):
        packed = packs[entry.source.removeprefix("store:")][entry.offset : entry.offset + entry.size]
        assert packed == body and entry.digest == "sha256:" + hashlib.sha256(body).hexdigest()
    assert sum(map(len, packs.values())) == sum(map(len, bodies))
    assert all(len(body) < target + 300 for body in packs.values())


def test_a_pack_is_durable_before_its_files_are_listed() -> None:
    packs: list[str] = []
    put: list[str] = []

    def keep(key: str, chunks: Iterable[bytes]) -> None:
        for _ in chunks:
            assert key not in packs
        put.append(key)

    for entry in pack((SourceFile(str(at), [b"x" * 10]) for at in range(9)), keep, lambda: f"p{len(put)}", target=30):
        packs.append(entry.source.removeprefix("store:"))
        assert packs[-1] in put


def test_more_records_than_fit_in_memory_are_sorted(tmp_path: Path) -> None:
    chance = random.Random(1)
    keys = [chance.randbytes(4).hex().encode() for _ in range(5000)]
    with Sorter(tmp_path, held=2000) as sorter:
        for key in keys:
            sorter.add(key, b"v" + key)
        assert [key for key, _ in sorter] == sorted(keys)
        assert all(value == b"v" + key for key, value in sorter)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    "name",
    [
        b"\xff",
        "../a",
        "a/../b",
        "/a",
        "a//b",
        "",
        ".",
        "a/./b",
        "a\\b",
        "a\nb",
        "a\x00b",
        "\x85",
        "x" * 256,
        "y/" * 600,
    ],
)
def test_an_unsafe_file_name_is_refused(name: str | bytes) -> None:
    with pytest.raises(BadName):
        file_names.validated(name)


def test_file_names_are_normalized() -> None:
    assert file_names.validated("./cafe\u0301/x") == "caf\u00e9/x"
    assert file_names.validated("a" * 255) == "a" * 255


@given(st.lists(st.text("aAbB/-\u00e9\u00df", min_size=1, max_size=6), min_size=2, max_size=8))
def test_names_clash_exactly_if_a_file_system_cannot_hold_both(names: list[str]) -> None:
    paths = []
    for name in names:
        try:
            paths.append(file_names.validated(name))
        except BadName:
            continue
    folded = [path.casefold() for path in paths]
    clash = len(set(folded)) < len(folded) or any(b.startswith(a + "/") for a in folded for b in folded)
    neighbours = file_names.ConflictChecker()
    try:
        for key, path in sorted((file_names.folded(path), path) for path in paths):
            neighbours.add(key, path)
        refused = False
    except BadName:
        refused = True
    assert refused == clash


def test_a_manifest_is_read_from_any_path_onwards(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    entries = [ManifestEntry(f"d{at // 100:03}/f{at:05}", at, "sha256:" + "0" * 64, "store:p") for at in range(3500)]
    written = manifest_object.write(store, "manifests/v/1", entries)
    assert (written.files, written.bytes, written.digest) == (3500, sum(range(3500)), digest_of(entries))
    for at in (0, 1, 998, 999, 1000, 1001, 2500, 3498, 3499):
        assert list(manifest_object.read(store, "manifests/v/1", entries[at].path)) == entries[at + 1 :]
        assert manifest_object.find(store, "manifests/v/1", entries[at].path) == entries[at]
    assert list(manifest_object.read(store, "manifests/v/1")) == entries
    assert list(manifest_object.read(store, "manifests/v/1", "d0")) == entries
    assert manifest_object.find(store, "manifests/v/1", "d000/g") is None
    assert (
        manifest_object.find(store, "manifests/v/1", "zzz") is None
        and manifest_object.find(store, "manifests/v/1", "") is None
    )
