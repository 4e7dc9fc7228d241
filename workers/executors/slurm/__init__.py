"""The executor of a Slurm cluster, which the platform reaches by Slurm's own commands and a shared file system."""

from workers.executors.slurm.executor import SlurmExecutor, open

__all__ = ["SlurmExecutor", "open"]
