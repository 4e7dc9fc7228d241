"""Dataset registration: packs, external sort, file names and manifests."""

import hashlib
import random
from collections.abc import Iterable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadName
from datasets.objectstore.filesystem import FilesystemStore
from datasets.versions import file_names, manifest_object
from datasets.versions.external_sort import Sorter
from datasets.versions.manifest import ManifestEntry, digest_of
from datasets.versions.packs import SourceFile, pack


@given(st.lists(st.binary(max_size=300), max_size=40), st.integers(1, 500))
def test_every_file_is_at_the_offset_of_its_entry_in_its_pack(bodies: list[bytes], target: int) -> None:
    packs: dict[str, bytes] = {}

    def put(key: str, chunks: Iterable[bytes]) -> None:
        packs[key] = b"".join(chunks)

    files = (SourceFile(f"f{index}", iter([body[:7], body[7:]])) for index, body in enumerate(bodies))
    entries = list(pack(files, put, lambda: f"p{len(packs)}", target=target))
    assert [entry.path for entry in entries] == [f"f{index}" for index in range(len(bodies))]
    for entry, body in zip(entries, bodies, strict=True):
        content = packs[entry.source.removeprefix("store:")][entry.offset : entry.offset + entry.size]
        assert content == body and entry.digest == "sha256:" + hashlib.sha256(body).hexdigest()
    assert sum(map(len, packs.values())) == sum(map(len, bodies))
    assert all(len(body) < target + 300 for body in packs.values())


def test_a_pack_is_durable_before_its_files_are_listed() -> None:
    listed_packs: list[str] = []
    stored_packs: list[str] = []

    def store_pack(key: str, chunks: Iterable[bytes]) -> None:
        for _ in chunks:
            assert key not in listed_packs
        stored_packs.append(key)

    for entry in pack(
        (SourceFile(str(number), [b"x" * 10]) for number in range(9)),
        store_pack,
        lambda: f"p{len(stored_packs)}",
        target=30,
    ):
        listed_packs.append(entry.source.removeprefix("store:"))
        assert listed_packs[-1] in stored_packs


def test_more_records_than_fit_in_memory_are_sorted(tmp_path: Path) -> None:
    generator = random.Random(1)
    keys = [generator.randbytes(4).hex().encode() for _ in range(5000)]
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
def test_names_conflict_exactly_if_a_file_system_cannot_contain_both(names: list[str]) -> None:
    paths = []
    for name in names:
        try:
            paths.append(file_names.validated(name))
        except BadName:
            continue
    folded = [path.casefold() for path in paths]
    clash = len(set(folded)) < len(folded) or any(
        longer.startswith(shorter + "/") for shorter in folded for longer in folded
    )
    checker = file_names.ConflictChecker()
    try:
        for key, path in sorted((file_names.folded(path), path) for path in paths):
            checker.add(key, path)
        refused = False
    except BadName:
        refused = True
    assert refused == clash


def test_a_manifest_is_read_from_any_path_onwards(tmp_path: Path) -> None:
    store = FilesystemStore(tmp_path)
    entries = [
        ManifestEntry(f"d{index // 100:03}/f{index:05}", index, "sha256:" + "0" * 64, "store:p")
        for index in range(3500)
    ]
    manifest = manifest_object.write(store, "manifests/v/1", entries)
    assert (manifest.files, manifest.bytes, manifest.digest) == (3500, sum(range(3500)), digest_of(entries))
    for index in (0, 1, 998, 999, 1000, 1001, 2500, 3498, 3499):
        assert list(manifest_object.read(store, "manifests/v/1", entries[index].path)) == entries[index + 1 :]
        assert manifest_object.find(store, "manifests/v/1", entries[index].path) == entries[index]
    assert list(manifest_object.read(store, "manifests/v/1")) == entries
    assert list(manifest_object.read(store, "manifests/v/1", "d0")) == entries
    assert manifest_object.find(store, "manifests/v/1", "d000/g") is None
    assert (
        manifest_object.find(store, "manifests/v/1", "zzz") is None
        and manifest_object.find(store, "manifests/v/1", "") is None
    )
