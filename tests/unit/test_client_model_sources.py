"""Models of a submission as the user names them: files, folders that are packed, stored models, references."""

import hashlib
import os
import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel._sync.transport import path
from windtunnel.errors import WindtunnelError
from windtunnel.model_sources import (
    LocalModel,
    ReferencedModel,
    StoredModel,
    file_digest,
    pack,
    source_of,
)


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


def test_a_digest_is_written_as_the_platform_writes_it(tmp_path: Path) -> None:
    file = tmp_path / "model.onnx"
    file.write_bytes(b"weights")
    assert file_digest(file) == "sha256:" + hashlib.sha256(b"weights").hexdigest()


def test_a_program_in_a_folder_can_be_executed_in_its_archive(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for name, mode in (("run.sh", 0o744), ("notes", 0o644)):
        (tmp_path / "folder" / name).touch(mode)
        (tmp_path / "folder" / name).chmod(mode)
    with zipfile.ZipFile(pack(tmp_path / "folder", tmp_path / "packed")) as archive:
        modes = {entry.filename: entry.external_attr >> 16 for entry in archive.infolist()}
    assert modes == {"notes": 0o644, "run.sh": 0o755}


def test_a_project_and_a_name_are_a_shared_model_unless_they_look_like_a_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    for text in ("team-a/brake", "team-a/brake@gold", "team-a/brake.py@1", "t/b"):
        assert source_of(text) == StoredModel(text)
    for text in ("missing/file.py", "Team/brake", "team-a/sub/brake", "/team-a", "./team-a", "team-a/", "../brake"):
        with pytest.raises(WindtunnelError, match=r"There is no file|neither a file nor"):
            source_of(text)
    (tmp_path / "team-a").mkdir()
    with pytest.raises(WindtunnelError, match="There is no file"):
        source_of("team-a/brake")


def test_a_shared_reference_is_no_path_of_something_else() -> None:
    assert path("models", "x/content") == "/v1/models/x%2Fcontent@latest"
    assert path("datasets", "x/versions@2", "files") == "/v1/datasets/x%2Fversions@2/files"
    assert path("models", "x/brake", "shares", "y") == "/v1/models/x%2Fbrake/shares/y"
    assert (path("models"), path("models", "brake")) == ("/v1/models", "/v1/models/brake")
