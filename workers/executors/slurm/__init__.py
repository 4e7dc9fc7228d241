"""The executor of a Slurm cluster, which the platform reaches by Slurm's own commands and a shared file system."""

from workers.executors.slurm.executor import SlurmExecutor, open

#: Nodes see the environments that are prepared here, as they see everybody's home.
OWN_ENVIRONMENTS = False

__all__ = ["OWN_ENVIRONMENTS", "SlurmExecutor", "open"]
