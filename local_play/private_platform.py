"""Private platform: the platform's services over a database and an object store of one process, removed at its end.

Prepared environments, and what models of theirs install, are shared by all processes of a home.
"""

import fcntl
import hashlib
import json
import secrets
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from common.ids import new_id
from core.domain.access.scopes import DEFAULT_PROJECT
from core.domain.scheduling.executor_config import ExecutorConfig
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from core.settings import Settings
from core.store import database as database_module
from core.store import datasets as dataset_rows
from core.store.database import Database
from datasets.catalogue import Dataset
from datasets.nodecache.disk_cache import DiskCache
from datasets.nodecache.model_files import ModelFiles
from datasets.nodecache.node_cache import NodeCache
from datasets.objectstore.filesystem import FilesystemStore
from runtimes.dependencies.installer import InstallerOptions

#: Name of the one executor, which is this process.
EXECUTOR = "local"
#: Free bytes that local play leaves on the disk, if the settings say nothing: only this work is in progress there.
FLOOR = 256 << 20
#: Bytes of the cache of models and their packages that all processes of a home share.
CACHE = 16 << 30
#: Revisions of the database's schema.
REVISIONS = Path(database_module.__file__).parent / "migrations" / "versions"
#: Folders of a home that private platforms use as they are: environments, uv's cache, and registered datasets.
SHARED = {"environments": "environments", "packages": "packages", "plays": "openenv"}


@dataclass(frozen=True, kw_only=True, slots=True)
class PrivatePlatform:
    """The services, the folder that they write to, the files of models, their cache, and this machine as executor."""

    services: Platform
    folder: Path
    models: ModelFiles
    cache: DiskCache
    executor: ExecutorConfig


@contextmanager
def opened(settings: Settings, sandbox: Mapping[str, Any]) -> Iterator[PrivatePlatform]:
    """Give a private platform below the home of the settings. ``sandbox``: this machine's, as in provenance.

    Raise OSError if the home cannot be written.
    """
    home = settings.home.resolve()
    root = home / "local"
    root.mkdir(parents=True, exist_ok=True)
    with _in_use(root) as alone:
        folder = root / secrets.token_hex(8)
        folder.mkdir(mode=0o711)
        try:
            for name, shared in SHARED.items():
                (home / shared).mkdir(exist_ok=True)
                (folder / name).symlink_to(home / shared)
            platform = _build(folder, root, settings, sandbox)
            if alone:
                platform.models.cache.sweep(lambda holders: set())
            try:
                yield platform
            finally:
                platform.services.database.close()
        finally:
            shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def _in_use(root: Path) -> Iterator[bool]:
    """Mark the folder of all private platforms as in use; remove what killed processes left if nobody else uses it.

    Gives whether this process was alone at its start.
    """
    with open(root / ".lock", "w") as lock:
        alone = False
        with suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            alone = True
            for folder in root.iterdir():
                if folder.is_dir() and folder.name != "cache":
                    shutil.rmtree(folder, ignore_errors=True)
        fcntl.flock(lock, fcntl.LOCK_SH)
        yield alone


def _build(folder: Path, root: Path, settings: Settings, sandbox: Mapping[str, Any]) -> PrivatePlatform:
    store = FilesystemStore(folder / "objects")
    executor = ExecutorConfig(name=EXECUTOR, kind="local", workers=settings.max_workers)
    options = PlatformOptions(
        home=folder,
        executor_configs=(executor,),
        sandbox=sandbox,
        max_upload=settings.max_upload,
        max_unpacked=settings.max_unpacked,
        disk_floor=settings.disk_floor or FLOOR,
        trusted=True,  # the model, the machine and the results are all the caller's
        installer=InstallerOptions(
            indexes=settings.package_indexes,
            hosts=settings.package_hosts,
            packages=settings.allowed_packages,
            largest=settings.max_environment,
            sandbox=settings.sandbox == "auto",
        ),
    )
    cache = NodeCache(root / "cache", store, capacity=CACHE)
    services = build(_database(folder, root), store, LocalNotifier(), options, cache=cache)
    models = ModelFiles(cache, largest=settings.max_unpacked)
    return PrivatePlatform(
        services=services, folder=folder, models=models, cache=DiskCache(root / "cache", None), executor=executor
    )


def _database(folder: Path, root: Path) -> Database:
    """Return a new database with the schema of this version, copied from one that was migrated once."""
    revisions = sorted(path.name for path in REVISIONS.glob("*.py"))
    template = root / f"schema-{hashlib.sha256(' '.join(revisions).encode()).hexdigest()[:16]}.db"
    if not template.exists():
        from core.store.migrate import migrate  # needed once for each version: it takes a third of a second to import

        draft = Database(f"sqlite:///{folder}/schema.db")
        migrate(draft)
        draft.close()
        (folder / "schema.db").rename(template)
    shutil.copyfile(template, folder / "windtunnel.db")
    return Database(f"sqlite:///{folder}/windtunnel.db")


def register(services: Platform, dataset: Dataset) -> None:
    """Add a dataset of another platform, whose files are in the folder of registered datasets already."""
    definition = dataset.definition
    described = {name: definition[name] for name in ("extends", "title", "description", "tasks")}
    described["scenarios"] = definition["listed"]
    moment = datetime.now(UTC)
    row = {
        "id": new_id(moment),
        "project": DEFAULT_PROJECT,
        "name": dataset.name,
        "version": int(dataset.version),
        "digest": dataset.digest,
        "source": "{}",
        "described": json.dumps(described),
        "created_at": moment.timestamp(),
    }
    services.database.write(lambda c: dataset_rows.add_ready(c, row))
