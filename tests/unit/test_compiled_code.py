"""Compiled code of environments: built where there is a compiler, done without where there is none."""

import ctypes
import json
from pathlib import Path

import pytest

from runtimes import compiled_code, environments
from runtimes.compiled_code import CannotCompile, CompiledCode, find_compiler
from runtimes.environments import Environment

needs_compiler = pytest.mark.skipif(find_compiler() is None, reason="there is no C++ compiler")


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    folder = tmp_path / "compiled"
    folder.mkdir()
    (folder / "recipe.json").write_text(json.dumps({"output": "twice.so", "source": "twice.cpp", "libraries": []}))
    (folder / "twice.cpp").write_text('extern "C" int twice(int value) { return 2 * value; }\n')
    return folder


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in (compiled_code, environments):
        monkeypatch.setattr(module, "find_compiler", lambda: None)


def prepare(sources: Path, root: Path) -> tuple[Path, list[str]]:
    messages: list[str] = []
    environment = Environment("twice", "", CompiledCode(sources))
    return environments.prepare(environment, root, lambda message, fraction: messages.append(message)), messages


@needs_compiler
def test_an_environment_has_its_compiled_code(sources: Path, tmp_path: Path) -> None:
    site, messages = prepare(sources, tmp_path / "environments")
    assert ctypes.CDLL(str(site / "twice.so")).twice(21) == 42
    assert "compiling twice.so" in messages


def test_without_a_compiler_an_environment_works_and_says_what_it_lacks(
    sources: Path, tmp_path: Path, no_compiler: None, caplog: pytest.LogCaptureFixture
) -> None:
    site, messages = prepare(sources, tmp_path / "environments")
    assert site.is_dir()
    assert not (site / "twice.so").exists()
    assert any("install g++" in message for message in messages)
    assert "runs slower" in caplog.text


@needs_compiler
def test_a_compiler_that_is_installed_later_builds_the_missing_code(
    sources: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        for module in (compiled_code, environments):
            patch.setattr(module, "find_compiler", lambda: None)
        site, _ = prepare(sources, tmp_path / "environments")
    assert not (site / "twice.so").exists()
    again, _ = prepare(sources, tmp_path / "environments")
    assert again == site
    assert (site / "twice.so").exists()


@needs_compiler
def test_sources_that_the_compiler_refuses_do_not_prevent_an_environment(sources: Path, tmp_path: Path) -> None:
    (sources / "twice.cpp").write_text("not C++")
    with pytest.raises(CannotCompile, match="error"):
        CompiledCode(sources).build(tmp_path)
    site, messages = prepare(sources, tmp_path / "environments")
    assert site.is_dir()
    assert any("without compiled code" in message for message in messages)


@pytest.fixture
def builds(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Return the list of the environments in which code is built, as it grows."""
    sites: list[Path] = []
    build = CompiledCode.build

    def counted(code: CompiledCode, site: Path) -> None:
        sites.append(site)
        build(code, site)

    monkeypatch.setattr(CompiledCode, "build", counted)
    return sites


@needs_compiler
def test_a_compiler_that_has_refused_the_sources_is_not_asked_again(
    sources: Path, tmp_path: Path, builds: list[Path]
) -> None:
    (sources / "twice.cpp").write_text("not C++")
    for _ in range(3):
        site, _ = prepare(sources, tmp_path / "environments")
    assert len(builds) == 1
    assert site.is_dir()


@needs_compiler
def test_another_compiler_is_asked_after_a_refusal(
    sources: Path, tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = tmp_path / "g++"
    refusing.write_text("#!/bin/sh\nexit 1\n")
    refusing.chmod(0o755)
    with monkeypatch.context() as patch:
        for module in (compiled_code, environments):
            patch.setattr(module, "find_compiler", lambda: str(refusing))
        for _ in range(2):
            site, _ = prepare(sources, tmp_path / "environments")
    assert len(builds) == 1
    prepare(sources, tmp_path / "environments")
    assert len(builds) == 2
    assert (site / "twice.so").exists()


@needs_compiler
def test_a_build_that_failed_for_another_reason_is_tried_again(
    sources: Path, tmp_path: Path, builds: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(compiled_code, "BUILD_TIMEOUT", 0)
        prepare(sources, tmp_path / "environments")
    site, _ = prepare(sources, tmp_path / "environments")
    assert len(builds) == 2
    assert (site / "twice.so").exists()


def test_a_recipe_is_read_once(sources: Path) -> None:
    code = CompiledCode(sources)
    assert code.output == "twice.so"
    (sources / "recipe.json").unlink()
    assert code.output == "twice.so"


@needs_compiler
def test_a_library_that_the_recipe_names_has_to_be_there(sources: Path, tmp_path: Path) -> None:
    recipe = {"output": "twice.so", "source": "twice.cpp", "libraries": ["other/lib*.so"]}
    (sources / "recipe.json").write_text(json.dumps(recipe))
    with pytest.raises(CannotCompile, match=r"0 files other/lib\*\.so"):
        CompiledCode(sources).build(tmp_path)


def test_changed_sources_are_another_environment(sources: Path) -> None:
    before = Environment("twice", "", CompiledCode(sources)).digest
    compiled_code._digest.cache_clear()
    (sources / "twice.cpp").write_text('extern "C" int twice(int value) { return value + value; }\n')
    assert Environment("twice", "", CompiledCode(sources)).digest != before
    assert Environment("twice", "").digest != before
