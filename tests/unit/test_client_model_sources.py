"""Models of a submission as the user names them: files, folders that are packed, stored models, references."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel.errors import WindtunnelError
from windtunnel.model_sources import (
    LocalModel,
    ReferencedModel,
    StoredModel,
    file_digest,
    pack,
    source_of,
)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A model of several files."""
    root = tmp_path / "model"
    (root / "sub").mkdir(parents=True)
    (root / "model.py").write_text("class Model: pass\n")
    (root / "sub" / "weights.bin").write_bytes(bytes(range(256)) * 40)
    return root


def test_a_file_that_exists_is_local_whatever_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("idm").write_text("")
    assert source_of("idm") == LocalModel(Path("idm"))
    assert source_of(Path("idm")) == LocalModel(Path("idm"))


@pytest.mark.parametrize("text", ["idm", "idm@2", "car_street.onnx", f"idm@sha256:{'0' * 64}", "01jz8k3v5t"])
def test_the_name_of_a_stored_model_is_passed_to_the_platform(text: str) -> None:
    assert source_of(text) == StoredModel(text)


@pytest.mark.parametrize(
    "text", ["s3://bucket/model.onnx", "S3://bucket/m", "models:/name/1", "runs:/1/model", "https://example.com/m.onnx"]
)
def test_a_reference_is_read_by_the_platform(text: str) -> None:
    assert source_of(text) == ReferencedModel(text)


@pytest.mark.parametrize("text", ["./policy.onnx", "models/policy.onnx", "~/policy.onnx", "/policy.onnx", ".hidden"])
def test_the_path_of_a_missing_file_is_an_error_here(text: str) -> None:
    with pytest.raises(WindtunnelError, match="There is no file"):
        source_of(text)


def test_a_path_object_is_never_a_name() -> None:
    with pytest.raises(WindtunnelError, match="There is no file idm"):
        source_of(Path("idm"))


@pytest.mark.parametrize("text", ["", "two words", "-rf", "a\x1b[2J", "a" * 300])
def test_what_is_neither_a_file_nor_a_name_is_refused(text: str) -> None:
    with pytest.raises(WindtunnelError):
        source_of(text)


@given(
    st.dictionaries(st.from_regex(r"[a-z]{1,6}(/[a-z]{1,6}x)?", fullmatch=True), st.binary(max_size=200), min_size=1)
)
def test_equal_folders_give_equal_archives(contents: dict[str, bytes]) -> None:
    import tempfile

    contents = {
        name: data for name, data in contents.items() if not any(name in other.split("/")[:-1] for other in contents)
    }
    with tempfile.TemporaryDirectory() as parent:
        archives = []
        for number, order in enumerate((sorted(contents), sorted(contents, reverse=True))):
            root = Path(parent, f"copy-{number}")
            for name in order:
                file = root / name
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(contents[name])
                os.utime(file, (1e9 + number, 1e9 + number))
            archives.append(pack(root, Path(parent, f"{number}.zip")))
        assert archives[0].read_bytes() == archives[1].read_bytes()
        with zipfile.ZipFile(archives[0]) as archive:
            assert {name: archive.read(name) for name in archive.namelist()} == contents


def test_folders_of_tools_are_left_out(folder: Path, tmp_path: Path) -> None:
    for name in (".git", "__pycache__", "sub/__pycache__", ".venv", "node_modules"):
        (folder / name).mkdir()
        (folder / name / "big.bin").write_bytes(b"x")
    with zipfile.ZipFile(pack(folder, tmp_path / "model.zip")) as archive:
        assert archive.namelist() == ["model.py", "sub/weights.bin"]


def test_a_link_out_of_the_folder_is_refused(folder: Path, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.write_text("key")
    (folder / "link").symlink_to(secret)
    with pytest.raises(WindtunnelError, match="link to a file outside"):
        pack(folder, tmp_path / "model.zip")


def test_a_link_within_the_folder_is_packed_as_its_file(folder: Path, tmp_path: Path) -> None:
    (folder / "link.py").symlink_to("model.py")
    with zipfile.ZipFile(pack(folder, tmp_path / "model.zip")) as archive:
        assert archive.read("link.py") == b"class Model: pass\n"


def test_a_link_to_a_folder_is_refused_rather_than_left_out(folder: Path, tmp_path: Path) -> None:
    (folder / "linked").symlink_to("sub")
    with pytest.raises(WindtunnelError, match="link to a folder; copy the folder there"):
        pack(folder, tmp_path / "model.zip")


def test_a_pipe_is_refused_rather_than_waited_for(folder: Path, tmp_path: Path) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(WindtunnelError, match="not a regular file"):
        pack(folder, tmp_path / "model.zip")


def test_a_name_in_another_encoding_is_refused(folder: Path, tmp_path: Path) -> None:
    Path(os.fsdecode(bytes(folder) + b"/caf\xe9.py")).write_text("")
    with pytest.raises(WindtunnelError, match="UTF-8"):
        pack(folder, tmp_path / "model.zip")


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WindtunnelError, match="has no files"):
        pack(tmp_path / "empty", tmp_path / "model.zip")


def test_a_digest_is_written_as_the_platform_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"weights")
    assert file_digest(file) == "sha256:" + hashlib.sha256(b"weights").hexdigest()
