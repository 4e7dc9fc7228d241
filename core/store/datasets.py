"""Registered datasets in SQL: versions and their states, tags, and which objects each version needs.

A version is registered under a claim. What its job writes down is conditional on that claim, so that a job which was
believed dead and is not can neither finish nor refer to anything any more.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, Row, and_, delete, exists, func, insert, or_, select, text, update

from core.store.tables import dataset_objects as objects
from core.store.tables import dataset_prefetches as prefetches
from core.store.tables import dataset_tags as tags
from core.store.tables import dataset_versions as versions
from core.store.tables import simulations

_CLAIM = text(
    "UPDATE dataset_versions SET claim=:who, claim_until=:until,"
    " attempts=attempts+(CASE WHEN claim=:who THEN 0 ELSE 1 END) WHERE id=:i AND state='registering'"
    " AND (claim IS NULL OR claim_until<:now OR claim=:who) RETURNING attempts"
)
_CLAIM_PREFETCH = text(
    "UPDATE dataset_prefetches SET claim=:who, claim_until=:until WHERE version_id=:i AND state='fetching'"
    " AND (claim IS NULL OR claim_until<:now OR claim=:who) RETURNING version_id"
)


def add(c: Connection, values: Mapping[str, Any]) -> Row[Any]:
    """Insert a version that is to be registered, and return it."""
    return c.execute(insert(versions).values(**values, state="registering").returning(versions)).one()


# -- look


def by_id(c: Connection, id: str) -> Row[Any] | None:
    """Return a version that was not deleted, whatever its state."""
    return c.execute(select(versions).where(versions.c.id == id, versions.c.state != "deleted")).first()


def find(c: Connection, project: str, ref: str) -> Row[Any] | None:
    """Return the version that an id, a digest, a name (latest), ``name@version`` or ``name@tag`` refers to."""
    query = select(versions).where(versions.c.project == project)
    name, at, which = ref.partition("@")
    if not at and (row := by_id(c, ref)) is not None:
        return row
    query = query.where(versions.c.state == "ready")
    if ref.startswith("sha256:"):
        query = query.where(versions.c.digest == ref)
    else:
        query = query.where(versions.c.name == name)
        if which.isdecimal() and len(which) < 10:
            query = query.where(versions.c.version == int(which))
        elif at and which != "latest":
            tagged = select(tags.c.version_id).where(
                tags.c.project == project, tags.c.name == name, tags.c.tag == which
            )
            query = query.where(versions.c.id.in_(tagged))
    return c.execute(query.order_by(versions.c.version.desc(), versions.c.id.desc()).limit(1)).first()


def names(c: Connection, project: str) -> list[str]:
    """Return every name that has a version, for the nearest to a misspelt one."""
    alive = versions.c.state.in_(["ready", "registering"])
    query = select(versions.c.name).where(versions.c.project == project, alive)
    return list(c.scalars(query.distinct().order_by(versions.c.name).limit(1000)))


def latest(c: Connection, project: str, after: str | None, limit: int) -> Sequence[Row[Any]]:
    """Return the newest ready version of each name, by name."""
    other = versions.alias()
    newest = (
        select(func.max(other.c.version))
        .where(other.c.project == project, other.c.name == versions.c.name, other.c.state == "ready")
        .scalar_subquery()
    )
    query = select(versions).where(
        versions.c.project == project, versions.c.state == "ready", versions.c.version == newest
    )
    if after is not None:
        query = query.where(versions.c.name > after)
    return c.execute(query.order_by(versions.c.name).limit(limit)).all()


def page(c: Connection, project: str, name: str, after: str | None, limit: int) -> Sequence[Row[Any]]:
    """Return versions of a name, newest first, those included that are on their way or failed."""
    query = select(versions).where(
        versions.c.project == project, versions.c.name == name, versions.c.state.in_(["registering", "ready", "failed"])
    )
    if after is not None:
        query = query.where(versions.c.id < after)
    return c.execute(query.order_by(versions.c.id.desc()).limit(limit)).all()


def ready(c: Connection, project: str, name: str | None = None) -> Sequence[Row[Any]]:
    """Return ready versions, newest first: of a name, or of the project."""
    query = select(versions).where(versions.c.project == project, versions.c.state == "ready")
    if name is not None:
        query = query.where(versions.c.name == name)
    return c.execute(query.order_by(versions.c.id.desc())).all()


def before(c: Connection, row: Row[Any]) -> Row[Any] | None:
    """Return the newest ready version that was made from the same source."""
    query = select(versions).where(
        versions.c.project == row.project,
        versions.c.name == row.name,
        versions.c.state == "ready",
        versions.c.source == row.source,
    )
    return c.execute(query.order_by(versions.c.version.desc()).limit(1)).first()


def registering(c: Connection, now: float) -> list[str]:
    """Return versions that are to be registered and that nobody is at."""
    query = select(versions.c.id).where(versions.c.state == "registering", versions.c.claim_until < now)
    return list(c.scalars(query.order_by(versions.c.id).limit(100)))


# -- register


def claim(c: Connection, id: str, who: str, seconds: float, now: float) -> int | None:
    """Take a version for a while; return at which attempt this is, None if it is somebody else's or done."""
    attempt = c.scalar(_CLAIM, {"i": id, "who": who, "until": now + seconds, "now": now})
    return None if attempt is None else int(attempt)


