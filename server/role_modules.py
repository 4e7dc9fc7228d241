"""Modules of the roles: the supervisor imports them once, and forks the roles that share them.

Nothing listed here may start a thread, open a file that stays open, or read settings when it is imported.
"""

import gc
import importlib
import os
import pkgutil
from collections.abc import Iterator, Mapping, Sequence

#: Modules by the group that needs them, in the order of their import: the API answers as soon as its own are there.
#: They include what the roles import late, as far as each installation needs it; `.*` is every module of a package.
GROUPS: Mapping[str, Sequence[str]] = {
    "migrate": ("server.roles", "server.logs", "server.composition", "core.store.database"),
    "api": (
        "server.granian_server",
        "uvloop",
        "core.notifications.redis_notifier",
        "workers.executors.registry",
        "datasets.nodecache.node_cache",
        "core.services.platform",
        "api.application",
        "api.runner_api",
        "core.services.scheduling.leases",
        "server.wsgi_gateway",
        "flask_swagger_ui",
        "datasets.eviction.policies.lru",
        "workers.executors.local",
    ),
    "others": (
        "workers.dispatcher",
        "core.services.scheduling.dispatch",
        "workers.managed_executor",
        "workers.background_jobs",
        "server.job_processes",
        "workers.node_agent",
        "workers.warm_runner_pool",
        "datasets.scs.__main__",
        "server.cache_service",
        "runtimes.formats",
        "runtimes.harness.models.*",
        "numpy.ma",
        "numpy.random",
        "_strptime",
        "encodings.idna",
    ),
}


class RoleModules:
    """Imports the modules of all roles, in steps between which the supervisor does its other work."""

    def __init__(self) -> None:
        self._imported: set[str] = set()

    def has(self, group: str) -> bool:
        """Return whether the modules of a group are imported."""
        return group in self._imported

    def steps(self) -> Iterator[str]:
        """Import the modules, and yield the name of each.

        No garbage is collected meanwhile, and none of the imported objects is examined later: a collection writes to
        every page, and each role would have a copy of it. The supervisor itself makes little garbage.
        """
        # numpy's OpenBLAS would start threads, one for each processor. No role computes enough for more than one. The
        # roles' environment, which models and other programs inherit, does not have this.
        os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
        gc.disable()
        for group, modules in GROUPS.items():
            for module in modules:
                for name in _expand(module):
                    importlib.import_module(name)
                yield module
            gc.freeze()
            self._imported.add(group)
        gc.enable()


def _expand(module: str) -> Iterator[str]:
    """Yield a module, or the modules of a package."""
    package, star, _ = module.partition(".*")
    yield package
    if star:
        path = importlib.import_module(package).__path__
        yield from (f"{package}.{found.name}" for found in pkgutil.iter_modules(path))
