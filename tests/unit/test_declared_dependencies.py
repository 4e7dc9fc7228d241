"""Declared dependencies: names, versions, extras and markers pass; everything else is refused by its line."""

import zipfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import BadRequirements
from core.services.uploads.declared_dependencies import declared
from runtimes.dependencies.declaration import Declaration, of_pyproject, of_requirements, of_script
from runtimes.dependencies.lock import checked, pins
from runtimes.dependencies.lock_files import of_pylock, of_uv_lock

SHA = "sha256:" + "a" * 64


def test_a_requirements_file_is_read_as_names_versions_extras_and_markers() -> None:
    text = """\ufeff# the model's packages
scikit-learn == 1.5.*   # a comment
stable-baselines3[extra]>=2.3,<3
numpy>=1.26; python_version < "3.13"

--only-binary :all:
xgboost \\
    >=2
"""
    assert of_requirements(text.removeprefix("\ufeff")).requirements == (
        "scikit-learn==1.5.*",
        "stable-baselines3[extra]<3,>=2.3",
        'numpy>=1.26; python_version < "3.13"',
        "xgboost>=2",
    )


def test_the_hashes_of_a_requirements_file_are_kept() -> None:
    declaration = of_requirements(f"numpy==2.1.0 \\\n    --hash={SHA} \\\n    --hash=sha256:{'b' * 64}\n")
    assert declaration.requirements == ("numpy==2.1.0",)
    assert declaration.hashes == {"numpy==2.1.0": {SHA, "sha256:" + "b" * 64}}


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("-e ./package", "`-e` is not accepted"),
        ("-e.", "`-e` is not accepted"),
        ("--editable=.", "`--editable` is not accepted"),
        ("--editable git+https://example.com/x.git#egg=x", "`--editable` is not accepted"),
        ("-r /etc/passwd", "one file declares the requirements"),
        ("-r/etc/passwd", "one file declares the requirements"),
        ("--requirement=/etc/passwd", "one file declares the requirements"),
        ("-c https://example.com/constraints.txt", "one file declares the requirements"),
        ("--index-url https://evil.example/simple", "the operator chooses the indexes"),
        ("--index-url=https://evil.example/simple", "the operator chooses the indexes"),
        ("-i https://evil.example/simple", "the operator chooses the indexes"),
        ("-ihttps://evil.example/simple", "the operator chooses the indexes"),
        ("--extra-index-url https://download.example/whl/cpu", "the operator chooses the indexes"),
        ("--find-links /srv/wheels", "the operator chooses the indexes"),
        ("-f /srv/wheels", "the operator chooses the indexes"),
        ("--no-index", "the operator chooses the indexes"),
        ("--trusted-host evil.example", "the operator chooses the indexes"),
        ("--no-binary :all:", "wheels only"),
        ("--pre", "name the pre-release by its version"),
        ("--config-settings=x=y", "options are not accepted"),
        ("--global-option=build", "options are not accepted"),
        ("git+https://example.com/x.git", "it names an address"),
        ("x @ git+https://example.com/x.git", "names an address"),
        ("x @ https://example.com/x-1.0-py3-none-any.whl", "names an address"),
        ("x @ file:///srv/x-1.0-py3-none-any.whl", "names an address"),
        ("https://example.com/x-1.0-py3-none-any.whl", "it names an address"),
        ("file:///srv/x-1.0.tar.gz", "it names an address"),
        ("./x-1.0-py3-none-any.whl", "it names a file"),
        ("/srv/x-1.0-py3-none-any.whl", "it names a file"),
        ("x-1.0-py3-none-any.whl", "it names a file"),
        ("../x", "it names a file"),
        ("~/x", "it names a file"),
        (".", "it names a file"),
        ("hg+ssh://example.com/x", "it names an address"),
        ("numpy==1.0 --global-option=x", "is not a requirement"),
        ("numpy; import os", "is not a requirement"),
        ("numpy ; os_name == __import__('os').name", "is not a requirement"),
        ("$HOME", "is not a requirement"),
        ("${PACKAGE}", "is not a requirement"),
        ("numpy\x00", "is not a requirement"),
        ("n" * 501, "at most 500 characters"),
        ("numpy>=2 --hash=sha256:" + "a" * 64, "then it needs one version"),
        ("numpy==2.1 --hash=md5:" + "a" * 32, "is not a SHA-256 hash"),
    ],
)
def test_a_line_that_is_no_name_with_versions_is_refused_by_its_number(line: str, reason: str) -> None:
    with pytest.raises(BadRequirements) as caught:
        of_requirements(f"numpy\n{line}\n")
    detail = str(caught.value.detail)
    assert reason in detail and "requirements.txt, line 2" in detail
    assert "root:" not in detail


