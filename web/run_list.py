"""List of runs: simulations and comparisons together, the newest first. A comparison stands for all of its batches."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from heapq import merge
from operator import itemgetter
from typing import Any

from web.api_client import api
from web.model_labels import labelled
from web.states import OF_COMPARISONS, OF_SIMULATIONS, STATES

#: Filters that list simulations only: those of one comparison, or the batches of all between the others.
UNFOLDED = ("comparison", "batches")


@dataclass(frozen=True, slots=True)
class RunPage:
    """A page of the list: documents of the API, those of comparisons with ``models``. ``next``: cursor of the next."""

    items: Sequence[Mapping[str, Any]]
    next: str | None


def run_page(filters: Mapping[str, Any], *, after: str = "", limit: int) -> RunPage:
    """Return a page of the runs that meet the filters of an address.

    Ids of simulations and of comparisons sort by time: the next page of both begins after the last id of this one.
    """
    states = filters.get("state", ())
    simulation_states = [
        state for state in states if state in OF_SIMULATIONS or state not in STATES
    ]  # the API refuses it
    simulations = _page("/v1/simulations", of_simulations(filters), simulation_states, after, limit)
    comparisons = RunPage([], None)
    if not any(name in filters for name in UNFOLDED):
        comparisons = _page("/v1/comparisons", filters, [s for s in states if s in OF_COMPARISONS], after, limit)
    newest = list(merge(simulations.items, map(labelled, comparisons.items), key=itemgetter("id"), reverse=True))
    more = len(newest) > limit or simulations.next or comparisons.next
    return RunPage(newest[:limit], newest[limit - 1]["id"] if more else None)


def run_counts(filters: Mapping[str, Any], page: RunPage | None = None) -> Mapping[str, Any]:
    """Return the number of runs in each state, whatever states filters name; ``page``: if it has them all.

    ``simulations``: the numbers without comparisons.
    """
    # With few matches the list is read once, not twice.
    if page is not None and page.next is None and "state" not in filters:
        simulations = Counter(run["state"] for run in page.items if "models" not in run)
        states = Counter(run["state"] for run in page.items)
    else:
        counted = {name: value for name, value in filters.items() if name != "state"}
        simulations = Counter(api().get("/v1/simulations/counts", **of_simulations(counted))["states"])
        states = simulations.copy()
        if not any(name in filters for name in UNFOLDED):
            states.update(api().get("/v1/comparisons/counts", **counted)["states"])
    shown = {name: states[name] for name in STATES if states[name]}
    return {"total": states.total(), "states": shown, "simulations": simulations}


def of_simulations(filters: Mapping[str, Any]) -> dict[str, Any]:
    """Return the filters of the API's simulations: without batches, unless an address asks for them."""
    query = {name: value for name, value in filters.items() if name != "batches"}
    return query if any(name in filters for name in UNFOLDED) else {**query, "comparison": "none"}


def _page(path: str, filters: Mapping[str, Any], states: Sequence[str], after: str, limit: int) -> RunPage:
    """Return a page of one of the API's lists; ``states``: those of ``filters`` that it knows."""
    if filters.get("state") and not states:
        return RunPage([], None)
    page = api().get(path, **{**filters, "state": states}, after=after, limit=limit)
    return RunPage(page["items"], page["next"])
