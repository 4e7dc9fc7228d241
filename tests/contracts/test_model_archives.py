"""Models that are archives: unpacked once per node, verified, refused by name if an entry is not allowed."""

import gzip
import io
import os
import subprocess
import sysconfig
import tarfile
import tempfile
import threading
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from common.errors import BadArchive, NodeFull, TooLarge
from datasets.nodecache.model_files import ModelFiles, StoredModel
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
from datasets.versions.archives import extraction
from runtimes.harness.runner import model_folder
from tests.contracts.test_cache import digest_of
from tests.sandbox.attacks import python_for_all
from workers.launch_inputs import unpacked_model

Pack = Callable[[dict[str, bytes]], bytes]


def zip_of(files: dict[str, bytes]) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content, zipfile.ZIP_DEFLATED if len(content) > 100 else zipfile.ZIP_STORED)
    return buffer.getvalue()


def tar_of(files: dict[str, bytes], mode: str = "w") -> bytes:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode=mode) as archive:  # type: ignore[call-overload]
        for name, content in files.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return buffer.getvalue()


def tar_gz_of(files: dict[str, bytes]) -> bytes:
    return tar_of(files, "w:gz")


FILES = {"model.py": b"class Model: pass\n", "parts/lib.so": b"\x7fELF" + bytes(5000), "parts/empty": b""}
PACKS = pytest.mark.parametrize("pack", [zip_of, tar_of, tar_gz_of])


