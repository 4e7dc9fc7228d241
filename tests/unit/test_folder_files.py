"""Folders that are sent, packed as a model or by digest as a dataset: one rule of what belongs to them."""

import os
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from windtunnel.errors import WindtunnelError
from windtunnel.folder_contents import scan
from windtunnel.model_sources import pack
from windtunnel.tables import draft_of

Sender = Callable[[Path], list[str]]


def packed(folder: Path) -> list[str]:
    with zipfile.ZipFile(pack(folder, folder.parent / "model.zip")) as archive:
        return archive.namelist()


def scanned(folder: Path) -> list[str]:
    return [file.path for file in scan(folder)]


@pytest.fixture(params=[packed, scanned])
def sent(request: pytest.FixtureRequest) -> Sender:
    """What sends a folder: returns the names of the files that are sent."""
    sender: Sender = request.param
    return sender


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A folder of three files in two folders."""
    root = tmp_path / "folder"
    (root / "sub").mkdir(parents=True)
    for name in ("model.py", "sub-a.txt", "sub/weights.bin"):
        (root / name).write_text(name)
    return root


def test_files_are_sent_in_the_order_of_their_names(folder: Path, sent: Sender) -> None:
    assert sent(folder) == ["model.py", "sub-a.txt", "sub/weights.bin"]


def test_folders_of_tools_are_left_out(folder: Path, sent: Sender) -> None:
    for name in (".git", "__pycache__", "sub/__pycache__", ".venv", "node_modules"):
        (folder / name).mkdir()
        (folder / name / "big.bin").write_bytes(b"x")
    (folder / "sub" / ".git").symlink_to("/nowhere")
    assert sent(folder) == ["model.py", "sub-a.txt", "sub/weights.bin"]


def test_a_draft_that_a_killed_pull_has_left_is_not_sent(folder: Path, sent: Sender) -> None:
    with pytest.raises(KeyError), draft_of(folder / "sub" / "a.csv") as draft:
        draft.write(b"half")
        draft.flush()
        [left] = [path for path in (folder / "sub").iterdir() if path.name != "weights.bin"]
        (folder / left.name).write_bytes(left.read_bytes())  # the draft itself goes with the error
        raise KeyError
    assert (folder / left.name).exists() and sent(folder) == ["model.py", "sub-a.txt", "sub/weights.bin"]


def test_a_name_with_control_characters_is_refused(folder: Path, sent: Sender) -> None:
    (folder / "a\nb").write_text("")
    with pytest.raises(WindtunnelError, match="control characters; rename the file"):
        sent(folder)


def test_a_link_to_a_file_of_the_folder_is_sent_as_that_file(folder: Path, sent: Sender) -> None:
    (folder / "link.py").symlink_to("model.py")
    assert "link.py" in sent(folder)


def test_a_link_out_of_the_folder_is_refused(folder: Path, sent: Sender) -> None:
    secret = folder.parent / "secret"
    secret.write_text("key")
    (folder / "link").symlink_to(secret)
    with pytest.raises(WindtunnelError, match="link to a file outside"):
        sent(folder)


def test_a_link_to_a_folder_is_refused_rather_than_left_out(folder: Path, sent: Sender) -> None:
    (folder / "linked").symlink_to("sub")
    with pytest.raises(WindtunnelError, match="linked is a link to a folder; copy the folder there"):
        sent(folder)


def test_a_link_to_nothing_is_refused(folder: Path, sent: Sender) -> None:
    (folder / "broken").symlink_to("nowhere")
    with pytest.raises(WindtunnelError, match="broken is not a regular file"):
        sent(folder)


def test_a_link_to_itself_is_refused(folder: Path, sent: Sender) -> None:
    (folder / "circle").symlink_to("circle")
    with pytest.raises(WindtunnelError, match="circle is not a regular file"):
        sent(folder)


def test_a_pipe_is_refused_rather_than_waited_for(folder: Path, sent: Sender) -> None:
    os.mkfifo(folder / "pipe")
    with pytest.raises(WindtunnelError, match="not a regular file"):
        sent(folder)


def test_a_name_that_is_not_utf_8_is_refused(folder: Path, sent: Sender) -> None:
    Path(os.fsdecode(bytes(folder) + b"/caf\xe9.py")).write_text("")
    with pytest.raises(WindtunnelError, match="UTF-8"):
        sent(folder)


def test_a_folder_that_cannot_be_read_is_refused_rather_than_left_out(sent: Sender) -> None:
    user = os.geteuid()
    with tempfile.TemporaryDirectory() as parent:  # pytest's own folders are closed to other users
        private = Path(parent, "folder", "private")
        private.mkdir(parents=True)
        (private.parent / "model.py").write_text("")
        Path(parent).chmod(0o777)
        private.chmod(0)
        try:
            if user == 0:
                os.seteuid(65534)  # root reads every folder
            with pytest.raises(WindtunnelError, match="private cannot be read: Permission denied"):
                sent(private.parent)
        finally:
            os.seteuid(user)
            private.chmod(0o755)


def test_a_folder_without_files_is_refused(tmp_path: Path, sent: Sender) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(WindtunnelError, match="has no files"):
        sent(tmp_path / "empty")


def test_a_folder_that_is_missing_is_refused(tmp_path: Path, sent: Sender) -> None:
    with pytest.raises(WindtunnelError, match="There is no folder"):
        sent(tmp_path / "nowhere")
