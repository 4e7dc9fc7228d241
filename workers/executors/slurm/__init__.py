"""Slurm executor kind: runs launches as job arrays, through Slurm's commands and a shared file system."""

from pathlib import Path
from typing import TYPE_CHECKING

from core.domain.scheduling.allowed_options import OPTIONS
from core.domain.scheduling.executor_config import GangSupport
from workers.executors.base import ExecutorKind, LocalPaths
from workers.executors.slurm.jobs import SlurmOptions

if TYPE_CHECKING:
    from workers.executors.slurm.executor import SlurmExecutor


#: Options of submissions that become arguments of sbatch.
HONOURED = frozenset({"resources", "queue", "priority"})


def open(name: str, options: SlurmOptions, paths: LocalPaths) -> "SlurmExecutor":
    """Return the executor of a cluster; it runs none of Slurm's commands yet."""
    from workers.executors.slurm.executor import SlurmExecutor
    from workers.warm_runners import PreparedFolders

    prepared = PreparedFolders.below(paths.home, paths.environments)
    folder = Path(options.folder) if options.folder else paths.home / "slurm" / name
    return SlurmExecutor(name, options, folder, prepared=prepared)


#: Nodes see the environments that are prepared on this machine, in the shared file system.
KIND = ExecutorKind(
    options=SlurmOptions,
    open=open,
    ignored=frozenset(OPTIONS) - HONOURED,
    gangs=lambda options: GangSupport(
        packaged=True,
        nodes=True,
        several=options.gang_network,
        remedy="the executor's option `gang_network` allows several, whose network is then open to programs",
    ),
)
