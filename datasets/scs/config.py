"""Cache configuration: buckets in the published JSON shape, and this service's additional keys."""

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

from datasets.eviction.policies import policy_names

_QUANTITY = re.compile(r"([+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+))(Ki|Mi|Gi|Ti|Pi|Ei|[numkMGTPE]|[eE][+-]?[0-9]{1,3})?")
_BUCKET_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9._-]{0,61}[A-Za-z0-9])?")
_BINARY = {"Ki": 10, "Mi": 20, "Gi": 30, "Ti": 40, "Pi": 50, "Ei": 60}
_DECIMAL = {"n": -9, "u": -6, "m": -3, "": 0, "k": 3, "M": 6, "G": 9, "T": 12, "P": 15, "E": 18}
#: PUTs that may wait for each PUT whose body is received.
WAITING_PER_WRITER = 16
#: Entry of a bucket's ``AllowNamespaces`` that allows every valid token.
ANY_NAMESPACE = "*"


@dataclass(frozen=True, kw_only=True, slots=True)
class Bucket:
    """Bucket: who may read and write it, its quota in bytes, and its eviction policy."""

    name: str
    quota: int
    public: bool = False
    namespaces: frozenset[str] = frozenset()
    policy: str = "lru"

    def allows(self, namespace: str) -> bool:
        """Tell whether a service account of this namespace may use the bucket."""
        return namespace in self.namespaces or ANY_NAMESPACE in self.namespaces


@dataclass(frozen=True, kw_only=True, slots=True)
class Limits:
    """Limits of one process; times in seconds, sizes in bytes."""

    connections: int = 4096
    #: PUTs whose bodies are received at once; WAITING_PER_WRITER times as many wait, further ones are answered 503.
    writers: int = 16
    target: int = 16 << 10
    head: int = 32 << 10
    #: Time between two requests, time for a request's head, and time without progress of a response or a body.
    idle: float = 75.0
    head_time: float = 10.0
    stall: float = 30.0
    #: Bytes per second: a body that is slower than this is cut off, after an initial ``stall``.
    slowest: int = 64 << 10


@dataclass(frozen=True, kw_only=True, slots=True)
class Config:
    """Configuration of a cache service."""

    buckets: Mapping[str, Bucket]
    directory: Path = Path("var/scs")
    host: str = "127.0.0.1"
    port: int = 5080
    processes: int = 1
    #: Total capacity in bytes; 0: the sum of the buckets' quotas.
    total: int = 0
    #: Bytes of the file system that stay free; None: 1/64 of it, at most 1 GiB.
    free: int | None = None
    fsync: bool = False
    #: Bytes per second that the scrub reads to find flipped bits; 0: no scrub.
    scrub: int = 16 << 20
    authenticator: Mapping[str, Any] = field(default_factory=dict, repr=False)
    limits: Limits = Limits()

    @property
    def capacity(self) -> int:
        """Total capacity in bytes."""
        return self.total or sum(bucket.quota for bucket in self.buckets.values())