def test_more_requirements_than_allowed_are_refused() -> None:
    with pytest.raises(BadRequirements, match="more than 500 requirements"):
        of_requirements("\n".join(f"package{number}" for number in range(501)))


@given(st.text(max_size=300))
def test_no_text_of_a_requirements_file_leads_to_anything_but_requirements_or_a_refusal(text: str) -> None:
    try:
        declaration = of_requirements(text)
    except BadRequirements as error:
        assert "requirements.txt" in str(error.detail)
    else:
        assert all(not line.startswith("-") and "://" not in line for line in declaration.requirements)


def test_a_project_table_declares_dependencies_and_the_python_version() -> None:
    text = '[project]\nname = "x"\nrequires-python = ">=3.10"\ndependencies = ["numpy>=2", "rich[jupyter]"]\n'
    assert of_pyproject(text) == Declaration(
        file="pyproject.toml", requirements=("numpy>=2", "rich[jupyter]"), python=">=3.10"
    )


@pytest.mark.parametrize("text", ["", "[tool.ruff]\nline-length = 100\n", '[project]\nname = "x"\n'])
def test_a_project_file_without_dependencies_declares_none(text: str) -> None:
    assert of_pyproject(text) is None


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('[project]\nname = "x"\ndynamic = ["dependencies"]\n', "no code of the project runs here"),
        ('[tool.poetry.dependencies]\npython = "^3.11"\nnumpy = "^2"\n', "poetry export"),
        ('[project]\ndependencies = ["x @ file:///etc/passwd"]\n', "names an address"),
        ('[project]\ndependencies = ["x"]\n[tool.uv.sources]\nX = { path = "../x" }\n', "another source for x"),
        ('[project]\ndependencies = ["x"]\n[tool.uv.sources]\nx = { index = "evil" }\n', "another source for x"),
        ('[project]\ndependencies = "numpy"\n', "not a list of strings"),
        ("[project]\ndependencies = [1]\n", "not a list of strings"),
        ('[project]\ndependencies = []\nrequires-python = "three"\n', "not a version specifier"),
        ("project = 1", "is not a table"),
        ("[project", "is not TOML"),
    ],
)
def test_a_project_file_that_cannot_be_resolved_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadRequirements) as caught:
        of_pyproject(text)
    assert reason in str(caught.value.detail)


SCRIPT = """#!/usr/bin/env python
# /// script
# requires-python = ">=3.11"
# dependencies = [
#   "scikit-learn",
# ]
# ///
import sklearn
"""


def test_a_scripts_metadata_declares_dependencies() -> None:
    assert of_script(SCRIPT) == Declaration(file="model.py", requirements=("scikit-learn",), python=">=3.11")
    assert of_script("import numpy\n# /// script\n") is None
    assert of_script("# /// test\n# x = 1\n# ///\n") is None


def test_two_blocks_of_metadata_are_refused() -> None:
    with pytest.raises(BadRequirements, match="2 blocks"):
        of_script(SCRIPT + SCRIPT)


UV_LOCK = f"""
version = 1
requires-python = ">=3.11"
[[package]]
name = "model"
version = "0.1.0"
source = {{ virtual = "." }}
dependencies = [{{ name = "numpy" }}]
[[package]]
name = "numpy"
version = "2.1.0"
source = {{ registry = "https://evil.example/simple" }}
resolution-markers = ["python_full_version < '3.12'"]
wheels = [{{ url = "https://evil.example/numpy.whl", hash = "{SHA}" }}]
"""
PYPROJECT = '[project]\nname = "model"\nversion = "0.1.0"\ndependencies = ["numpy"]\n'


def test_a_uv_lock_gives_versions_and_hashes_and_no_addresses() -> None:
    declaration = of_uv_lock(UV_LOCK, PYPROJECT)
    assert declaration.requirements == ("numpy",)
    assert declaration.constraints == ('numpy==2.1.0 ; python_full_version < "3.12"',)
    assert declaration.hashes == {"numpy==2.1.0": {SHA}}
    assert "evil" not in repr(declaration)


PYLOCK = f"""
lock-version = "1.0"
created-by = "uv"
[[packages]]
name = "numpy"
version = "2.1.0"
marker = "python_version >= '3.11'"
index = "https://evil.example/simple"
wheels = [{{ url = "https://evil.example/numpy.whl", hashes = {{ sha256 = "{SHA.removeprefix("sha256:")}" }} }}]
"""


