"""Comparisons of models in SQL: their models, the simulations of their batches, and which need a job."""

from collections.abc import Mapping, Sequence

from sqlalchemy import Connection, delete, insert, select, update

from common.errors import Conflict, UnknownComparison
from core.domain.access.scopes import PLATFORM, Scope
from core.domain.comparisons.comparison_states import ComparisonState
from core.domain.scheduling.states import FINAL
from core.domain.submissions.stored_documents import decode_document
from core.store.advanced_rows import AdvancedRow, AdvancedRows
from core.store.owned import within
from core.store.rows import StoredRow, columns_of, read_rows
from core.store.tables import comparison_models as models
from core.store.tables import comparison_simulations as played
from core.store.tables import comparisons, events, simulations


class ComparisonRow(AdvancedRow, frozen=True, gc=False):
    """A comparison. ``spec`` is a `ComparisonSpec`; ``groups``: number of scenarios by grouping and group, if counted.

    ``reference``: ordinal of the model that the others are compared with.
    """

    spec: str
    dataset: str
    dataset_version: str
    dataset_digest: str
    reference: int
    scenarios: int
    groups: str | None

    @property
    def group_sizes(self) -> dict[str, dict[str, int]]:
        """Number of scenarios by grouping and group, which a job has counted."""
        return decode_document(self.groups or "{}", dict[str, dict[str, int]])


class ComparedModelRow(StoredRow, frozen=True, gc=False):
    """A model of a comparison, with the submission and the provenance of its simulations.

    ``batch``: the first that its verdict does not have. ``running_verdict``: state of its tests. ``verdict`` and
    ``details``: documents as clients see them.
    """

    comparison_id: str
    ordinal: int
    name: str
    spec: str
    provenance: str
    state: str
    batch: int
    running_verdict: str | None
    verdict: str | None
    details: str | None
    reason: str | None
    ended_at: float | None


class BatchSimulationRow(StoredRow, frozen=True, gc=False):
    """A simulation of a model's batch, with its state and reason; both are None if it was deleted."""

    comparison_id: str
    ordinal: int
    batch: int
    simulation_id: str
    simulation_state: str | None
    reason: str | None

    @property
    def deleted(self) -> bool:
        """Whether the simulation was deleted."""
        return self.simulation_state is None

    @property
    def ended(self) -> bool:
        """Whether the simulation has ended, and was not deleted."""
        return self.simulation_state in FINAL

    @property
    def runs(self) -> bool:
        """Whether the simulation has not ended, and was not deleted."""
        return not (self.deleted or self.ended)


_UNENDED = (ComparisonState.RUNNING.value, ComparisonState.CANCELLING.value)
_FINAL = ", ".join(f"'{state.value}'" for state in sorted(FINAL))
#: A comparison waits while, for each model that still runs, a simulation of its present batch has not ended.
COMPARISONS = AdvancedRows(
    table=comparisons,
    row=ComparisonRow,
    what="comparison",
    unknown=UnknownComparison,
    ready="EXISTS(SELECT 1 FROM comparison_models m"
    " WHERE m.comparison_id=comparisons.id AND m.state='running' AND m.ordinal<>comparisons.reference"
    " AND NOT EXISTS(SELECT 1 FROM comparison_simulations p JOIN simulations s ON s.id=p.simulation_id"
    " WHERE p.comparison_id=comparisons.id AND p.batch=m.batch AND p.ordinal IN (m.ordinal, comparisons.reference)"
    f" AND s.deleted_at IS NULL AND s.state NOT IN ({_FINAL})))",
)


def add_model(c: Connection, id: str, ordinal: int, values: Mapping[str, object], now: float) -> None:
    """Insert a model whose batches are to be played."""
    row = {"comparison_id": id, "ordinal": ordinal, "state": ComparisonState.RUNNING.value, "created_at": now}
    c.execute(insert(models).values(**row, **values))


