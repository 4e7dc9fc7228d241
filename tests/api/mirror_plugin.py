"""Plugin of pytest: runs tests of the API beside a mirror project, or alone, and records what they were answered.

`pytest -p tests.api.mirror_plugin --mirror=beside --recording=FILE tests/api`; two such runs are
compared by tests/contracts/test_mirrored_projects.py.
"""

import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from flask import Flask
from sqlalchemy import text, true

from api import identification
from core.domain.access.identities import ProjectMembership, ProjectState
from core.domain.access.roles import AccessRole
from core.domain.access.scopes import DEFAULT_PROJECT, LOCAL_CALLER, Caller, Scope
from core.services.comparisons.comparison_batches import ComparisonBatches
from core.services.datasets.dataset_registration import DatasetRegistration
from core.services.pipelines.pipeline_steps import PipelineSteps
from core.services.platform import Platform
from core.services.scheduling.leases import CachedLaunch
from core.services.simulations.deletion import Deletion
from core.services.simulations.finalization import Finalization
from core.services.simulations.simulations import Simulations
from core.services.uploads.models import Models
from core.services.uploads.uploads import Uploads
from core.settings import Settings
from core.store import accounts, models, simulations
from server import composition
from tests.api.leasing_worker import LeasingWorker
from tests.api.programs import Programs
from tests.mirror_requests import MirroredTest, MirrorMiddleware
from tests.mirror_words import MirrorWords

#: The mirror of the project of a platform without accounts.
MIRROR = "mirror"
MIRROR_CALLER = replace(LOCAL_CALLER, scope=Scope(MIRROR))
#: What tests do by id as a role of the platform would: the mirror's comes first.
JOBS: list[tuple[type, str]] = [
    (Finalization, "collect"),
    (DatasetRegistration, "register"),
    (Deletion, "remove"),
    (PipelineSteps, "advance"),
    (ComparisonBatches, "advance"),
    (Programs, "play"),
]
#: What tests do on behalf of the project, past the API: the mirror does it first.
CALLS: list[tuple[type, str]] = [
    *((Models, name) for name in ("add", "delete")),
    *((Uploads, name) for name in ("create", "append")),
    *((Simulations, name) for name in ("submit", "cancel", "delete")),
]
#: What is taken away with `--leak`: the condition of a project in a query. A comparison that is equal then is none.
LEAKS: Mapping[str, tuple[object, str, object]] = {
    "positions": (
        simulations,
        "_QUEUED_BETWEEN",
        text("SELECT count(*) FROM simulations WHERE state='queued' AND id>=:from AND id<:to AND :project<>''"),
    ),
    "models": (models, "within", lambda table, scope: true()),
}
_answers = pytest.StashKey[MirroredTest]()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--mirror", choices=["alone", "beside"], required=True)
    parser.addoption("--leak", choices=[*LEAKS])
    parser.addoption("--recording", type=Path, required=True)


class MirrorToken(identification.OneToken):
    """Who has the token of a platform without accounts, in the project of the mirror."""

    def __init__(self, token: str) -> None:
        super().__init__(token)
        self._everybody = replace(self._everybody, memberships={MIRROR: ProjectMembership(AccessRole.MAINTAINER)})

    def project_state(self, name: str) -> ProjectState | None:
        """There is one."""
        return ProjectState.OPEN if name == MIRROR else None


@pytest.fixture(autouse=True)
def mirrored(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[MirroredTest]:
    """The test and its mirror: every application that the test makes has both."""
    beside = request.config.getoption("--mirror") == "beside"
    test = MirroredTest(MirrorWords({DEFAULT_PROJECT: MIRROR}), beside)
    request.node.stash[_answers] = test
    create = composition.create_flask

    def create_both(platform: Platform, settings: Settings, confinement: dict[str, Any] | None = None) -> Flask:
        flask = create(platform, settings, confinement)
        mirror = flask.wsgi_app
        if beside and not settings.multi_user:
            platform.database.write(lambda c: accounts.add_project(c, MIRROR, "operator", platform.database.now(c)))
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(identification, "OneToken", MirrorToken)
                mirror = create(platform, settings, confinement).wsgi_app
        both = MirrorMiddleware(flask.wsgi_app, mirror, test, accounts=settings.multi_user)
        flask.wsgi_app = both  # type: ignore[method-assign, assignment]
        return flask

    monkeypatch.setattr(composition, "create_flask", create_both)
    if leak := request.config.getoption("--leak"):
        monkeypatch.setattr(*LEAKS[leak])
    if beside:
        _mirror_work(monkeypatch, test)
    yield test


def _mirror_work(monkeypatch: pytest.MonkeyPatch, test: MirroredTest) -> None:
    """Let jobs and workers do for the mirror what a test lets them do, before they do it for the test."""

    def first_for_mirror(run: Callable[..., Any]) -> Callable[..., Any]:
        def both(self: Any, id: str, *rest: Any, **options: Any) -> Any:
            if mirror_id := test.words.made(id):
                with suppress(Exception):  # the test's own run meets the same, where that is meant
                    run(self, mirror_id, *rest, **options)
            return run(self, id, *rest, **options)

        return both

    for owner, name in JOBS:
        monkeypatch.setattr(owner, name, first_for_mirror(getattr(owner, name)))

    def first_as_mirror(call: Callable[..., Any]) -> Callable[..., Any]:
        def both(self: Any, caller: Caller, *rest: Any, **options: Any) -> Any:
            if caller is not LOCAL_CALLER:
                return call(self, caller, *rest, **options)
            rest = tuple(tuple(value) if isinstance(value, Iterator) else value for value in rest)
            theirs = None
            with suppress(Exception):  # the test's own call meets the same, where that is meant
                theirs = call(self, MIRROR_CALLER, *map(test.words.value, rest), **options)
            own = call(self, caller, *rest, **options)
            test.words.learn(getattr(own, "id", None), getattr(theirs, "id", None))
            return own

        return both

    for owner, name in CALLS:
        monkeypatch.setattr(owner, name, first_as_mirror(getattr(owner, name)))
    launch, finish = LeasingWorker.launch, LeasingWorker.finish_unseen
    launches: dict[str, CachedLaunch] = {}

    def launch_both(self: LeasingWorker, id: str) -> CachedLaunch:
        if mirror_id := test.words.made(id):
            with suppress(StopIteration):  # it has ended, where the test stops only its own from ending
                launches[id] = launch(self, mirror_id)
        return launch(self, id)

    def finish_both(self: LeasingWorker, own: CachedLaunch, **options: Any) -> None:
        if own.simulation in launches:
            finish(self, launches.pop(own.simulation), **options)
        finish(self, own, **options)

    monkeypatch.setattr(LeasingWorker, "launch", launch_both)
    monkeypatch.setattr(LeasingWorker, "finish_unseen", finish_both)


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    """Record the answers of a test when it has been called."""
    outcome = yield
    report: pytest.TestReport = outcome.get_result()  # type: ignore[attr-defined]
    if report.when != "call" and not (report.when == "setup" and report.failed):
        return
    test = item.stash.get(_answers, None)
    record = {
        "test": item.nodeid,
        "outcome": report.outcome,
        "failure": report.longreprtext[-3000:],
        "folder": str(item.funcargs.get("tmp_path", "")) if isinstance(item, pytest.Function) else "",
        "answers": [answer.document() for answer in test.answers] if test else [],
        "alike": test.alike if test else 0,
        "unlike": test.unlike if test else [],
    }
    with item.config.getoption("--recording").open("ab", buffering=0) as file:
        file.write(json.dumps(record).encode() + b"\n")