def test_a_pylock_gives_versions_and_hashes_and_no_addresses() -> None:
    declaration = of_pylock(PYLOCK)
    assert declaration.requirements == ('numpy==2.1.0 ; python_version >= "3.11"',)
    assert declaration.hashes == {"numpy==2.1.0": {SHA}}
    assert "evil" not in repr(declaration)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (UV_LOCK.replace('registry = "https://evil.example/simple"', 'git = "https://evil.example/x"'), "a git"),
        (UV_LOCK.replace('registry = "https://evil.example/simple"', 'path = "/etc"'), "a path"),
        (UV_LOCK.replace('registry = "https://evil.example/simple"', 'editable = "../x"'), "a editable"),
        (UV_LOCK.replace('registry = "https://evil.example/simple"', 'url = "https://evil.example/x.whl"'), "a url"),
        (UV_LOCK.replace('virtual = "."', 'virtual = ".."'), "a virtual"),
        (UV_LOCK.replace(SHA, "sha256:short"), "no wheel with a SHA-256 hash"),
        (UV_LOCK.replace('"2.1.0"', '"latest"'), "has no version"),
        (UV_LOCK.replace("python_full_version < '3.12'", "__import__('os')"), "not an environment marker"),
        (UV_LOCK.replace('name = "numpy"\nversion', 'name = "../numpy"\nversion'), "is not a requirement"),
        ("package = 1", "is not a list of tables"),
        ("\n".join(f'[[package]]\nname = "p{number}"' for number in range(501)), "at most 500"),
    ],
)
def test_a_uv_lock_with_other_sources_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadRequirements) as caught:
        of_uv_lock(text, PYPROJECT)
    assert reason in str(caught.value.detail)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (PYLOCK.replace('index = "https://evil.example/simple"', 'vcs = { type = "git", url = "x" }'), "a vcs"),
        (PYLOCK.replace('index = "https://evil.example/simple"', 'directory = { path = "." }'), "a directory"),
        (PYLOCK.replace('index = "https://evil.example/simple"', 'archive = { url = "x" }'), "a archive"),
        (PYLOCK.replace('lock-version = "1.0"', 'lock-version = "9"'), "lock-version"),
        (PYLOCK.replace("wheels", "sdist-wheels"), "no wheel"),
    ],
)
def test_a_pylock_with_other_sources_is_refused(text: str, reason: str) -> None:
    with pytest.raises(BadRequirements) as caught:
        of_pylock(text)
    assert reason in str(caught.value.detail)


OTHER, THIRD = "sha256:" + "b" * 64, "sha256:" + "c" * 64
LOCK = f"""numpy==2.1.0 \\
    --hash={SHA} \\
    --hash={OTHER}
six==1.17.0 \\
    --hash={THIRD}
"""


def test_only_files_with_a_hash_of_the_models_own_lock_are_kept() -> None:
    declaration = of_requirements(f"numpy==2.1.0 --hash={SHA}\n")
    kept = checked(LOCK, declaration, ["*"])
    assert kept == f"numpy==2.1.0 \\\n    --hash={SHA}\nsix==1.17.0 \\\n    --hash=sha256:{'c' * 64}\n"
    assert pins(kept) == {"numpy": "2.1.0", "six": "1.17.0"}


def test_an_index_with_other_files_than_the_models_lock_is_refused() -> None:
    declaration = of_requirements(f"numpy==2.1.0 --hash=sha256:{'d' * 64}\n")
    with pytest.raises(BadRequirements, match=r"no file of numpy 2\.1\.0"):
        checked(LOCK, declaration, ["*"])


def test_a_package_that_the_operator_does_not_allow_is_refused_by_its_name() -> None:
    declaration = of_requirements("numpy\n")
    assert checked(LOCK, declaration, ["num*", "Six"]) == LOCK
    with pytest.raises(BadRequirements, match="The package six is not allowed"):
        checked(LOCK, declaration, ["numpy"])


@pytest.mark.parametrize(
    ("files", "found"),
    [
        ({"requirements.txt": "a"}, "a"),
        ({"policy/requirements.txt": "a", "__MACOSX/policy/._requirements.txt": "b"}, "a"),
        ({"policy/requirements.txt": "a", "requirements.txt": "b"}, "b"),
        ({"policy/requirements.txt": "a", "other/model.py": ""}, None),
        ({"policy/deeper/requirements.txt": "a"}, None),
    ],
)
def test_the_declaration_is_at_the_top_or_in_the_one_folder(
    files: dict[str, str], found: str | None, tmp_path: Path
) -> None:
    with zipfile.ZipFile(tmp_path / "model.zip", "w") as archive:
        for name, text in files.items():
            archive.writestr(name, text)
    declaration = declared(tmp_path / "model.zip", "python", largest=1 << 20)
    assert (declaration and declaration.requirements) == (found and (found,))