class Node:
    """A node with a store, and a count of the archives that it unpacked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch, *, capacity: int | None = None) -> None:
        self.store = FilesystemStore(folder / "objects")
        self.cache = NodeCache(folder / "cache", self.store, capacity=capacity)
        self.models = ModelFiles(self.cache, largest=1 << 20)
        self.unpacked = 0
        extract = extraction.extract

        def counted(archive: Path, folder: Path, *, largest: int) -> None:
            self.unpacked += 1
            extract(archive, folder, largest=largest)

        monkeypatch.setattr("datasets.nodecache.model_files.extract", counted)

    def stored(self, content: bytes, *, archive: bool = True) -> StoredModel:
        digest = digest_of(content)
        key = f"models/{digest.removeprefix('sha256:')}"
        self.store.put(key, (content,))
        return StoredModel(key, digest, archive)


@pytest.fixture
def node(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Node:
    return Node(tmp_path, monkeypatch)


@PACKS
def test_an_archive_is_unpacked_once_into_a_folder_that_is_read_only_and_executable(node: Node, pack: Pack) -> None:
    model = node.stored(pack(FILES))
    assert node.models.ready(model) is None
    folder = node.models.path(model, holder="first")
    assert node.models.path(model, holder="second") == folder and node.models.ready(model) is True
    assert node.unpacked == 1
    found = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    assert {name: path.read_bytes() for name, path in found.items()} == FILES
    assert {path.stat().st_mode & 0o777 for path in folder.rglob("*")} == {0o555}


def test_an_archive_that_meets_a_defect_of_what_reads_it_is_refused(
    node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    def defective(path: str) -> bool:
        raise KeyError(path)

    monkeypatch.setattr(extraction, "is_clutter", defective)
    with pytest.raises(BadArchive, match=r"^The archive could not be read \(KeyError: "):
        node.models.path(node.stored(tar_of(FILES)), holder="first")


def in_a_folder(pack: Pack) -> Pack:
    """Pack as a file manager does that packs a folder, and adds files of its own."""

    def packed(files: dict[str, bytes]) -> bytes:
        clutter = {"model/.DS_Store": b"x", "model/._model.py": b"x", "__MACOSX/model/._model.py": b"x"}
        return pack({f"model/{name}": content for name, content in files.items()} | clutter)

    return packed


@PACKS
@pytest.mark.parametrize("files", [FILES, {"model": b"of the same name", "model.py": b""}])
def test_the_one_folder_of_an_archive_is_entered(node: Node, pack: Pack, files: dict[str, bytes]) -> None:
    folder = node.models.path(node.stored(in_a_folder(pack)(files)), holder="first")
    found = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    assert found == files


@PACKS
def test_a_folder_beside_a_file_is_not_entered(node: Node, pack: Pack) -> None:
    folder = node.models.path(node.stored(pack({"model/model.py": b"", "readme": b""})), holder="first")
    assert {path.name for path in folder.iterdir()} == {"model", "readme"}


def test_concurrent_launches_unpack_an_archive_once(node: Node) -> None:
    model = node.stored(zip_of(FILES))
    folders: list[Path] = []
    threads = [
        threading.Thread(target=lambda number=number: folders.append(node.models.path(model, holder=str(number))))
        for number in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(folders) == 8 and len(set(folders)) == 1 and node.unpacked == 1


def test_a_model_that_is_no_archive_is_its_file(node: Node) -> None:
    path = node.models.path(node.stored(b"class Model: pass\n"), holder="one")
    assert path.is_file() and node.unpacked == 0


def test_a_file_of_a_format_that_places_it_is_alone_in_a_folder_and_executable(node: Node, tmp_path: Path) -> None:
    model = replace(node.stored(b"\x7fELF library"), placed="model.so")
    assert node.models.ready(model) is None
    folder = node.models.path(model, holder="first")
    assert node.models.path(model, holder="second") == folder and node.models.ready(model) is True
    assert [path.name for path in folder.iterdir()] == ["model.so"]
    assert (folder / "model.so").read_bytes() == b"\x7fELF library"
    assert (folder / "model.so").stat().st_mode & 0o777 == 0o555
    archive = replace(node.stored(zip_of(FILES)), placed="model.so")
    assert {path.name for path in node.models.path(archive, holder="first").iterdir()} == {"model.py", "parts"}


@pytest.mark.parametrize("content", [b"\x7fELF library", zip_of({"model.so": b"\x7fELF library"})])
def test_a_runner_without_a_shared_folder_has_the_same_folder(content: bytes, tmp_path: Path) -> None:
    (tmp_path / "download").write_bytes(content)
    (tmp_path / "model-folder").mkdir()
    arguments = (str(tmp_path / "download"), tmp_path / "model-folder", 1 << 20, "model.so")
    folder = Path(unpacked_model(*arguments))
    assert folder == tmp_path / "model-folder" / model_folder.MODEL and unpacked_model(*arguments) == str(folder)
    assert (folder / "model.so").read_bytes() == b"\x7fELF library"
    assert (folder / "model.so").stat().st_mode & 0o777 == 0o555 and folder.stat().st_mode & 0o777 == 0o755


def test_a_zip_of_a_format_that_takes_no_archives_stays_a_file(node: Node) -> None:
    path = node.models.path(node.stored(zip_of(FILES), archive=False), holder="one")
    assert path.is_file() and node.unpacked == 0


def test_the_folder_of_a_process_that_was_killed_is_made_again(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    model = node.stored(zip_of(FILES))
    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):

        def die(archive: Path, folder: Path, *, largest: int) -> None:
            (folder / "half").write_bytes(b"written")
            raise KeyboardInterrupt

        patch.setattr("datasets.nodecache.model_files.extract", die)
        node.models.path(model, holder="one")
    folder = node.models.path(model, holder="one")
    assert sorted(path.name for path in folder.iterdir()) == ["model.py", "parts"]


def test_a_damaged_file_of_a_model_is_found_and_the_model_is_unpacked_again(node: Node) -> None:
    model = node.stored(zip_of(FILES))
    folder = node.models.path(model, holder="one")
    (folder / "model.py").chmod(0o755)
    (folder / "model.py").write_bytes(b"class Model: fail\n")
    damaged: list[str] = []
    while not damaged:  # the least recently checked entry first
        damaged = node.cache.scrub(age=0.0, pace=None)
    assert damaged == ["model.py"] and node.models.ready(model) is False
    assert (node.models.path(model, holder="one") / "model.py").read_bytes() == FILES["model.py"]


def test_an_unused_model_is_evicted_with_its_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node(tmp_path, monkeypatch, capacity=300_000)
    first = node.stored(zip_of({"model.py": os.urandom(60_000)}))
    second = node.stored(zip_of({"model.py": os.urandom(120_000)}))
    node.models.path(first, holder="one")
    with pytest.raises(NodeFull):
        node.models.path(second, holder="two")
    node.cache.release("one")
    node.cache.release("two")
    assert node.models.path(second, holder="two").is_dir()
    assert node.models.ready(first) is not True


@pytest.mark.parametrize(
    ("content", "reason"),
    [
        (zip_of({"../evil": b""}), "leads out of its folder"),
        (tar_of({"../evil": b""}), "leads out of its folder"),
        (zip_of({"/etc/passwd": b""}), "leads out of its folder"),
        (zip_of({"model.py": b"DAMAGED"}).replace(b"DAMAGED", b"damaged"), "does not match its size or CRC"),
        (tar_of({"part": b"", "part/inner": b""}), "as a file and as a folder"),
        (tar_of({"model.py": bytes(2 << 20)}), "more than 1,048,576 bytes"),
        (zip_of({"model.py": bytes(2 << 20)}), "more than 1,048,576 bytes"),
        (tar_gz_of({"model.py": b""})[:-12], "truncated"),
    ],
    ids=["zip-above", "tar-above", "zip-absolute", "damaged", "file-and-folder", "large-tar", "large-zip", "truncated"],
)
def test_an_archive_that_is_not_allowed_is_refused_and_leaves_nothing(
    node: Node, content: bytes, reason: str, tmp_path: Path
) -> None:
    model = node.stored(content)
    with pytest.raises((BadArchive, TooLarge)) as caught:
        node.models.path(model, holder="one")
    assert reason in str(caught.value.detail)
    assert not list((tmp_path / "cache" / "trees").glob("*"))
    assert not list((tmp_path / "cache" / "partial").glob("*.tree"))


def test_a_link_in_a_tar_is_refused(node: Node) -> None:
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as archive:
        entry = tarfile.TarInfo("model.py")
        entry.type, entry.linkname = tarfile.SYMTYPE, "/etc/passwd"
        archive.addfile(entry)
    with pytest.raises(BadArchive):
        node.models.path(node.stored(buffer.getvalue()), holder="one")


def test_a_model_folder_has_hard_links_to_the_nodes_files(node: Node, tmp_path: Path) -> None:
    tree = node.models.path(node.stored(zip_of(FILES)), holder="one")
    folder = str(tmp_path / "model-folder")
    model_folder.create(folder)
    placed = Path(model_folder.place(str(tree), folder))
    assert placed == Path(folder, model_folder.MODEL)
    for name in FILES:
        assert (placed / name).samefile(tree / name)
    assert model_folder.place(str(placed), folder) == str(placed)


def test_abandoned_model_folders_are_removed_and_used_ones_stay(tmp_path: Path) -> None:
    used, abandoned = str(tmp_path / "used"), str(tmp_path / "abandoned")
    for folder in (used, abandoned):
        model_folder.create(folder)
    descriptor = model_folder.lock(used)
    model_folder.remove_abandoned([used, abandoned])
    assert os.listdir(tmp_path) == ["used"]
    os.close(descriptor)
    model_folder.remove_abandoned([used])
    assert os.listdir(tmp_path) == []


def test_an_ordinary_user_unpacks_verifies_and_evicts_a_model(tmp_path: Path) -> None:
    """Only root may move and remove what is in folders without write permission."""
    packed = zip_of(FILES)
    with tempfile.TemporaryDirectory(dir="/var/tmp") as folder:  # every user may pass the folders above
        os.chmod(folder, 0o777)
        program = f"""