def models_of(c: Connection, ids: Sequence[str]) -> list[ComparedModelRow]:
    """Return the models of comparisons, in their order."""
    if not ids:  # PostgreSQL does not compare text with the empty list
        return []
    query = select(*columns_of(models, ComparedModelRow)).where(models.c.comparison_id.in_(ids))
    return read_rows(c.execute(query.order_by(models.c.comparison_id, models.c.ordinal)), ComparedModelRow)


def simulations_of(c: Connection, ids: Sequence[str]) -> list[BatchSimulationRow]:
    """Return the simulations of comparisons, by batch."""
    if not ids:
        return []
    described = {"simulation_state": simulations.c.state, "reason": simulations.c.reason}
    alive = (simulations.c.id == played.c.simulation_id) & simulations.c.deleted_at.is_(None)
    query = select(*columns_of(played, BatchSimulationRow, **described)).join(simulations, alive, isouter=True)
    ordered = query.where(played.c.comparison_id.in_(ids)).order_by(
        played.c.comparison_id, played.c.batch, played.c.ordinal
    )
    return read_rows(c.execute(ordered), BatchSimulationRow)


def add_simulation(c: Connection, id: str, ordinal: int, batch: int, simulation: str) -> None:
    """Record the simulation of a model's batch; raise Conflict if there is one, or if the comparison does not run."""
    if COMPARISONS.find(c, PLATFORM, id, lock=True).state != ComparisonState.RUNNING.value:
        raise Conflict(f"Comparison {id} no longer runs.")
    key = (played.c.comparison_id == id, played.c.ordinal == ordinal, played.c.batch == batch)
    if c.execute(select(played.c.simulation_id).where(*key)).first() is not None:
        raise Conflict(f"Batch {batch} of comparison {id} is being played already.")
    row = {"comparison_id": id, "ordinal": ordinal, "batch": batch, "simulation_id": simulation}
    c.execute(insert(played).values(**row))


def remove_simulation(c: Connection, simulation: str) -> None:
    """Let a batch be played again: forget its simulation."""
    c.execute(delete(played).where(played.c.simulation_id == simulation))


def comparison_of(c: Connection, simulation: str) -> str | None:
    """Return the comparison of a simulation, or None."""
    found: str | None = c.scalar(select(played.c.comparison_id).where(played.c.simulation_id == simulation))
    return found


def change(c: Connection, id: str, **values: object) -> None:
    """Change columns of a comparison."""
    c.execute(update(comparisons).where(comparisons.c.id == id).values(**values))


def change_model(c: Connection, id: str, ordinal: int, **values: object) -> None:
    """Change columns of a comparison's model."""
    c.execute(update(models).where(models.c.comparison_id == id, models.c.ordinal == ordinal).values(**values))


def remove(c: Connection, id: str) -> None:
    """Delete a comparison's rows; its simulations are kept."""
    for table, column in (
        (played, played.c.comparison_id),
        (models, models.c.comparison_id),
        (events, events.c.simulation_id),
        (comparisons, comparisons.c.id),
    ):
        c.execute(delete(table).where(column == id))


def needing_model(c: Connection, scope: Scope, digest: str) -> str | None:
    """Return a comparison that has not ended and whose batches need a model, if there is one."""
    query = select(comparisons.c.id).join(models, models.c.comparison_id == comparisons.c.id)
    unended = (models.c.digest == digest, comparisons.c.state.in_(_UNENDED))
    found: str | None = c.scalar(query.where(within(comparisons, scope), *unended).limit(1))
    return found


def needing_dataset(c: Connection, scope: Scope, digest: str) -> str | None:
    """Return a comparison that has not ended and whose batches need a dataset's version, if there is one."""
    unended = (comparisons.c.dataset_digest == digest, comparisons.c.state.in_(_UNENDED))
    query = select(comparisons.c.id).where(within(comparisons, scope), *unended)
    found: str | None = c.scalar(query.limit(1))
    return found
