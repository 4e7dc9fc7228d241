"""Launches in SQL: who may lease for which attempt at which simulation."""

import json
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, func, insert, select, update

from core.store.tables import launches, simulations

#: Results there were before a launch that nobody took.
UNTAKEN = -1


def add(c: Connection, values: Mapping[str, Any]) -> None:
    """Insert a launch; its row commits before the executor is asked."""
    c.execute(insert(launches).values(**values))


def known(c: Connection, ids: Collection[str]) -> set[str]:
    """Return which of these launches have been written down, whatever became of them."""
    return set(c.scalars(select(launches.c.id).where(launches.c.id.in_(ids))))


def find(c: Connection, id: str) -> Row[Any] | None:
    """Return a launch with the state of its simulation."""
    query = select(launches, simulations.c.state.label("simulation_state")).join(
        simulations, simulations.c.id == launches.c.simulation_id
    )
    return c.execute(query.where(launches.c.id == id)).first()


def live(c: Connection) -> Sequence[Row[Any]]:
    """Return every launch that is not over, with the state of its simulation."""
    query = select(launches, simulations.c.state.label("simulation_state")).join(
        simulations, simulations.c.id == launches.c.simulation_id
    )
    return c.execute(query.where(launches.c.state == "live")).all()


def end(c: Connection, id: str) -> bool:
    """A launch is over: its token is dead. Tell whether it was not before."""
    ending = update(launches).where(launches.c.id == id, launches.c.state == "live").values(state="over")
    return c.execute(ending.returning(launches.c.id)).first() is not None


def widen(c: Connection, id: str, workers: int) -> None:
    """Note another width of a launch."""
    row = c.execute(select(launches.c.resources).where(launches.c.id == id)).first()
    if row is not None:
        resources = json.dumps(json.loads(row.resources) | {"cpu": workers})
        c.execute(update(launches).where(launches.c.id == id).values(resources=resources))


def at_work(c: Connection, simulation: str) -> bool:
    """Tell whether a simulation has a launch that is not over."""
    query = select(launches.c.id).where(launches.c.simulation_id == simulation, launches.c.state == "live")
    return c.execute(query).first() is not None


def living(c: Connection, executor: str) -> set[str]:
    """Return the launches of one executor that are not over."""
    query = select(launches.c.id).where(launches.c.state == "live", launches.c.executor == executor)
    return set(c.scalars(query))


def tries(c: Connection, simulation: str) -> int:
    """Count the launches of a simulation so far."""
    query = select(func.count()).select_from(launches).where(launches.c.simulation_id == simulation)
    return int(c.scalar(query) or 0)


def discount(c: Connection, id: str) -> None:
    """Note that a launch was never taken: nothing could have come of it."""
    row = c.execute(select(launches.c.resources).where(launches.c.id == id)).first()
    if row is not None:
        resources = json.dumps(json.loads(row.resources) | {"done": UNTAKEN})
        c.execute(update(launches).where(launches.c.id == id).values(resources=resources))


def barren(c: Connection, simulation: str, done: int) -> int:
    """Count the newest launches in a row that began with as many results as there are now: nothing came of them."""
    query = select(launches.c.resources).where(launches.c.simulation_id == simulation)
    told = (json.loads(resources)["done"] for resources in c.scalars(query.order_by(launches.c.created_at.desc())))
    history = [before for before in told if before != UNTAKEN]
    return next((at for at, before in enumerate(history) if before != done), len(history))
