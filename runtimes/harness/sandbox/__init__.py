"""Sandbox: confines a process that runs untrusted code or opens untrusted files (see docs/sandbox.md)."""

from .landlock import keep_signals_inside
from .levels import Level, Unconfined, confine, level
from .limits import may_change_user
from .recipe import Confinement, ConfinementReport
from .seccomp import seal

__all__ = [
    "Confinement",
    "ConfinementReport",
    "Level",
    "Unconfined",
    "confine",
    "keep_signals_inside",
    "level",
    "may_change_user",
    "seal",
]
