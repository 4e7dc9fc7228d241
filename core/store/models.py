"""Models in SQL: immutable, named and versioned rows that refer to content by digest."""

from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, or_, select

from core.store.tables import models, simulations


def add(c: Connection, values: Mapping[str, Any]) -> Row[Any]:
    """Insert the next version of a name, unless its newest version has the same content already."""
    newest = c.execute(
        select(models)
        .where(models.c.project == values["project"], models.c.name == values["name"])
        .order_by(models.c.version.desc())
        .limit(1)
    ).first()
    if newest is not None and newest.digest == values["digest"] and newest.format == values["format"]:
        return newest
    version = newest.version + 1 if newest is not None else 1
    return c.execute(insert(models).values(**values, version=version).returning(models)).one()


def find(c: Connection, project: str, ref: str) -> Row[Any] | None:
    """Return the model with this id, digest, ``name@version`` or name (its newest version)."""
    query = select(models).where(models.c.project == project)
    name, at, version = ref.rpartition("@")
    if ref.startswith("sha256:"):
        query = query.where(models.c.digest == ref)
    elif at and version.isdigit() and len(version) < 10:
        query = query.where(models.c.name == name, models.c.version == int(version))
    else:
        query = query.where(or_(models.c.id == ref, models.c.name == ref))
    return c.execute(query.order_by(models.c.version.desc(), models.c.id.desc()).limit(1)).first()


def page(
    c: Connection, project: str, *, name: str | None, format: str | None, after: str | None, limit: int
) -> Sequence[Row[Any]]:
    """Return up to ``limit`` models, newest first, older than ``after``."""
    query = select(models).where(models.c.project == project)
    if name is not None:
        query = query.where(models.c.name == name)
    if format is not None:
        query = query.where(models.c.format == format)
    if after is not None:
        query = query.where(models.c.id < after)
    return c.execute(query.order_by(models.c.id.desc()).limit(limit)).all()


def names(c: Connection, project: str) -> list[str]:
    """Return every name, for the nearest to a misspelt one."""
    return list(c.scalars(select(models.c.name).where(models.c.project == project).distinct().limit(1000)))


def busy(c: Connection, digest: str) -> str | None:
    """Return a simulation that has not ended and uses this content, if there is one."""
    query = select(simulations.c.id).where(simulations.c.digest == digest, simulations.c.ended_at.is_(None))
    return c.scalar(query.where(simulations.c.deleted_at.is_(None)).limit(1))


def delete(c: Connection, id: str) -> bool:
    """Delete a row; return whether its content is no longer referenced by any model or simulation."""
    row = c.execute(models.delete().where(models.c.id == id).returning(models.c.digest)).first()
    if row is None:
        return False
    others = c.scalar(select(func.count()).select_from(models).where(models.c.digest == row.digest))
    simulating = c.scalar(
        select(func.count())
        .select_from(simulations)
        .where(simulations.c.digest == row.digest, simulations.c.deleted_at.is_(None))
    )
    return not others and not simulating
