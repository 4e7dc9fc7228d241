"""Retention in SQL: what projects have decided, and the facts about their things that rules look at."""

from collections.abc import Collection, Sequence
from typing import cast

import msgspec
from sqlalchemy import ColumnElement, Connection, delete, exists, insert, or_, select

from common.errors import UnreadableRow
from core.domain.access.scopes import Scope
from core.domain.access.shared_kinds import SharedKind
from core.domain.comparisons.comparison_states import ComparisonState
from core.domain.pipelines.pipeline_states import PipelineState
from core.domain.retention.retention_rules import KEEP, BinnedKind, Protection, RetainedThing, Retention
from core.domain.scheduling.states import FINAL, State
from core.domain.submissions.stored_documents import decode_document
from core.store.owned import within
from core.store.rows import StoredRow, columns_of, read_rows
from core.store.tables import (
    comparison_models,
    comparison_simulations,
    comparisons,
    dataset_tags,
    dataset_versions,
    model_tags,
    models,
    pipeline_steps,
    pipelines,
    retention,
    run_logs,
    shares,
    simulations,
)


class _SimulationFacts(StoredRow, frozen=True, gc=False):
    """A simulation, as rules see it; `shared` and what follows: whether one of these protects it."""

    id: str
    model: str
    labels: str
    state: str
    stored_bytes: int
    created_at: float
    ended_at: float | None
    shared: bool
    compared: bool
    needed: bool
    unlogged: bool


class _VersionFacts(StoredRow, frozen=True, gc=False):
    """A version of a model or a dataset, as rules see it; `last_run`: when the newest simulation with it began."""

    id: str
    name: str
    size: int
    created_at: float
    used_at: float | None
    last_run: float | None
    shared: bool
    needed: bool
    tagged: bool


def find(c: Connection, scope: Scope) -> Retention:
    """Return what a project has decided."""
    text = c.scalar(select(retention.c.document).where(within(retention, scope)))
    return Retention() if text is None else decode_document(str(text), Retention)


def put(c: Connection, scope: Scope, decided: Retention) -> None:
    """Replace what a project has decided."""
    c.execute(delete(retention).where(within(retention, scope)))
    c.execute(insert(retention).values(project=scope.owner, document=msgspec.json.encode(decided).decode()))


def ruled_projects(c: Connection) -> list[str]:
    """Return the projects that have decided something."""
    return list(c.scalars(select(retention.c.project).order_by(retention.c.project)))


def things(
    c: Connection, scope: Scope, kind: BinnedKind, *, after: str | None = None, limit: int = 1, of: Collection[str] = ()
) -> list[RetainedThing]:
    """Return things of a kind, newest first, older than ``after``; ``of``: those with these ids."""
    table, read = _READ[kind]
    conditions = [within(table, scope)]
    if after is not None:
        conditions.append(table.c.id < after)
    if of:
        conditions.append(table.c.id.in_(list(of)))
    return read(c, conditions, limit)


def _simulations(c: Connection, conditions: Sequence[ColumnElement[bool]], limit: int) -> list[RetainedThing]:
    s = simulations.c
    of_run = (pipeline_steps.c.run_id == s.id, pipelines.c.id == pipeline_steps.c.pipeline_id)
    protections = _columns(
        shared=exists().where(shares.c.owner == s.project, shares.c.name == s.id, _of(SharedKind.SIMULATIONS)),
        compared=exists().where(comparison_simulations.c.simulation_id == s.id),
        needed=exists().where(*of_run, pipelines.c.state.in_(_PIPELINES)),
        unlogged=exists().where(run_logs.c.simulation_id == s.id, run_logs.c.state == "waiting"),
    )
    alive = (s.deleted_at.is_(None), s.dry_run == 0)
    query = select(*columns_of(simulations, _SimulationFacts, **protections)).where(*conditions, *alive)
    rows = c.execute(query.order_by(s.id.desc()).limit(limit))
    return [_of_simulation(row) for row in read_rows(rows, _SimulationFacts)]


