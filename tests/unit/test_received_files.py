"""Files whose names come from the platform: names that may act, and files of the user that stay as they are."""

import hashlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from datasets.catalogue import datasets
from tests.web_files import WebFiles, content, web_files
from windtunnel import Client, received_files
from windtunnel.errors import WindtunnelError
from windtunnel.folder_contents import safe_target
from windtunnel.projects import Project
from windtunnel.replays import Replay

HOSTILE = [
    ".bashrc", "..", ".", "", "/etc/../.profile", "C:\\Users\\x\\.profile", "~", "-rf", "a\x00b", "a\nb", "a\u202eb",
    "\ud800", "con", "NUL.txt", "a" * 201, "a.", " a", "a:b", "folder/.ssh/", None,
]  # fmt: skip
BYTES = b"alias ls='rm -rf'\n"
DIGEST = f"sha256:{hashlib.sha256(BYTES).hexdigest()}"


@pytest.mark.parametrize("name", HOSTILE)
def test_a_name_that_hides_or_acts_is_not_used(name: str | None) -> None:
    assert received_files.name_of(name, "plain.py") == "plain.py"
    with pytest.raises(WindtunnelError, match="name another by -o"):
        received_files.name_of(name, ".hidden")


@pytest.mark.parametrize(
    ("name", "last"), [("a.py", "a.py"), ("x/y/a.py", "a.py"), ("x\\a.onnx", "a.onnx"), ("größe 1.py", "größe 1.py")]
)
def test_of_a_path_the_last_part_is_the_name(name: str, last: str) -> None:
    assert received_files.name_of(name) == last


