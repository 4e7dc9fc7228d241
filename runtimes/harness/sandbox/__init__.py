"""The sandbox: what confines a process that runs code or files we did not write (see docs/sandbox.md)."""

from .levels import Level, Unconfined, confine, level
from .recipe import Confinement, Report
from .seccomp import seal

__all__ = ["Confinement", "Level", "Report", "Unconfined", "confine", "level", "seal"]
