"""Provenances of simulations that tests insert as rows, without a submission."""

from collections.abc import Mapping
from typing import Any

import msgspec

from core.domain.submissions.provenance import Provenance
from datasets.catalogue import datasets
from runtimes import catalogue

#: A plan of one task.
PLAN: Mapping[str, Any] = {
    "seed": 0,
    "dataset": "d",
    "total_scenarios": 1,
    "select": {"range": [0, 1]},
    "sweep": {},
    "repeat": 1,
    "params": {},
}


def provenance(**parts: Mapping[str, Any]) -> Provenance:
    """Return the provenance of a Python model on `noop`; ``parts``: members that differ, by part."""
    noop = datasets()["noop"]
    usual: dict[str, dict[str, Any]] = {
        "model": {"name": "m", "version": 1, "digest": "sha256:1", "format": "python"},
        "runtime": {"name": "python", "environment": "e"},
        "dataset": {"name": noop.name, "version": noop.version, "digest": noop.digest},
        "simulator": {"name": "noop", "environment": catalogue.simulators()["noop"].digest},
        "platform": {"windtunnel": "0", "machine": "x86_64", "sandbox": {}},
        "play": {
            "tasks": PLAN,
            "params": {},
            "record": "none",
            "deadline": 1.0,
            "dry_run": False,
            "isolation": "launch",
            "batch": 1,
        },
    }
    return msgspec.convert({name: usual[name] | dict(parts.get(name, {})) for name in usual}, Provenance)
