"""The top folder of an archive: the one that all its files are in, whatever file managers have added."""

import pytest

from common.top_folder import is_clutter, top_folder


@pytest.mark.parametrize(
    ("paths", "folder"),
    [
        (["model/model.py", "model/parts/a.npy"], "model/"),
        (["model/", "model/model.py", "empty/"], "model/"),
        (["model/model.py", "model/.DS_Store", "__MACOSX/model/._model.py", ".DS_Store", "._model"], "model/"),
        (["model/model.py", "readme"], ""),
        (["model/model.py", "other/model.py"], ""),
        (["model.py"], ""),
        (["model/"], ""),
        ([], ""),
    ],
)
def test_the_one_folder_of_all_files_is_found(paths: list[str], folder: str) -> None:
    assert top_folder(paths) == folder


@pytest.mark.parametrize("path", ["__MACOSX/x", "a/.DS_Store", "._x", "a/b/._c", "Thumbs.db", "a/desktop.ini"])
def test_what_file_managers_add_is_no_file_of_the_archive(path: str) -> None:
    assert is_clutter(path)
    assert not is_clutter("model/.weights") and not is_clutter("model/__MACOSX.py") and not is_clutter("DS_Store")
