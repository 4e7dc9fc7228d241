"""RQ's internals that this platform uses are those of the pinned version: an upgrade that changes them fails here."""

import inspect
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
from rq import Queue, SimpleWorker, Worker
from rq.job import Job
from rq.worker.base import BaseWorker

from core.notifications import rq_overrides
from core.notifications.rq_overrides import BoundJob, BoundQueue, ForkingWorker, KindWorker, ResidentWorker

#: Each class of this platform, the class of RQ below it, and the members of ours that RQ does not have.
CLASSES: tuple[tuple[type[Any], type[Any], frozenset[str]], ...] = (
    (BoundJob, Job, frozenset({"kind", "functions"})),
    (BoundQueue, Queue, frozenset({"push"})),
    (KindWorker, BaseWorker, frozenset({"_next_heartbeat"})),
    (ResidentWorker, SimpleWorker, frozenset({"_heartbeat_of"})),
    (ForkingWorker, Worker, frozenset()),
)
#: Attributes without a leading underscore that RQ does not document.
UNDOCUMENTED = {"executions", "intermediate_queue_key", "execution_registry", "dependents_key", "dependencies_key"}


def test_rq_is_pinned_to_the_version_that_is_installed() -> None:
    [pinned] = re.findall(r'"rq==([\d.]+)"', Path("pyproject.toml").read_text())
    assert version("rq") == pinned


@pytest.mark.parametrize(("ours", "theirs", "own"), CLASSES, ids=lambda value: getattr(value, "__name__", ""))
def test_what_is_overridden_exists_in_rq_and_takes_the_same_arguments(
    ours: type[Any], theirs: type[Any], own: frozenset[str]
) -> None:
    for name, member in vars(ours).items():
        if name.startswith("__") or name in own:
            assert name.startswith("__") or not hasattr(theirs, name), f"{name} is RQ's now"
            continue
        base = inspect.getattr_static(theirs, name)
        if callable(member):
            taken = list(inspect.signature(member).parameters.values())
            if not any(parameter.kind is parameter.VAR_KEYWORD for parameter in taken):
                assert [parameter.name for parameter in taken] == list(inspect.signature(base).parameters), name


def test_every_private_attribute_of_rq_that_is_used_is_there() -> None:
    source = inspect.getsource(rq_overrides)
    used = set(re.findall(r"\b(?:self|job|queue)\.(_[a-z]\w+)", source)) | UNDOCUMENTED
    rq = "".join(inspect.getsource(inspect.getmodule(theirs) or theirs) for _, theirs, _ in CLASSES)
    own = {name for _, _, names in CLASSES for name in names} | {"_parent"}
    assert {name for name in used - own if not re.search(rf"\b{name}\b", rq)} == set()
