"""Models by reference in tests: a platform that may import from given places, and an import up to its end."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from core.domain.access.scopes import LOCAL_CALLER
from core.notifications.local_notifier import LocalNotifier
from core.services.platform import Platform, PlatformOptions, build
from datasets.objectstore.filesystem import FilesystemStore
from tests.databases import sqlite_database
from tests.executor_configs import LOCAL

#: A model of a Python file, as it is stored.
PYTHON = b"class Model:\n    def act(self, observation):\n        return [0]\n"


@contextmanager
def importing_platform(home: Path, **places: Any) -> Iterator[Platform]:
    """Build a platform whose options ``model_origins`` and ``connections`` say where models may come from."""
    options = PlatformOptions(home=home, executor_configs=[LOCAL], sandbox={}, max_upload=1 << 20, **places)
    database = sqlite_database(home / "test.db")
    yield build(database, FilesystemStore(home / "objects"), LocalNotifier(), options)
    database.close()


def imported(platform: Platform, reference: str, **options: str | None) -> dict[str, Any]:
    """Import a model; return the import at its end."""
    id = platform.submissions.model_imports.request(LOCAL_CALLER, reference, **options)["id"]
    platform.submissions.model_imports.fetch(id)
    return platform.submissions.model_imports.get(LOCAL_CALLER, id)
