"""Package hints: what they say to write is read as the declaration that counts, whatever the model has already."""

import re
import zipfile
from itertools import chain, combinations
from pathlib import Path

import pytest

from core.services.uploads.declared_dependencies import declared
from runtimes.dependencies.declaration import DECLARING_FILES, of_script
from runtimes.harness.model_server.package_hints import FILES, package_hint

#: Files that declare a package, by name.
DECLARING = {
    "pylock.toml": 'lock-version = "1.0"\n[[packages]]\nname = "other"\nversion = "1"\n'
    '[[packages.wheels]]\nurl = "https://files.pythonhosted.org/other-1-py3-none-any.whl"\n'
    f'hashes = {{sha256 = "{"a" * 64}"}}\n',
    "uv.lock": 'version = 1\nrequires-python = ">=3.11"\n[[package]]\nname = "mine"\nversion = "1"\n'
    'source = { virtual = "." }\n',
    "requirements.txt": "other\n",
    "pyproject.toml": '[project]\nname = "mine"\nversion = "1"\ndependencies = []\n',
    "model.py": '# /// script\n# dependencies = ["other"]\n# ///\n',
}
SUBSETS = list(chain.from_iterable(combinations(list(DECLARING)[:4], count) for count in range(5)))


def hint(folder: Path, module: str = "torch") -> str:
    return package_hint(module, files=folder, source=b"", declares=True)


def test_the_block_for_a_model_of_one_file_is_pasted_as_it_is_shown() -> None:
    source = "import sklearn.svm\n\nclass Model: ...\n"
    text = package_hint("sklearn.svm", files=None, source=source.encode(), declares=True)
    block = text.partition(":\n")[2]
    declaration = of_script(block + source)
    assert declaration is not None and declaration.requirements == ("scikit-learn",)
    again = package_hint("torch", files=None, source=(block + source).encode(), declares=True)
    added = re.match(r'add (".+") to `dependencies` in the block', again)
    assert added is not None
    declaration = of_script((block + source).replace('"scikit-learn"', f'"scikit-learn", {added[1]}'))
    assert declaration is not None and declaration.requirements == ("scikit-learn", "torch")


@pytest.mark.parametrize("names", SUBSETS, ids=lambda names: " ".join(names) or "none")
def test_the_hint_for_an_archive_names_the_file_that_counts(names: tuple[str, ...], tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    for name in ("model.py", *names):
        (folder / name).write_text("" if name == "model.py" else DECLARING[name])
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name in ("model.py", *names):
            archive.write(folder / name, name)
    declaration = declared(tmp_path / "model.zip", "python", largest=1 << 20)
    if declaration is None:
        assert "requirements.txt with a line `torch`" in hint(folder)
    else:
        assert declaration.file in hint(folder)


def test_an_archive_with_a_block_in_its_module_gets_one_more_line_in_it(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text(DECLARING["model.py"])
    assert 'add "torch" to `dependencies` in the block' in hint(tmp_path)


def test_the_files_that_are_named_are_those_that_declare_in_their_order() -> None:
    assert [*FILES, "model.py"] == list(DECLARING_FILES)


def test_a_file_of_another_format_is_sent_with_a_module_that_loads_it() -> None:
    text = package_hint("cv2", files=None, source=b"", declares=False)
    assert "a `model.py` that loads it, and a requirements.txt with `opencv-python-headless`" in text