def quantity(text: object) -> int:
    """Parse a Kubernetes quantity into bytes, rounded up: ``100Gi``, ``1.5G``, ``1e9``, ``128974848``."""
    if isinstance(text, bool) or not isinstance(text, int | str):
        raise ValueError(f"a quantity is a string like 100Gi, not {text!r}")
    match = _QUANTITY.fullmatch(str(text))
    if match is None:
        raise ValueError(f"not a quantity of bytes: {str(text)[:40]!r}; write 100Gi, 1.5G, 1e9 or 128974848")
    number, suffix = match[1].lstrip("+"), match[2] or ""
    whole, _, rest = number.partition(".")
    digits, exponent = int(whole + rest), -len(rest)
    if suffix in _BINARY:
        digits <<= _BINARY[suffix]
    else:
        exponent += _DECIMAL[suffix] if suffix in _DECIMAL else int(suffix[1:])
    value: int = digits * 10**exponent if exponent >= 0 else -(-digits // 10**-exponent)
    if value >= 1 << 63:
        raise ValueError(f"a quantity is below 2**63 bytes, not {text!r}")
    return value


def load(path: Path) -> Config:
    """Read a configuration file; an error names the key, and never repeats a secret."""
    try:
        return parse(json.loads(path.read_text()), base=path.parent)
    except (ValueError, OSError) as error:
        raise ValueError(f"{path}: {error}") from None


def parse(document: Any, *, base: Path = Path()) -> Config:
    """Build a configuration from its JSON; unknown keys are errors, so that no misspelt key is ignored."""
    document = _object(document, "the configuration")
    fields: dict[str, Any] = {}
    for key, value in document.items():
        if key not in _KEYS:
            raise ValueError(f"unknown key {key!r}; known keys are {', '.join(_KEYS)}")
        name, parser = _KEYS[key]
        try:
            fields[name] = parser(value)
        except ValueError as error:
            raise ValueError(f"{key}: {error}") from None
    if "buckets" not in fields:
        raise ValueError("Bucket is missing: it lists at least one bucket")
    if listen := fields.pop("listen", None):
        fields["host"], fields["port"] = listen
    config = Config(**fields)
    return replace(config, authenticator={**config.authenticator, "base": base})


def _object(value: Any, subject: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{subject} is a JSON object")
    return value


def _buckets(value: Any) -> dict[str, Bucket]:
    if not isinstance(value, list) or not value:
        raise ValueError("a list of at least one bucket is needed")
    buckets: dict[str, Bucket] = {}
    for number, entry in enumerate(value):
        try:
            bucket = _bucket(_object(entry, "a bucket"))
        except ValueError as error:
            raise ValueError(f"number {number}: {error}") from None
        if bucket.name in buckets:
            raise ValueError(f"number {number}: there are two buckets of the name {bucket.name!r}")
        buckets[bucket.name] = bucket
    return buckets


def _bucket(document: dict[str, Any]) -> Bucket:
    known_keys = ("Name", "Public", "BucketQuota", "AllowNamespaces", "Eviction")
    if unknown := sorted(set(document) - set(known_keys)):
        raise ValueError(f"unknown key {unknown[0]!r}; known keys are {', '.join(known_keys)}")
    name, policy = document.get("Name"), document.get("Eviction", "lru")
    if not isinstance(name, str) or not _BUCKET_NAME.fullmatch(name):
        raise ValueError("Name is needed: letters, digits, dots, dashes and underscores, at most 63")
    if "BucketQuota" not in document:
        raise ValueError("BucketQuota is needed, for example 100Gi")
    if policy not in policy_names():
        raise ValueError(f"Eviction is one of {', '.join(policy_names())}, not {policy!r}")
    return Bucket(
        name=name,
        quota=quantity(document["BucketQuota"]),
        public=_flag(document.get("Public", False)),
        namespaces=frozenset(_strings(document.get("AllowNamespaces", []))),
        policy=policy,
    )


def _strings(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(entry, str) for entry in value):
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
    known_keys: dict[str, tuple[str, Callable[[Any], Any]]] = {
        "Connections": ("connections", _count),
        "Writers": ("writers", _count),
        "IdleSeconds": ("idle", _seconds),
        "HeadSeconds": ("head_time", _seconds),
        "StallSeconds": ("stall", _seconds),
        "SlowestBody": ("slowest", quantity),
    }
    document = _object(value, "it")
    if unknown := sorted(set(document) - set(known_keys)):
        raise ValueError(f"unknown key {unknown[0]!r}; known keys are {', '.join(known_keys)}")
    return Limits(**{known_keys[key][0]: known_keys[key][1](entry) for key, entry in document.items()})


def _seconds(value: Any) -> float:
    if (
        isinstance(value, bool)
        or not isinstance(value, int | float)
        or not 0 < value <= timedelta(days=1).total_seconds()
    ):
        raise ValueError("seconds are needed, above 0 and at most a day")
    return float(value)


_KEYS: Mapping[str, tuple[str, Callable[[Any], Any]]] = {
    "Bucket": ("buckets", _buckets),
    "TotalQuota": ("total", quantity),
    "Directory": ("directory", _path),
    "Listen": ("listen", _listen),
    "Processes": ("processes", _count),
    "KeepFree": ("free", quantity),
    "Fsync": ("fsync", _flag),
    "ScrubRate": ("scrub", quantity),
    "Reviewer": ("authenticator", lambda value: _object(value, "it")),
    "Limits": ("limits", _limits),
}
