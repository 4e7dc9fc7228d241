"""Name patterns: to which models and datasets a token is limited. Pure decisions.

A pattern is that of a name, `brake*`, or of a name and a version, `streets@3` or `brake@gold*`: the version is a number
or a tag. `*` stands for any characters and `?` for one; all others stand for themselves, and case counts.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase

import msgspec

from common.errors import NotPermitted
from core.domain.access.shared_kinds import SharedKind

#: A pattern's characters: of names, of projects before them, and the two that stand for others. It has no brackets,
#: which `fnmatch` would read.
PATTERN = r"^[A-Za-z0-9._*?/-]+(@[A-Za-z0-9._*?:-]+)?$"
#: Most characters of a pattern, and most patterns of each kind.
LONGEST_PATTERN, MOST_PATTERNS = 200, 50


@dataclass(frozen=True, slots=True)
class NamePatterns:
    """The patterns of a token by kind; None: it is not limited to some of these."""

    models: tuple[str, ...] | None = None
    datasets: tuple[str, ...] | None = None

    @classmethod
    def of_text(cls, text: str | None) -> "NamePatterns":
        """Return the patterns that a row has."""
        stored = {} if text is None else msgspec.json.decode(text, type=dict[str, tuple[str, ...]])
        return cls(stored.get(SharedKind.MODELS.value), stored.get(SharedKind.DATASETS.value))

    def __bool__(self) -> bool:
        return self.models is not None or self.datasets is not None

    @property
    def by_kind(self) -> Mapping[SharedKind, tuple[str, ...]]:
        """The patterns of each kind that has some."""
        kinds = {SharedKind.MODELS: self.models, SharedKind.DATASETS: self.datasets}
        return {kind: patterns for kind, patterns in kinds.items() if patterns is not None}

    @property
    def text(self) -> str | None:
        """The patterns as a row has them."""
        return msgspec.json.encode(self.by_kind).decode() if self else None

    def needs_versions(self, kind: SharedKind) -> bool:
        """Return whether it matters which tags a version has."""
        return any("@" in pattern for pattern in self.by_kind.get(kind, ()))

    def require(self, kind: SharedKind, name: str, versions: Collection[str] = ()) -> None:
        """Raise NotPermitted unless a name, of a version with this number and these tags, is among the patterns.

        No ``versions``: what is asked for concerns the name as a whole, as a new version of it does.
        """
        patterns = self.by_kind.get(kind)
        if patterns is not None and not any(_matches(pattern, name, versions) for pattern in patterns):
            raise NotPermitted(
                f"This token is limited to {kind.value} that match {', '.join(patterns)[:300]}; {name[:100]!r} does"
                " not. Use another token, or ask a maintainer of the project for one."
            )


#: Of a token that is not limited to some.
ALL_NAMES = NamePatterns()


def _matches(pattern: str, name: str, versions: Collection[str]) -> bool:
    named, at, version = pattern.partition("@")
    if not fnmatchcase(name, named):
        return False
    return not at or version == "*" or any(fnmatchcase(each, version) for each in versions)