class HostilePlatform:
    """A platform that names files as it likes, and a user's folder with files of his own."""

    def __init__(self, web: WebFiles, home: Path) -> None:
        self.web = web
        self.home = home
        self.client = Client(web.origin, patience=0.0)
        for name in (".bashrc", "notes.txt", "id.zip", "id-0.svg"):
            (home / name).write_text("mine")

    def answer(self, path: str, document: Any) -> None:
        self.web.answers[path] = content(json.dumps(document).encode())

    def with_model(self, filename: str | None, name: str = "model") -> None:
        """Let the platform have a model that was sent under this name."""
        model = {"id": "id", "name": name, "version": 1, "digest": DIGEST, "format": "python", "size": len(BYTES)}
        self.answer("/v1/models/m", model | {"filename": filename, "tags": []})
        self.web.answers["/v1/models/id/content"] = content(BYTES)

    def with_dataset(self, *paths: str) -> None:
        """Let the platform have a dataset of files with these paths."""
        files = [{"path": path, "size": len(BYTES), "digest": DIGEST} for path in paths]
        self.answer("/v1/datasets/d/files?limit=1000", {"items": files, "next": None})
        for path in paths:
            self.web.answers[f"/v1/datasets/d/files/{path}"] = content(BYTES)

    def run(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        """Run the command line in the user's folder."""
        command = [sys.executable, "-m", "windtunnel", *arguments]
        environ = {**os.environ, "WINDTUNNEL_URL": self.web.origin}
        return subprocess.run(command, cwd=self.home, env=environ, capture_output=True, text=True)

    def files(self) -> dict[str, str]:
        return {path.name: path.read_text() for path in sorted(self.home.iterdir()) if path.is_file()}


@pytest.fixture
def platform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[HostilePlatform]:
    home = tmp_path / "home"
    home.mkdir()
    monkeypatch.chdir(home)
    with web_files() as web:
        platform = HostilePlatform(web, home)
        yield platform
        platform.client.close()


@pytest.mark.parametrize("filename", [".bashrc", "x/.bashrc", ".vimrc", "a\x00b"])
@pytest.mark.parametrize("target", [None, "."])
def test_a_model_is_never_downloaded_to_a_hidden_file(
    platform: HostilePlatform, filename: str, target: str | None
) -> None:
    before = platform.files()
    platform.with_model(filename)
    assert platform.client.models.download("m", target) == Path("model")
    assert platform.files() == before | {"model": BYTES.decode()}


def test_the_command_line_replaces_only_a_file_that_it_is_told(platform: HostilePlatform) -> None:
    before = platform.files()
    platform.with_model("notes.txt")
    refused = platform.run("models", "download", "m")
    assert refused.returncode == 2 and "notes.txt is there already" in refused.stderr and "-o" in refused.stderr
    assert platform.files() == before
    platform.with_model("a\x00b", name=".bashrc")
    nameless = platform.run("models", "download", "m", "-o", ".")
    assert nameless.returncode == 2 and "name another by -o" in nameless.stderr and "Traceback" not in nameless.stderr
    assert platform.files() == before
    named = platform.run("models", "download", "m", "-o", "notes.txt")
    assert named.returncode == 0 and platform.files() == before | {"notes.txt": BYTES.decode()}


def test_a_download_of_what_is_there_is_that_file_and_a_link_is_not_followed(platform: HostilePlatform) -> None:
    platform.with_model("m.py")
    assert platform.client.models.download("m") == platform.client.models.download("m") == Path("m.py")
    Path("m.py").unlink()
    Path("m.py").symlink_to(".bashrc")
    with pytest.raises(WindtunnelError, match="is there already"):
        platform.client.models.download("m")
    assert Path(".bashrc").read_text() == "mine"


def test_an_archive_and_a_replay_replace_only_a_file_that_is_named(platform: HostilePlatform) -> None:
    before = platform.files()
    platform.web.answers["/v1/simulations/id/archive"] = content(BYTES)
    replay = Replay(simulation="id", task=0, svg=BYTES.decode())
    for save in (lambda: platform.client.simulations.archive("id"), replay.save):
        with pytest.raises(WindtunnelError, match="is there already"):
            save()
    with pytest.raises(WindtunnelError, match="name another by -o"):
        Replay(simulation="x/.ssh/../.", task=0, svg="").save()
    assert platform.files() == before
    platform.client.simulations.archive("id", "id.zip")
    replay.save("id-0.svg")
    assert platform.files() == before | {"id.zip": BYTES.decode(), "id-0.svg": BYTES.decode()}
    assert replay.save() == Path("id-0.svg")


@pytest.mark.parametrize("path", ["notes.txt", ".envrc", ".git/hooks/post-checkout", "a/.ssh/authorized_keys"])
def test_a_dataset_replaces_no_file_and_hides_none_in_a_folder_that_has_files(
    platform: HostilePlatform, path: str
) -> None:
    before = platform.files()
    platform.with_dataset("good.csv", path)
    with pytest.raises(WindtunnelError, match=r"1 of the files would replace others .* Nothing was written"):
        platform.client.datasets.pull("d", ".")
    assert platform.files() == before
    assert platform.client.datasets.pull("d", "new") == (2, 0)
    assert platform.client.datasets.pull("d", "new") == (0, 2)
    assert platform.client.datasets.pull("d", ".", replace=True) == (2, 0)


@pytest.mark.parametrize("name", ["a\x00b", "\ud800", "a" * 300, "a/" * 3000 + "b", "a\nb", "/etc/x", "../x"])
def test_a_file_of_a_dataset_that_cannot_have_its_name_is_an_error_with_that_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(WindtunnelError, match="nothing more is written"):
        safe_target(tmp_path, name)


INJECTED = '"""\nimport os; os.abort()\n"""*/ #include "x" \\'


@pytest.mark.parametrize("kind", ["python", "onnx", "c"])
def test_a_project_has_no_code_of_the_datasets_owner(tmp_path: Path, kind: str) -> None:
    definition = dict(datasets()["cartpole"].definition)
    score = {"metric": '"] is None or __import__("os").abort() or x["'}
    definition |= {"title": INJECTED, "name": INJECTED, "score": score}
    for path in Project(kind, "mine", definition).write(tmp_path / "mine"):
        text = path.read_text()
        assert "\nimport os; os.abort()" not in text and '"""\nimport os' not in text
        if path.suffix == ".py":
            compiled = compile(text, path.name, "exec")
            assert "abort" not in compiled.co_names and "os" not in compiled.co_names
        if path.suffix == ".c":
            assert text.count("*/") == text.count("/*") and '#include "x"' not in text.split("*/", 1)[1]
