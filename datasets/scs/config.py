"""What a cache service is told: buckets in the published JSON shape, and what may be said besides."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

_QUANTITY = re.compile(r"([+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?")
_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
#: The policies a bucket may evict by; what each does is said in object_index.py.
POLICIES = ("lru", "fifo", "random", "nr")
#: What a bucket's ``AllowNamespaces`` says to allow whoever has a valid token.
ANY = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """One bucket: who may read and write it, how many bytes it may hold, and what goes when it is full."""

    name: str
    quota: int
    public: bool = False
    namespaces: frozenset[str] = frozenset()
    policy: str = "lru"

    def allows(self, namespace: str) -> bool:
        """Tell whether a service account of this namespace may use the bucket."""
        return namespace in self.namespaces or ANY in self.namespaces


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """What one process puts up with; times in seconds, sizes in bytes."""

    connections: int = 4096
    #: PUTs at work at once; as many as sixteen times this may wait, the next is answered 503.
    writers: int = 16
    target: int = 16 << 10
    head: int = 32 << 10
    #: Between two requests, for a request's head, and without any progress in an answer or a body.
    idle: float = 75.0
    head_time: float = 10.0
    stall: float = 30.0
    #: Bytes a second below which a body is given up, after a first stall's time.
    slowest: int = 64 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Everything a cache service is told."""

    buckets: Mapping[str, Bucket]
    directory: Path = Path("var/scs")
    host: str = "127.0.0.1"
    port: int = 5080
    processes: int = 1
    #: Bytes of all buckets together; 0: the sum of their quotas.
    total: int = 0
    #: Bytes of the file system that are never filled; None: a sixty-fourth of it, at most 1 GiB.
    free: int | None = None
    fsync: bool = False
    #: Bytes a second that are read again to find flipped bits; 0: only when asked.
    scrub: int = 16 << 20
    reviewer: Mapping[str, Any] = field(default_factory=dict, repr=False)
    limits: Limits = Limits()

    @property
    def capacity(self) -> int:
        """Bytes of all buckets together."""
        return self.total or sum(bucket.quota for bucket in self.buckets.values())

    def share(self, bucket: Bucket) -> float:
        """Return the bytes a bucket is sure of when the buckets together want more than there is."""
        return self.capacity * bucket.quota / max(1, sum(one.quota for one in self.buckets.values()))


def quantity(text: object) -> int:
    """Read a Kubernetes quantity as whole bytes, rounded up: ``100Gi``, ``1.5G``, ``1e9``, ``128974848``."""
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise ValueError(f"a quantity is a string like 100Gi, not {text!r}")
    found = _QUANTITY.fullmatch(str(text))
    if found is None:
        raise ValueError(f"no quantity of bytes: {str(text)[:40]!r}; write 100Gi, 1.5G, 1e9 or 128974848")
    number, suffix = found[1].lstrip("+"), found[2] or ""
    whole, _, rest = number.partition(".")
    digits, exponent = int(whole + rest), -len(rest)
    if suffix in _BINARY:
        digits <<= _BINARY[suffix]
    else:
        exponent += _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    value: int = digits * 10**exponent if exponent >= 0 else -(-digits // 10**-exponent)
    if value >= 1 << 63:
        raise ValueError(f"more bytes than can be counted: {text!r}")
    return value


def load(path: Path) -> Config:
    """Read a configuration file; an error says where in it, and never what a secret there is."""
    try:
        return parse(json.loads(path.read_text()), base=path.parent)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from None


def parse(document: Any, *, base: Path = Path()) -> Config:
    """Build a configuration from its JSON; unknown keys are errors, for a misspelt one is a silent one."""
    given = _object(document, "the configuration")
    read: dict[str, Any] = {}
    for key, value in given.items():
        if key not in _TOP:
            raise ValueError(f"unknown key {key!r}; known are {', '.join(_TOP)}")
        name, parser = _TOP[key]
        try:
            read[name] = parser(value)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    if "buckets" not in read:
        raise ValueError("Bucket is missing: it lists at least one bucket")
    if listen := read.pop("listen", None):
        read["host"], read["port"] = listen
    config = Config(**read)
    return replace(config, reviewer={**config.reviewer, "base": base})


def _object(value: Any, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{what} is a JSON object")
    return value


def _buckets(value: Any) -> dict[str, Bucket]:
    if not isinstance(value, list) or not value:
        raise ValueError("a list of at least one bucket is needed")
    found: dict[str, Bucket] = {}
    for number, one in enumerate(value):
        try:
            bucket = _bucket(_object(one, "a bucket"))
        except ValueError as error:
            raise ValueError(f"number {number}: {error}") from None
        if bucket.name in found:
            raise ValueError(f"number {number}: there are two of the name {bucket.name!r}")
        found[bucket.name] = bucket
    return found


def _bucket(given: dict[str, Any]) -> Bucket:
    known = ("Name", "Public", "BucketQuota", "AllowNamespaces", "Eviction")
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(known)}")
    name, policy = given.get("Name"), given.get("Eviction", "lru")
    if not isinstance(name, str) or not _NAME.fullmatch(name):
        raise ValueError("Name is needed: letters, digits, dots, dashes and underscores, at most 63")
    if "BucketQuota" not in given:
        raise ValueError("BucketQuota is needed, for example 100Gi")
    if policy not in POLICIES:
        raise ValueError(f"Eviction is one of {', '.join(POLICIES)}")
    return Bucket(
        name=name,
        quota=quantity(given["BucketQuota"]),
        public=_flag(given.get("Public", False)),
        namespaces=frozenset(_strings(given.get("AllowNamespaces", []))),
        policy=policy,
    )


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ValueError("AllowNamespaces is a list of strings")
    return value


def _flag(value: Any) -> bool:
    if not isinstance(value, bool):
        raise ValueError("true or false is needed")
    return value


def _count(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= 1 << 20:
        raise ValueError("a whole number from 1 is needed")
    return value


def _path(value: Any) -> Path:
    if not isinstance(value, str) or not value:
        raise ValueError("a path is needed")
    return Path(value)


def _listen(value: Any) -> tuple[str, int]:
    host, colon, port = value.rpartition(":") if isinstance(value, str) else ("", "", "")
    if not colon or not port.isdecimal() or not 0 <= int(port) <= 65535:
        raise ValueError("host:port is needed, for example 0.0.0.0:5080")
    return host.strip("[]") or "0.0.0.0", int(port)


def _limits(value: Any) -> Limits:
    known: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "Connections": ("connections", _count),
        "Writers": ("writers", _count),
        "IdleSeconds": ("idle", _seconds),
        "HeadSeconds": ("head_time", _seconds),
        "StallSeconds": ("stall", _seconds),
        "SlowestBody": ("slowest", quantity),
    }
    given = _object(value, "it")
    if unknown := sorted(set(given) - set(known)):
        raise ValueError(f"unknown key {unknown[0]!r}; known are {', '.join(known)}")
    return Limits(**{known[key][0]: known[key][1](one) for key, one in given.items()})


def _seconds(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value <= timedelta(days=1).total_seconds()
    ):
        raise ValueError("seconds are needed, above 0 and at most a day")
    return float(value)


_TOP: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "Bucket": ("buckets", _buckets),
    "TotalQuota": ("total", quantity),
    "Directory": ("directory", _path),
    "Listen": ("listen", _listen),
    "Processes": ("processes", _count),
    "KeepFree": ("free", quantity),
    "Fsync": ("fsync", _flag),
    "ScrubRate": ("scrub", quantity),
    "Reviewer": ("reviewer", lambda value: _object(value, "it")),
    "Limits": ("limits", _limits),
}
