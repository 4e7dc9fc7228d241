"""Flips of comparisons: all scenarios that one model fails and the other does not, from the results of the batches."""

from common.errors import Invalid
from core.domain.access.scopes import Caller
from core.domain.comparisons.flips import flips_of
from core.domain.submissions.provenance import dataset_of
from core.services.analysis.paired_results import read_pairs
from core.services.datasets.catalogue import played
from core.services.simulations.results import Results
from core.store import comparisons as store
from core.store.comparisons import COMPARISONS
from core.store.database import Database


class ComparisonFlips:
    """Reads the results of the batches that a verdict has; the cost grows with what was played."""

    def __init__(self, database: Database, results: Results) -> None:
        self._database = database
        self._results = results

    def flips(self, caller: Caller, id: str, number: int, *, broke: bool) -> list[dict[str, object]]:
        """Return the flips of a model, in the order of play; ``number``: of the model among those compared, from 0.

        Raise UnknownComparison, and Invalid for a number that no model has. A batch whose simulation was deleted has
        none.
        """
        with self._database.read() as c:
            row = COMPARISONS.find(c, caller.scope, id)
            models = store.models_of(c, [id])
            plays = {(play.ordinal, play.batch): play for play in store.simulations_of(c, [id])}
        compared = [model for model in models if model.ordinal != row.reference]
        if number >= len(compared):
            raise Invalid(f"`model` is a number from 0 to {len(compared) - 1}: the models of the comparison.")
        model = compared[number]
        definition = played(dataset_of(model.provenance)).definition
        flips: list[dict[str, object]] = []
        for batch in range(model.batch):
            mine, other = (plays.get((ordinal, batch)) for ordinal in (model.ordinal, row.reference))
            if mine is None or other is None or mine.deleted or other.deleted:
                continue
            ids = mine.simulation_id, other.simulation_id
            _, _, both = read_pairs(caller, self._results, ids, definition)
            flips += [flip.document(ids) for flip in flips_of(both.pairs) if flip.broke == broke]
        return flips
