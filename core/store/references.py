"""References from rows to objects: what must be in the object store so that nothing acknowledged is lost."""

from sqlalchemy import Connection, text

#: Of simulations: those that are in the bin refer to their objects as well.
_KEPT_SIMULATION = "(s.deleted_at IS NULL OR s.binned=1)"
_OBJECTS = text(
    "SELECT g.object FROM segments g JOIN stages t ON t.id=g.stage_id JOIN simulations s ON s.id=t.simulation_id"
    f" WHERE {_KEPT_SIMULATION}"
    f" UNION SELECT a.object FROM artifacts a JOIN simulations s ON s.id=a.simulation_id WHERE {_KEPT_SIMULATION}"
    f" UNION SELECT l.object FROM logs l JOIN simulations s ON s.id=l.simulation_id WHERE {_KEPT_SIMULATION}"
    " UNION SELECT object FROM upload_parts"
    " UNION SELECT o.object FROM dataset_objects o JOIN dataset_versions v ON v.id=o.version_id WHERE v.state='ready'"
    " OR v.id IN (SELECT id FROM bin_items WHERE kind='datasets')"
)
_MODELS = text(
    "SELECT digest FROM models UNION SELECT digest FROM bin_items WHERE digest IS NOT NULL"
    " UNION SELECT digest FROM simulations WHERE ended_at IS NULL AND deleted_at IS NULL"
)


def objects(c: Connection) -> set[str]:
    """Return the keys of results, artifacts, logs, uploads, and the packs and manifests of ready datasets."""
    return set(c.scalars(_OBJECTS))


def models(c: Connection) -> set[str]:
    """Return the digests of models that are registered, in the bin, or in simulations that have not ended."""
    return set(c.scalars(_MODELS))
