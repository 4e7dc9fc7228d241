"""Task costs in SQL: what tasks of the newest simulations like a new one took, from which its cost is estimated."""

from sqlalchemy import Connection, text

from core.domain.access.scopes import Scope
from core.store.owned import within_text
from core.store.rows import StoredRow, read_row
from core.store.tables import LISTED_ROWS

#: Newest simulations that are looked at.
NEWEST_SIMULATIONS = 20


class TaskCosts(StoredRow, frozen=True, gc=False):
    """Sums over simulations: their number, their tasks, and the milliseconds of their workers."""

    simulations: int
    tasks: int
    worker_milliseconds: int


_OF_THE_SAME = (
    "SELECT id FROM simulations WHERE {owned} AND dataset_digest=:dataset{model} AND state='succeeded'"
    f" AND {LISTED_ROWS} AND retry_of IS NULL"
    " AND EXISTS(SELECT 1 FROM usage_intervals u WHERE u.simulation_id=simulations.id)"
    f" ORDER BY id DESC LIMIT {NEWEST_SIMULATIONS}"
)
_COSTS = (
    "WITH same AS ({same}) SELECT (SELECT count(*) FROM same),"
    " (SELECT coalesce(sum(total), 0) FROM stages WHERE simulation_id IN (SELECT id FROM same)),"
    " (SELECT coalesce(sum(milliseconds*workers), 0) FROM usage_intervals"
    " WHERE simulation_id IN (SELECT id FROM same) AND lost=0)"
)


def task_costs(c: Connection, scope: Scope, dataset: str, model: tuple[str, str] | None) -> TaskCosts | None:
    """Return what tasks of a dataset took in a scope, by its digest; None if none was ever simulated.

    ``model``: of a model's digest and a runtime alone; None: of any. A retry does not count: it may have taken over
    most of its results.
    """
    owned, values = within_text(scope)
    values["dataset"] = dataset
    if model is not None:
        values["digest"], values["runtime"] = model
    same = _OF_THE_SAME.format(
        owned=" AND ".join(owned or ["1=1"]), model="" if model is None else " AND digest=:digest AND runtime=:runtime"
    )
    row = c.execute(text(_COSTS.format(same=same)), values).first()
    costs = read_row(None if row is None else [int(number) for number in row], TaskCosts)
    return costs if costs is not None and costs.tasks else None