def _of_simulation(row: _SimulationFacts) -> RetainedThing:
    state, labels, readable = State(row.state), dict[str, str](), True
    try:
        labels = decode_document(row.labels, dict[str, str])
    except UnreadableRow:  # one such row must not keep the rules from all others
        readable = False
    protections = {
        Protection.UNREADABLE: not readable,
        Protection.UNENDED: state not in FINAL,
        Protection.KEPT: KEEP in labels,
        Protection.SHARED: row.shared,
        Protection.COMPARED: row.compared,
        Protection.NEEDED: row.needed,
        Protection.UNLOGGED: row.unlogged,
    }
    since = row.created_at if row.ended_at is None else row.ended_at
    return RetainedThing(
        id=row.id,
        kind=BinnedKind.SIMULATIONS,
        name=row.model,
        bytes=row.stored_bytes,
        since=since,
        used=since,
        labels=labels,
        state=state,
        protections=frozenset(each for each, holds in protections.items() if holds),
    )


def _models(c: Connection, conditions: Sequence[ColumnElement[bool]], limit: int) -> list[RetainedThing]:
    m, s = models.c, simulations.c
    runs = (s.project == m.project, s.digest == m.digest, s.deleted_at.is_(None))
    of_name = (shares.c.owner == m.project, shares.c.name == m.name, _of(SharedKind.MODELS))
    compared = (comparison_models.c.digest == m.digest, comparisons.c.id == comparison_models.c.comparison_id)
    unended = exists().where(*compared, comparisons.c.project == m.project, comparisons.c.state.in_(_COMPARISONS))
    last_run = select(s.created_at).where(*runs, s.dry_run == 0).order_by(s.id.desc()).limit(1).scalar_subquery()
    facts = _columns(
        shared=exists().where(*of_name, or_(shares.c.version_id == "", shares.c.version_id == m.id)),
        needed=or_(exists().where(*runs, s.ended_at.is_(None)), unended),
        tagged=exists().where(model_tags.c.version_id == m.id),
    )
    query = select(*columns_of(models, _VersionFacts, last_run=last_run, **facts)).where(*conditions)
    rows = c.execute(query.order_by(m.id.desc()).limit(limit))
    return [_of_version(row, BinnedKind.MODELS) for row in read_rows(rows, _VersionFacts)]


def _of_version(row: _VersionFacts, kind: BinnedKind) -> RetainedThing:
    protections = {Protection.SHARED: row.shared, Protection.NEEDED: row.needed, Protection.TAGGED: row.tagged}
    return RetainedThing(
        id=row.id,
        kind=kind,
        name=row.name,
        bytes=row.size,
        since=row.created_at,
        used=max(row.created_at, row.used_at or 0.0, row.last_run or 0.0),
        protections=frozenset(each for each, holds in protections.items() if holds),
    )


def _datasets(c: Connection, conditions: Sequence[ColumnElement[bool]], limit: int) -> list[RetainedThing]:
    v, s = dataset_versions.c, simulations.c
    runs = (s.project == v.project, s.dataset_digest == v.digest, s.deleted_at.is_(None))
    of_name = (shares.c.owner == v.project, shares.c.name == v.name, _of(SharedKind.DATASETS))
    compared = (comparisons.c.dataset_digest == v.digest, comparisons.c.project == v.project)
    last_run = select(s.created_at).where(*runs, s.dry_run == 0).order_by(s.id.desc()).limit(1).scalar_subquery()
    unended = exists().where(*compared, comparisons.c.state.in_(_COMPARISONS))
    facts = _columns(
        shared=exists().where(*of_name, or_(shares.c.version_id == "", shares.c.version_id == v.id)),
        needed=or_(exists().where(*runs, s.ended_at.is_(None)), unended),
        tagged=exists().where(dataset_tags.c.version_id == v.id),
    )
    others = facts | {"last_run": last_run, "size": cast("ColumnElement[object]", v.stored_bytes)}
    query = select(*columns_of(dataset_versions, _VersionFacts, **others)).where(*conditions, v.state == "ready")
    rows = c.execute(query.order_by(v.id.desc()).limit(limit))
    return [_of_version(row, BinnedKind.DATASETS) for row in read_rows(rows, _VersionFacts)]


def _columns(**conditions: ColumnElement[bool]) -> dict[str, ColumnElement[object]]:
    return {name: cast("ColumnElement[object]", condition) for name, condition in conditions.items()}


def _of(kind: SharedKind) -> ColumnElement[bool]:
    return shares.c.kind == kind.value


_PIPELINES = [PipelineState.RUNNING.value, PipelineState.CANCELLING.value]
_COMPARISONS = [ComparisonState.RUNNING.value, ComparisonState.CANCELLING.value]
_READ = {
    BinnedKind.SIMULATIONS: (simulations, _simulations),
    BinnedKind.MODELS: (models, _models),
    BinnedKind.DATASETS: (dataset_versions, _datasets),
}