def _held(id: str, who: str) -> Any:
    return and_(versions.c.id == id, versions.c.claim == who, versions.c.state == "registering")


def holds(c: Connection, id: str, who: str) -> bool:
    """Tell whether a version is still ours, and keep it so until the transaction ends."""
    return c.execute(select(versions.c.id).where(_held(id, who)).with_for_update()).first() is not None


def tell(c: Connection, id: str, who: str, progress: Mapping[str, Any]) -> bool:
    """Write how far a registration has come; False if it is not ours any more."""
    written = update(versions).where(_held(id, who)).values(progress=json.dumps(progress)).returning(versions.c.id)
    return c.execute(written).first() is not None


def refer(c: Connection, id: str, who: str, object: str) -> bool:
    """Note that a version needs an object, before that is written; False if the version is not ours any more."""
    if not holds(c, id, who):
        return False
    c.execute(insert(objects).values(version_id=id, object=object))
    return True


def borrow(c: Connection, id: str, who: str, lender: str, wanted: Sequence[str]) -> bool:
    """Note that a version needs objects of another; False if either is not what it was."""
    lending = select(versions.c.id).where(versions.c.id == lender, versions.c.state == "ready")
    if not holds(c, id, who) or c.execute(lending.with_for_update(read=True)).first() is None:
        return False
    known = set(c.scalars(select(objects.c.object).where(objects.c.version_id == id)))
    for object in set(wanted) - known:
        c.execute(insert(objects).values(version_id=id, object=object))
    return True


def finish(
    c: Connection, id: str, who: str, values: Mapping[str, Any], now: float, *, located: bool = False
) -> Row[Any] | None:
    """Make a version ready under the next number, or find that its content is there; None if it is not ours.

    ``located``: it was just seen where it lies in somebody's bucket. A version of the same content that lies in one,
    too, is from now on found there: its objects may have moved, or been written again under other ETags.
    """
    if not holds(c, id, who):
        return None
    mine = c.execute(select(versions).where(versions.c.id == id)).one()
    # Every version of the name, in one order: two that end at once come one after the other.
    of_name = and_(versions.c.project == mine.project, versions.c.name == mine.name)
    known = c.execute(select(versions).where(of_name).order_by(versions.c.id).with_for_update()).all()
    same = next((row for row in known if row.state == "ready" and row.digest == values["digest"]), None)
    changes: dict[str, Any] = {"claim": None, "claim_until": 0.0, "ended_at": now, "progress": None}
    if same is not None:
        changes |= {"state": "same", "same_as": same.id}
        if located and json.loads(same.source).keys() & {"s3", "manifest"}:
            place = {"manifest": values["manifest"], "source": mine.source}
            c.execute(update(versions).where(versions.c.id == same.id).values(**place))
            _swap_objects(c, id, same.id)
    else:
        newest = max((row.version for row in known if row.version is not None), default=0)
        changes |= {"state": "ready", "version": newest + 1, **values}
    c.execute(update(versions).where(versions.c.id == id).values(**changes))
    held = same.id if same is not None else id
    for tag in json.loads(mine.tags):
        set_tag(c, mine.project, mine.name, tag, held)
    return c.execute(select(versions).where(versions.c.id == held)).one()


