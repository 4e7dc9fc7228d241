"""Package closure: the packages that some packages need, without recommendations. No I/O.

Not apt's solver: of alternatives the first that can be had is taken, and packages that conflict with each other are
found when they are unpacked, because both have a file of the same name. That is enough within one suite of Debian.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from common.errors import BadRequirements
from common.near_names import name_list, near_names, suggestion
from runtimes.packages.debian_versions import satisfies, version_key
from runtimes.packages.package_lock import MOST_PACKAGES

_RELATION = re.compile(r"([a-z0-9][a-z0-9+.-]*)(?::[a-z0-9]+)?(?:\s*\((<<|<=|=|>=|>>)\s*([^)\s]+)\))?")
#: A request of a user: a name, or a name and a version.
REQUEST = re.compile(r"([a-z0-9][a-z0-9+.-]{1,100})(?:=([A-Za-z0-9.+:~-]{1,100}))?")


@dataclass(frozen=True, slots=True)
class Dependency:
    """A name that a package needs; with a ``relation``, in a version that is in it to ``version``."""

    name: str
    relation: str = ""
    version: str = ""

    def accepts(self, version: str) -> bool:
        """Return whether a version is what is needed."""
        return not self.relation or satisfies(version, self.relation, self.version)

    def __str__(self) -> str:
        return f"{self.name} ({self.relation} {self.version})" if self.relation else self.name


@dataclass(frozen=True, kw_only=True, slots=True)
class IndexedPackage:
    """A package as an index has it. ``depends``: alternatives, one of each; ``provides``: names with versions."""

    name: str
    version: str
    path: str
    sha256: str
    size: int
    essential: bool = False
    depends: Sequence[Sequence[Dependency]] = ()
    provides: Mapping[str, str] = field(default_factory=dict)


def parse_dependencies(text: str) -> list[list[Dependency]]:
    """Read a field such as `Depends`. Raise ValueError for what is not in its syntax."""
    groups = []
    for group in filter(None, (part.strip() for part in text.split(","))):
        alternatives = []
        for alternative in group.split("|"):
            match = _RELATION.fullmatch(alternative.strip())
            if match is None:
                raise ValueError(f"{alternative.strip()!r:.100} is not a dependency")
            name, relation, version = match.groups("")
            alternatives.append(Dependency(name, relation, version))
        groups.append(alternatives)
    return groups


class PackageSet:
    """The packages of an index, by name and by what they provide; of each name the newest version counts."""

    def __init__(self, packages: Iterable[IndexedPackage]) -> None:
        self._versions: dict[str, list[IndexedPackage]] = {}
        self._providers: dict[str, list[IndexedPackage]] = {}
        for package in packages:
            self._versions.setdefault(package.name, []).append(package)
            for provided in package.provides:
                self._providers.setdefault(provided, []).append(package)
        for versions in self._versions.values():
            versions.sort(key=lambda package: version_key(package.version), reverse=True)

    def closure(self, requests: Sequence[str]) -> list[IndexedPackage]:
        """Return the requested packages, the essential ones, and all that these need, by name.

        Raise BadRequirements with the reason if a package is not there, or not in that version.
        """
        chosen: dict[str, IndexedPackage] = {}
        waiting = [self._find_request(request) for request in requests]
        waiting += [versions[0] for versions in self._versions.values() if versions[0].essential]
        for package in waiting:
            chosen.setdefault(package.name, package)
        while waiting:
            package = waiting.pop()
            for alternatives in package.depends:
                needed = self._missing_package(package, alternatives, chosen)
                if needed is not None:
                    chosen[needed.name] = needed
                    waiting.append(needed)
            if len(chosen) > MOST_PACKAGES:
                raise BadRequirements(f"The packages need more than {MOST_PACKAGES} others.")
        return [chosen[name] for name in sorted(chosen)]

    def _find_request(self, request: str) -> IndexedPackage:
        match = REQUEST.fullmatch(request)
        if match is None:
            raise BadRequirements(
                f"`packages` has {request[:100]!r}; each is the name of a Debian package, or `name=version`."
            )
        name, version = match.groups()
        versions = self._versions.get(name, [])
        if not versions:
            if providers := sorted({package.name for package in self._providers.get(name, ())}):
                raise BadRequirements(f"Several packages may be {name}: name one of them, {name_list(providers)}.")
            near = near_names(name, self._versions)
            raise BadRequirements(f"There is no package {name}. {suggestion(near, 'Its index has no similar name.')}")
        for package in versions:
            if version is None or package.version == version or package.version.partition("-")[0] == version:
                return package
        known = ", ".join(package.version for package in versions)
        raise BadRequirements(f"The package {name} is not there in version {version}; there is {known}.")

    def _missing_package(
        self, package: IndexedPackage, alternatives: Sequence[Dependency], chosen: Mapping[str, IndexedPackage]
    ) -> IndexedPackage | None:
        """Return what has to be added for a dependency; None if one of its alternatives is chosen already."""
        if any(self._is_met(dependency, chosen.values()) for dependency in alternatives):
            return None
        for dependency in alternatives:
            if (found := next(self._candidates(dependency, chosen), None)) is not None:
                return found
        wanted = " | ".join(map(str, alternatives))
        raise BadRequirements(f"The package {package.name} needs {wanted}, which is not there.")

    @staticmethod
    def _is_met(dependency: Dependency, chosen: Iterable[IndexedPackage]) -> bool:
        return any(_meets(package, dependency) for package in chosen)

    def _candidates(self, dependency: Dependency, chosen: Mapping[str, IndexedPackage]) -> Iterator[IndexedPackage]:
        """Yield packages that meet a dependency: of its name, then those that provide it."""
        for package in (*self._versions.get(dependency.name, ()), *self._providers.get(dependency.name, ())):
            if _meets(package, dependency) and package.name not in chosen:
                yield package


def _meets(package: IndexedPackage, dependency: Dependency) -> bool:
    if package.name == dependency.name:
        return dependency.accepts(package.version)
    provided = package.provides.get(dependency.name)
    return provided is not None and (not dependency.relation or (bool(provided) and dependency.accepts(provided)))