import os
os.setgid(65534); os.setuid(65534); os.umask(0o077)
from pathlib import Path
from datasets.nodecache.model_files import ModelFiles, StoredModel
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
home = Path({folder!r})
store = FilesystemStore(home / "objects")
store.put("models/x", ({packed!r},))
models = ModelFiles(NodeCache(home / "cache", store, capacity=23_000))
tree = models.path(StoredModel("models/x", {digest_of(packed)!r}, True), holder="one")
models.cache.release("one")
other = {zip_of({"model.py": b"x" * 20_000})!r}
store.put("models/y", (other,))
second = models.path(StoredModel("models/y", {digest_of(zip_of({"model.py": b"x" * 20_000}))!r}, True), holder="two")
print(second.stat().st_uid, sorted(path.name for path in second.iterdir()), tree.exists())
"""
        (interpreter := Path(folder) / "python").mkdir(mode=0o755)
        paths = os.pathsep.join((str(Path(__file__).parents[2]), sysconfig.get_path("purelib")))
        ended = subprocess.run(
            [python_for_all(interpreter), "-c", program], capture_output=True, text=True, env={"PYTHONPATH": paths}
        )
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.split() == ["65534", "['model.py']", "False"]


@pytest.mark.parametrize("content", [b"", b"a pickle, for example", bytes(2000), b"x" * 2000])
def test_a_compressed_file_that_is_no_tar_is_left_to_the_formats(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "model.gz"
    path.write_bytes(gzip.compress(content))
    assert extraction.tar_names(path, largest=1 << 20) is None
    path.write_bytes(tar_gz_of(FILES))
    assert extraction.tar_names(path, largest=1 << 20) == tuple(FILES)
