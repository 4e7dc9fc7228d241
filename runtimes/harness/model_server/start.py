"""Start of a model server: what it was started with, its seal, and the packages that only scenarios may import."""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any


@dataclass(kw_only=True, slots=True)
class Start:
    """``options``: from its command line. ``scratch``: the folder that a model may write to, if any.

    ``sealed``: whether the process is confined at a level that is sealed. ``packages``: the folder of the packages that
    the model has declared, empty if there is none.
    """

    options: Mapping[str, Any]
    scratch: Path | None
    sealed: bool
    packages: str = ""
    _has_sealed: bool = field(default=False, init=False)

    def seal(self, *, may_fork: bool = False, may_execute: bool = False) -> None:
        """Seal the sandbox if it is to be and has not been."""
        if self.sealed and not self._has_sealed:
            from ..sandbox import seal

            seal(may_fork=may_fork, may_execute=may_execute)
            self._has_sealed = True

    def extend_path(self) -> None:
        """Put the packages that the model has declared behind everything else on the path."""
        if self.packages and self.packages not in sys.path:
            sys.path.append(self.packages)
