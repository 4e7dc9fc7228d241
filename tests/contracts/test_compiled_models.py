"""Compiled models: code made before the launch gives the same results, and what has none is compiled at its launch."""

from pathlib import Path
from typing import Any

import pytest

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.preparation import Preparation
from core.services.scheduling.compiled_models import CompiledModels, stored_model
from core.services.scheduling.staging import Staging
from datasets.nodecache.node_cache import NodeCache
from runtimes import model_compiler
from runtimes.harness.models.base import CODE
from runtimes.model_compiler import compile_model
from tests.contracts.harness_processes import evaluator_pair, play_of
from tests.contracts.test_dispatcher import DispatcherRig, rig
from tests.provenances import provenance
from tests.simulators.test_wasm_models import module, spec, wasm_site
from tests.staged_models import staging_on
from tests.system.platform_process import share_environments

__all__ = ["rig"]


def compiled(source: bytes, folder: Path) -> bytes | None:
    """Return the code that the platform makes of a module."""
    file, made = folder / "model", folder / "made"
    file.write_bytes(source)
    made.mkdir()
    folder.chmod(0o755)
    compile_model("wasm", file, made, site=Path(wasm_site()), sandbox=True, report=lambda: None)
    return (made / CODE).read_bytes() if (made / CODE).exists() else None


def results(source: bytes, code: bytes | None = None, **changes: Any) -> list[dict[str, Any]]:
    with evaluator_pair(spec(), source, play_of(**changes), code) as pair:
        return [result | {"timing": None} for result in pair.run(0, 3)]


def test_the_code_of_a_model_is_used_and_gives_its_results(tmp_path: Path) -> None:
    code = compiled(module(), tmp_path)
    assert code is not None
    expected = results(module())
    assert results(module(), code) == expected
    other = module(offset="(f64.const 5)")
    assert results(other) != expected == results(other, code), "the file is not compiled where there is code"


@pytest.mark.parametrize("code", [b"", b"\x7fELF of another processor"], ids=["empty", "other"])
def test_code_that_does_not_fit_this_machine_is_not_used(code: bytes) -> None:
    assert results(module(), code) == results(module())


def test_code_for_one_row_is_not_used_for_many(tmp_path: Path) -> None:
    code, batch = compiled(module(), tmp_path), {"params": {"batch": 3}}
    assert results(module(), code, **batch) == results(module(), **batch)


def test_a_model_that_cannot_be_compiled_has_no_code(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert compiled(module()[:-5], tmp_path) is None
    assert "is not compiled before its launch" in caplog.text


def test_a_large_model_is_compiled_once_before_it_is_launched(
    rig: DispatcherRig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    platform, home = rig.platform, tmp_path / "node"
    home.mkdir()
    share_environments(home)
    cache = NodeCache(home / "cache", platform.store)
    staging: Staging = staging_on(platform, cache, home)
    model = platform.files.models.add(LOCAL_CALLER, (module(),), filename="model.wasm", name="module")
    resolved = provenance(runtime={"name": "wasm"}, model={"format": "wasm", "digest": model.digest})
    assert staging.missing("one", resolved, {}, "local") is None, "it is small"
    monkeypatch.setattr(model_compiler, "COMPILED_FROM", 1)
    missing = staging.missing("one", resolved, {}, "local")
    assert missing is not None and (missing.message, missing.job) == ("its model is compiled", Preparation.LONG)
    stored = stored_model("wasm", "wasm", model.digest)
    models = CompiledModels(platform.database, staging._models, home / "environments", sandbox=True)
    reports: list[None] = []
    models.make(stored, "wasm", "wasm", holder="one", report=lambda: reports.append(None))
    assert staging.missing("two", resolved, {}, "local") is None
    folder = staging._models.path(stored, holder="two")
    assert (folder / CODE).stat().st_mode & 0o777 == 0o444, "model servers have users of their own"
    assert (folder / "model.wasm").read_bytes() == module()
    cache.release("one")
    seen: set[str] = set()
    cache.sweep(lambda holders: seen.update(holders) or holders)  # type: ignore[func-returns-value]
    assert seen == {"two"}, "it is pinned for those that use it"