def _swap_objects(c: Connection, one: str, other: str) -> None:
    """Give each of two versions what the other refers to."""
    theirs = {id: objects_of(c, id) for id in (one, other)}
    c.execute(delete(objects).where(objects.c.version_id.in_(theirs)))
    for id, held in ((one, theirs[other]), (other, theirs[one])):
        if held:
            c.execute(insert(objects), [{"version_id": id, "object": object} for object in held])


def forgive(c: Connection, id: str, who: str) -> None:
    """Do not count an attempt that nobody here is to blame for."""
    c.execute(update(versions).where(_held(id, who)).values(attempts=versions.c.attempts - 1))


def fail(c: Connection, id: str, who: str, reason: str, now: float) -> bool:
    """End a registration without a version; False if it is not ours any more."""
    changes = {"state": "failed", "reason": reason[:2000], "claim": None, "claim_until": 0.0, "ended_at": now}
    return (
        c.execute(update(versions).where(_held(id, who)).values(**changes).returning(versions.c.id)).first() is not None
    )


# -- tags


def set_tag(c: Connection, project: str, name: str, tag: str, version: str) -> None:
    """Have a tag mean a version from now on."""
    where = and_(tags.c.project == project, tags.c.name == name, tags.c.tag == tag)
    if c.execute(update(tags).where(where).values(version_id=version).returning(tags.c.tag)).first() is None:
        c.execute(insert(tags).values(project=project, name=name, tag=tag, version_id=version))


def drop_tag(c: Connection, project: str, name: str, tag: str) -> bool:
    """Forget a tag; False if there is none."""
    where = and_(tags.c.project == project, tags.c.name == name, tags.c.tag == tag)
    return c.execute(delete(tags).where(where).returning(tags.c.tag)).first() is not None


def tags_of(c: Connection, ids: Sequence[str]) -> dict[str, list[str]]:
    """Return the tags of versions."""
    found: dict[str, list[str]] = {}
    query = select(tags.c.version_id, tags.c.tag).where(tags.c.version_id.in_(ids)).order_by(tags.c.tag)
    for id, tag in c.execute(query):
        found.setdefault(id, []).append(tag)
    return found


# -- the end


def lock_ready(c: Connection, id: str) -> bool:
    """Tell whether a version is ready, and keep it so until the transaction ends."""
    query = select(versions.c.id).where(versions.c.id == id, versions.c.state == "ready")
    return c.execute(query.with_for_update(read=True)).first() is not None


def lock_version(c: Connection, project: str, name: str, version: int) -> bool:
    """Tell whether a version of a name is ready, and keep it so until the transaction ends."""
    query = select(versions.c.id).where(
        versions.c.project == project, versions.c.name == name, versions.c.version == version
    )
    return c.execute(query.where(versions.c.state == "ready").with_for_update(read=True)).first() is not None


def bury(c: Connection, id: str, now: float) -> Row[Any] | None:
    """Delete a version softly: from now on nobody finds it, and nothing can come to need it."""
    alive = and_(versions.c.id == id, versions.c.state != "deleted")
    changes = {"state": "deleted", "ended_at": now, "claim": None, "claim_until": 0.0}
    row = c.execute(update(versions).where(alive).values(**changes).returning(versions)).first()
    c.execute(delete(tags).where(tags.c.version_id == id))
    c.execute(delete(prefetches).where(prefetches.c.version_id == id))
    return row


def user_of(c: Connection, name: str, digest: str) -> str | None:
    """Return a simulation that has not ended and plays this version, if there is one."""
    query = select(simulations.c.id, simulations.c.provenance).where(
        simulations.c.dataset == name, simulations.c.ended_at.is_(None), simulations.c.deleted_at.is_(None)
    )
    for id, provenance in c.execute(query):
        if json.loads(provenance)["dataset"]["digest"] == digest:
            return str(id)
    return None


