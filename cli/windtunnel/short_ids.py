"""Short ids: an id may be shortened to its first letters, and `last` is the newest."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from windtunnel.errors import WindtunnelError

#: Letters and digits of an id.
WHOLE_LENGTH = 26
#: Ids that are named where several begin alike.
MOST_NAMED = 5


@dataclass(frozen=True, slots=True)
class ShortIds:
    """Short ids of one kind of thing. ``listed``, ``made``: sentences that say how it is listed and made."""

    noun: str
    listed: str
    made: str

    def beginning(self, reference: str) -> str:
        """Return the letters with which the id begins; "" for `last`. Raise WindtunnelError for another text."""
        if not re.fullmatch(rf"[0-9A-Za-z]{{1,{WHOLE_LENGTH}}}", reference):
            raise WindtunnelError(
                f"{reference!r:.200} is not the id of a {self.noun}, the beginning of one, or `last`. {self.listed}"
            )
        return "" if reference == "last" else reference.lower()

    def only(self, beginning: str, ids: Sequence[str]) -> str:
        """Return the only id that begins so, of those listed; the first for "". Raise WindtunnelError otherwise."""
        matching = [id for id in ids if id.startswith(beginning)][: None if beginning else 1]
        if len(matching) == 1:
            return matching[0]
        if not matching and not beginning:
            raise WindtunnelError(f"There is no {self.noun} yet. {self.made}")
        if not matching:
            raise WindtunnelError(f"There is no {self.noun} {beginning!r}. {self.listed}")
        more = ", ..." if len(matching) > MOST_NAMED else ""
        raise WindtunnelError(
            f"{len(matching)} {self.noun}s begin with {beginning!r}: {', '.join(matching[:MOST_NAMED])}{more}."
            " Write more of the id."
        )


SIMULATIONS = ShortIds(
    "simulation", "`windtunnel simulations list` lists them.", "`windtunnel run MODEL DATASET` submits one."
)
PIPELINES = ShortIds("pipeline", "`windtunnel pipeline list` lists them.", "`windtunnel pipeline FILE` runs one.")
COMPARISONS = ShortIds("comparison", "list_comparisons lists them.", "compare_models starts one.")
