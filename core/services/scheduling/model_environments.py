"""Model environments: the packages that a model declares, resolved once to a lock, and installed once per node.

The lock belongs to the model's content: every simulation with it uses the same packages, for ever. An environment is
named by its lock, so models with equal locks share it; it is a derived tree of the node cache, which evicts it when it
is not used.
"""

import time
from collections.abc import Callable
from pathlib import Path

from msgspec.structs import replace

from common.errors import BadRequirements
from common.ids import digest_of
from core.domain.submissions.provenance import PlayedModel, Provenance, provenance_of
from core.domain.submissions.stored_documents import update_document
from core.services.uploads.declared_dependencies import declared
from core.store import model_locks, simulations
from core.store.database import Database
from datasets.nodecache.model_files import ModelFiles
from runtimes import catalogue, environments
from runtimes.dependencies.declaration import Declaration
from runtimes.dependencies.installer import Installer
from runtimes.dependencies.lock import merged
from runtimes.dependencies.untrusted_folders import workspace
from runtimes.environments import Environment
from runtimes.packages.package_installer import PackageInstaller
from runtimes.packages.package_lock import is_package_lock

#: A message, and the fraction done (None: unknown).
Say = Callable[[str, float | None], None]


def ignore_message(message: str, fraction: float | None) -> None:
    """Do nothing with a progress message."""


class ModelEnvironments:
    """Locks and environments of models with dependencies. ``files``: the models themselves, on this node.

    ``scratch``: a folder for files of packages that are being resolved.
    """

    def __init__(
        self, database: Database, files: ModelFiles, installer: Installer, packages: PackageInstaller, scratch: Path
    ) -> None:
        self._packages = packages
        self.files = files
        self._database = database
        self._cache = files.cache
        self._installer = installer
        self._scratch = scratch

    @property
    def sandbox(self) -> bool:
        """Whether programs that work on files of users are confined."""
        return self._installer.options.sandbox

    def lock(self, id: str, stored: str, model: Path, say: Say) -> Provenance:
        """Return a simulation's provenance with the lock of its model, which is resolved unless it was before.

        ``stored``: its row's provenance. Raises BadRequirements with the reason if the dependencies cannot be had here.
        """
        provenance = provenance_of(stored)
        if not has_dependencies(provenance) or locked(provenance) is not None:
            return provenance
        played, target = provenance.played_model, environments.target()
        with self._database.read() as c:
            lock = model_locks.find(c, played.digest, target)
        if lock is None:
            declaration = declared(model, played.format, largest=self.files.largest)
            if declaration is None:
                raise BadRequirements(
                    f"The model {provenance.model.name} declares no dependencies any more; upload it again."
                )
            resolved = self._resolve(declaration, played, say)
            lock = self._database.write(lambda c: model_locks.add(c, played.digest, target, resolved, time.time()))
        provenance = with_lock(provenance, lock)
        updated = update_document(stored, provenance)
        self._database.write(lambda c: simulations.describe(c, id, provenance=updated))
        return provenance

    def _resolve(self, declaration: Declaration, played: PlayedModel, say: Say) -> str:
        """Return the lock of what a model declares: of Debian packages where its format is a case, else of Python's."""
        format = catalogue.runtime(played.runtime).formats[played.format]
        if format.format.manifest:
            with workspace(self._scratch, "packages-") as folder:
                return self._packages.resolve(declaration.requirements, folder, say)
        preferred = merged([format.environment.lock, *catalogue.model_server_locks()])
        return self._installer.resolve(declaration, preferred, say)

    def ready(self, provenance: Provenance, holder: str) -> bool:
        """Return whether the model's environment is on this node; if so, it is pinned for ``holder``."""
        digest = locked(provenance)
        if digest is None or self._cache.ready(digest) is None:
            return False
        self._cache.hold(digest, holder)
        return self._cache.ready(digest) is not None  # it may have been evicted before it was pinned

    def install(self, provenance: Provenance, holder: str, say: Say) -> Path:
        """Return the folder of a locked environment, which is installed unless it is there; pinned for ``holder``."""
        digest = locked(provenance)
        assert digest is not None
        with self._database.read() as c:
            lock = model_locks.find(c, provenance.played_model.digest, environments.target())
        if lock is None or environment_of(lock) != digest:
            raise BadRequirements(
                "The lock of this simulation is for another interpreter or machine than this platform's."
            )

        return self.install_lock(lock, holder, say)

    def install_lock(self, lock: str, holder: str, say: Say) -> Path:
        """Return the folder of a lock's environment, which is installed unless it is there; pinned for ``holder``."""

        def make(folder: Path, _: object) -> None:
            installer = self._packages if is_package_lock(lock) else self._installer
            installer.install(lock, folder, say)

        return self._cache.derived(environment_of(lock), make, size=0, holder=holder)


def has_dependencies(provenance: Provenance) -> bool:
    """Return whether a simulation's model needs packages of its own."""
    return provenance.model.dependencies is not None


def locked(provenance: Provenance) -> str | None:
    """Return the name of a locked environment in the node cache; None if the dependencies were not resolved yet."""
    dependencies = provenance.model.dependencies
    return None if dependencies is None or dependencies.lock is None else f"sha256:{provenance.runtime.environment}"


def environment_of(lock: str) -> str:
    """Return the name of a lock's environment in the node cache."""
    return f"sha256:{Environment('', lock).digest}"


def with_lock(provenance: Provenance, lock: str) -> Provenance:
    """Return a provenance with its model's lock, and the environment that follows from it."""
    assert provenance.model.dependencies is not None
    dependencies = replace(provenance.model.dependencies, lock=digest_of(lock.encode()))
    model = replace(provenance.model, dependencies=dependencies)
    runtime = replace(provenance.runtime, environment=Environment("", lock).digest)
    return replace(provenance, model=model, runtime=runtime)