def in_use(c: Connection) -> list[dict[str, Any]]:
    """Return what simulations play that have not ended, as their provenance has it."""
    query = select(simulations.c.provenance).where(simulations.c.ended_at.is_(None), simulations.c.deleted_at.is_(None))
    return [json.loads(provenance)["dataset"] for provenance in c.scalars(query)]


def of_name(c: Connection, project: str, name: str) -> list[str]:
    """Return every version of a name that is not deleted."""
    query = select(versions.c.id).where(
        versions.c.project == project, versions.c.name == name, versions.c.state != "deleted"
    )
    return list(c.scalars(query.order_by(versions.c.id)))


def purgeable(c: Connection, before: float) -> list[str]:
    """Return versions that ended without being there before a moment, and still refer to objects."""
    over = and_(versions.c.state.in_(["deleted", "failed", "same"]), versions.c.ended_at <= before)
    held = exists().where(objects.c.version_id == versions.c.id)
    return list(c.scalars(select(versions.c.id).where(over, held).order_by(versions.c.id).limit(100)))


def objects_of(c: Connection, id: str) -> list[str]:
    """Return the objects that a version refers to."""
    return list(c.scalars(select(objects.c.object).where(objects.c.version_id == id).order_by(objects.c.object)))


def needed(c: Connection, object: str, but: str | None = None) -> bool:
    """Tell whether a version (other than one) refers to an object."""
    query = select(objects.c.version_id).where(objects.c.object == object)
    if but is not None:
        query = query.where(objects.c.version_id != but)
    return c.execute(query.limit(1)).first() is not None


def forget(c: Connection, id: str, object: str) -> None:
    """Remove a reference, once its object is gone or somebody else's."""
    c.execute(delete(objects).where(objects.c.version_id == id, objects.c.object == object))


def at_work(c: Connection, id: str) -> bool:
    """Tell whether a version is being registered."""
    query = select(versions.c.id).where(versions.c.id == id, versions.c.state == "registering")
    return c.execute(query).first() is not None


# -- prefetches


def ask_prefetch(c: Connection, id: str, now: float) -> None:
    """Ask for a version to be brought near; one that is under way goes on."""
    fresh = {"state": "fetching", "progress": "{}", "claim": None, "claim_until": 0.0, "asked_at": now}
    where = prefetches.c.version_id == id
    if c.execute(select(prefetches.c.version_id).where(where)).first() is None:
        c.execute(insert(prefetches).values(version_id=id, **fresh))
    else:
        c.execute(update(prefetches).where(where, prefetches.c.state != "fetching").values(**fresh))


def prefetch(c: Connection, id: str) -> Row[Any] | None:
    """Return how far a prefetch has come."""
    return c.execute(select(prefetches).where(prefetches.c.version_id == id)).first()


def claim_prefetch(c: Connection, id: str, who: str, seconds: float, now: float) -> bool:
    """Take a prefetch for a while."""
    return c.scalar(_CLAIM_PREFETCH, {"i": id, "who": who, "until": now + seconds, "now": now}) is not None


def at_prefetch(c: Connection, id: str) -> bool:
    """Tell whether a version is being brought near."""
    query = select(prefetches.c.version_id).where(prefetches.c.version_id == id, prefetches.c.state == "fetching")
    return c.execute(query).first() is not None


def tell_prefetch(c: Connection, id: str, state: str, progress: Mapping[str, Any]) -> None:
    """Write how far a prefetch has come."""
    values: dict[str, Any] = {"state": state, "progress": json.dumps(progress)}
    c.execute(update(prefetches).where(prefetches.c.version_id == id).values(**values))


def fetching(c: Connection, now: float) -> list[str]:
    """Return prefetches that were asked for and that nobody is at."""
    query = select(prefetches.c.version_id).where(
        prefetches.c.state == "fetching", or_(prefetches.c.claim.is_(None), prefetches.c.claim_until < now)
    )
    return list(c.scalars(query.limit(100)))
