"""Result tables of the simulations that clients look at, in memory: each result is read once, when it has arrived."""

import threading
from collections import OrderedDict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field

from common.errors import UnknownSimulation
from core.domain.access.scopes import PLATFORM, Caller
from core.domain.results.declared_results import DeclaredFailure, DeclaredResults, declared_results
from core.domain.results.distribution import RunningDistributions
from core.domain.results.intervals import Bounds
from core.domain.results.rates import declared_bounds
from core.domain.results.result_table import ResultTable
from core.domain.results.scenario_units import ScenarioUnits
from core.domain.scheduling.states import FINAL
from core.domain.submissions.provenance import Provenance, provenance_of
from core.domain.submissions.task_parameters import Parameter, scenario_parameters, swept_parameters
from core.services.datasets.catalogue import played
from core.services.datasets.scenario_specs import ScenarioSpecs
from core.services.simulations.plan_units import units_of_plan
from core.services.simulations.results import Results
from core.store import results as store
from core.store import simulations
from core.store.database import Database
from datasets.catalogue.never_values import never_values
from runtimes.harness.evaluator.tasks import TaskPlan

#: Most bytes of all tables: an API process has 1 GiB in the chart's defaults, and a table up to 128 MiB.
BYTES = 256 << 20


@dataclass(slots=True, eq=False)
class SimulationTable:
    """The table of a simulation, and what its dataset declares. ``lock`` is held while it is read or extended.

    ``after``: number of the last segment that was read. ``complete``: no further result will arrive. ``declared``:
    by the dataset. ``bounds``: the declared range of metrics that have one. ``units``: the scenarios of the tasks, if
    some have several. ``never``: by metric, the value that stands for "never". ``parameters``: None until a
    request needs them. ``owner``: whose dataset it plays. ``size``: bytes of memory, about.
    """

    stage: str
    owner: Caller
    provenance: Provenance
    declared: DeclaredResults
    worst: Mapping[str, float | None]
    bounds: Mapping[str, Bounds]
    failure: DeclaredFailure | None
    units: ScenarioUnits | None
    never: Mapping[str, float]
    distributions: RunningDistributions
    table: ResultTable = field(default_factory=ResultTable)
    lock: threading.Lock = field(default_factory=threading.Lock)
    parameters: Mapping[str, Parameter] | None = None
    after: int = 0
    complete: bool = False
    size: int = 0

    def coverage(self) -> dict[str, object]:
        """Return how many results an answer covers, and whether no further result will arrive."""
        return {"read": self.table.read, "sampled": len(self.table), "complete": self.complete}

    def empty(self) -> None:
        """Forget the results, so that all are read again."""
        self.table, self.distributions = ResultTable(), RunningDistributions(self.worst, self.failure, self.never)
        self.after, self.complete = 0, False

    def measure(self) -> None:
        """Set ``size``, which other threads read without the lock."""
        parameters = (self.parameters or {}).values()
        self.size = self.table.size + sum(parameter.table.nbytes for parameter in parameters)


class ResultTables:
    """Keeps the tables that were used last, as far as BYTES reach. Requests of one simulation are served in turn."""

    def __init__(self, database: Database, results: Results, specs: ScenarioSpecs, most_bytes: int = BYTES) -> None:
        self._database = database
        self._results = results
        self._specs = specs
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._tables: OrderedDict[str, SimulationTable] = OrderedDict()

    @property
    def size(self) -> int:
        """Bytes of memory of all tables, about."""
        with self._lock:
            return sum(table.size for table in self._tables.values())

    def parameters(self, caller: Caller, id: str) -> Mapping[str, Parameter]:
        """Return the parameters of a simulation's tasks by name; no result is read.

        The scenarios of a dataset that was deleted meanwhile are unknown, so that those of the sweep are left.
        """
        table = self._opened(caller, id)
        if table.parameters is None:
            table.parameters = self._parameters(table.owner, table.provenance)
        return table.parameters

    @contextmanager
    def current(self, caller: Caller, id: str) -> Iterator[SimulationTable]:
        """Lock a simulation's table with all results that have arrived. Raise UnknownSimulation."""
        table = self._opened(caller, id)
        with table.lock:
            try:
                self._extend(id, table)
            except BaseException:  # a part of the results may have been added, and other requests wait for the table
                table.empty()
                raise
            table.measure()
            self._shrink(id)
            yield table

    def _opened(self, caller: Caller, id: str) -> SimulationTable:
        try:
            with self._database.read() as c:
                row = simulations.find(c, caller.reading, id)
                stage = store.newest_stage(c, id)
        except UnknownSimulation:
            with self._database.read() as c:
                gone = not simulations.found(c, PLATFORM, [id])
            if gone:  # for everybody: a request of another project drops nothing
                self._forget(id)
            raise
        with self._lock:
            table = self._tables.get(id)
            if table is not None and table.stage == stage:
                self._tables.move_to_end(id)
                return table
        new = _new(row.caller, provenance_of(row.provenance), stage)
        with self._lock:
            other = self._tables.get(id)
            if other is not None and other.stage == stage:  # another request has opened it meanwhile
                return other
            self._tables[id] = new
            return new

    def _parameters(self, owner: Caller, provenance: Provenance) -> Mapping[str, Parameter]:
        dataset, tasks = provenance.dataset, provenance.play.tasks
        plan = TaskPlan(tasks)
        parameters: list[Parameter] = []
        if played(dataset).declared.scenarios is not None:
            positions = [plan.locate(position).index for position in range(plan.scenarios)]
            parameters += scenario_parameters(self._specs.all(owner, dataset), positions)
        parameters += swept_parameters(tasks.get("sweep") or {}, plan.per_combination)
        return {parameter.name: parameter for parameter in parameters}

    def _extend(self, id: str, table: SimulationTable) -> None:
        """Add the results that have arrived since the last time."""
        while not table.complete:
            with self._database.read() as c:
                news = store.news(c, id, table.stage, table.after)
            if news is None:
                self._forget(id)
                raise UnknownSimulation()
            if news.state in FINAL and not table.table.read:  # none were added in order of arrival
                for body in self._results.stage_lines(table.stage, 0, None):
                    table.table.add(body)
                table.complete = True
                return
            page = self._results.arrived(table.stage, table.after, news)
            for number, segment in page:
                table.table.add(self._results.segment_bytes(table.stage, segment))
                table.after = number
            if not page:
                table.complete = news.state in FINAL
                return

    def _forget(self, id: str) -> None:
        with self._lock:
            self._tables.pop(id, None)

    def _shrink(self, id: str) -> None:
        """Drop the tables that were not used for longest, but not that of a simulation which is being served."""
        with self._lock:
            size = sum(table.size for table in self._tables.values())
            for other in list(self._tables):
                if size <= self._most_bytes:
                    return
                if other != id:
                    size -= self._tables.pop(other).size


def _new(owner: Caller, provenance: Provenance, stage: str) -> SimulationTable:
    definition = played(provenance.dataset).definition
    declared, never = declared_results(definition), never_values(definition)
    return SimulationTable(
        stage=stage,
        owner=owner,
        provenance=provenance,
        declared=declared,
        worst=declared.worst_values,
        bounds={metric.name: ends for metric in declared.metrics if (ends := declared_bounds(metric)) is not None},
        failure=declared.failure,
        never=never,
        units=units_of_plan(provenance.play.tasks),
        distributions=RunningDistributions(declared.worst_values, declared.failure, never),
    )
