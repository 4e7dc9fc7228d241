"""Compiled models: code for this node's processor, made once from models that would be compiled at each launch."""

from collections.abc import Callable
from pathlib import Path

from core.services.uploads.models import key_of
from core.store import models
from core.store.database import Database
from datasets.download.downloader import DownloadProgress
from datasets.nodecache.model_files import ModelFiles, StoredModel
from runtimes import catalogue, environments, model_compiler


def stored_model(runtime: str, format: str, digest: str, key: str | None = None) -> StoredModel:
    """Return a model as the node cache knows it; ``key``: of its object, if it has another than that of its digest."""
    used = catalogue.runtime(runtime).formats[format]
    toolchain = "" if used.format.compile is None else model_compiler.toolchain_of(format, used.environment)
    return StoredModel(
        key or key_of(digest), digest, archive=used.format.unpacked, placed=used.format.placed, toolchain=toolchain
    )


class CompiledModels:
    """The code of models in a node cache. ``folder``: the environments of this node."""

    def __init__(self, database: Database, files: ModelFiles, folder: Path, *, sandbox: bool) -> None:
        self._database = database
        self._files = files
        self._folder = folder
        self._sandbox = sandbox

    def missing(self, model: StoredModel) -> bool:
        """Return whether a model has no code here, and is so large that it is compiled before its launch."""
        if not model.toolchain or self._files.compiled(model) is not None:
            return False
        with self._database.read() as c:
            return models.size_of(c, model.digest) >= model_compiler.COMPILED_FROM

    def make(self, model: StoredModel, runtime: str, format: str, *, holder: str, report: Callable[[], None]) -> None:
        """Compile a model, pinned for ``holder``. ``report`` is called several times a second, and may raise."""
        site = environments.ready(catalogue.runtime(runtime).formats[format].environment, self._folder)
        assert site is not None, "packages are prepared before models"

        def compile(file: Path, folder: Path, _: Callable[[DownloadProgress], None]) -> None:
            model_compiler.compile_model(format, file, folder, site=site, sandbox=self._sandbox, report=report)

        self._files.compile(model, compile, holder=holder)
