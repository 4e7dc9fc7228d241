"""Owned rows in SQL, of any table: what a project has, and the end of all that is kept of it."""

from collections.abc import Collection

from sqlalchemy import Connection, delete, select, update

from core.domain.access.identities import ProjectState
from core.domain.access.scopes import Scope
from core.store import shares
from core.store.owned import within
from core.store.tables import (
    bin_items,
    comparisons,
    dataset_versions,
    idempotency,
    members,
    model_imports,
    models,
    pipelines,
    projects,
    quota_limits,
    quota_use,
    resource_limits,
    retention,
    simulations,
    tokens,
    uploads,
    webhook_deliveries,
    webhooks,
)

_LISTED_TABLES = (simulations, comparisons, pipelines, models, dataset_versions, uploads, bin_items)
_TABLES = {table.name: table for table in _LISTED_TABLES}


def ids(c: Connection, scope: Scope, table: str, after: str, limit: int, states: Collection[str] = ()) -> list[str]:
    """Return ids of rows of a scope, in their order; ``states``: of those in one of them. Deleted ones are left out."""
    owned = _TABLES[table]
    query = select(owned.c.id).where(within(owned, scope), owned.c.id > after)
    if states:
        query = query.where(owned.c.state.in_(sorted(states)))
    if owned is simulations:
        query = query.where(simulations.c.deleted_at.is_(None))
    if owned is dataset_versions:
        query = query.where(dataset_versions.c.state != "deleted")
    return [str(id) for id in c.scalars(query.order_by(owned.c.id).limit(limit))]


def forget_project(c: Connection, name: str) -> None:
    """Delete what is kept of a project beside its content; its name stays, so that it is never used again."""
    c.execute(delete(model_imports).where(model_imports.c.project == name))
    c.execute(delete(webhook_deliveries).where(webhook_deliveries.c.project == name))
    c.execute(delete(webhooks).where(webhooks.c.project == name))
    c.execute(delete(idempotency).where(idempotency.c.project == name))
    c.execute(delete(members).where(members.c.member_of == name))
    c.execute(delete(tokens).where(tokens.c.bound_to == name))
    c.execute(delete(retention).where(retention.c.project == name))
    for limits in (quota_limits, resource_limits):
        c.execute(delete(limits).where(limits.c.limited == name))
    shares.forget_project(c, name)
    c.execute(delete(quota_use).where(quota_use.c.charged == name))
    c.execute(update(projects).where(projects.c.name == name).values(state=ProjectState.REMOVED.value))
