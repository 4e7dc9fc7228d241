"""Schemas of requests that change many simulations, and of their outcomes."""

from collections.abc import Mapping
from typing import Any

from marshmallow import ValidationError, validates_schema

from api.schemas.fields import ListField, Open, Strict, Text, Whole
from api.schemas.members import document, documents, integer, string
from api.schemas.pages import PageSchema
from api.schemas.problems import ProblemSchema
from api.schemas.results import SIMULATION_ID
from api.schemas.simulations import ListingQuery, RetrySchema, SimulationSchema, StateName
from core.domain.scheduling.states import State
from core.services.simulations.bulk import Status

#: Most simulations that one request changes.
MOST_CHANGED = 500


class BulkFilter(ListingQuery):
    """Filters of the simulations that a request changes, as those of the list."""

    state = ListField(
        StateName(),
        longest=len(State),
        description="Only simulations in one of these states; by default those that can be changed.",
    )
    after = Text(SIMULATION_ID, longest=26, description="Cursor: the `next` of the previous response.")


class BulkSchema(Strict):
    """The simulations that a request changes: their ids, or filters."""

    ids = ListField(
        Text(SIMULATION_ID, longest=26), shortest=1, longest=MOST_CHANGED, description="Ids of the simulations."
    )
    filter = document(BulkFilter, "At least one filter, instead of `ids`.", required=False)
    limit = Whole(
        1,
        MOST_CHANGED,
        load_default=MOST_CHANGED,
        description="With `filter`: the most simulations that this request changes, newest first.",
    )

    @validates_schema
    def require_ids_or_filter(self, data: Mapping[str, Any], **_: Any) -> None:
        """Require either ids or at least one filter: an empty filter would change all simulations."""
        if ("ids" in data) == ("filter" in data):
            raise ValidationError("Send either `ids` or `filter`.", "ids")
        if "filter" in data and not data["filter"].keys() - {"after"}:
            raise ValidationError("Name at least one filter, such as `state`.", "filter")


class BulkRetrySchema(BulkSchema, RetrySchema):
    """The simulations to retry: their ids, or filters."""


class OutcomeSchema(Open):
    """What a request has done with one simulation."""

    id = string("Id of the simulation.")
    status = string(
        "`skipped`: there was nothing to do, see `reason`; `failed`: see `problem`.",
        enum=[status.value for status in Status],
    )
    reason = string("Why it was skipped; null unless it was.", allow_none=True)
    simulation = document(
        SimulationSchema,
        "The simulation; of a retry, the new simulation, or the one that exists already. Null with a `problem`.",
        allow_none=True,
    )
    problem = document(ProblemSchema, "Why it failed, and what to do; null unless it did.", allow_none=True)


class OutcomesSchema(PageSchema):
    """What a request has done with each simulation."""

    items = documents(OutcomeSchema, "The outcomes, in the order of the simulations.")
    done = integer("Number of simulations that were changed.")
    skipped = integer("Number of simulations with nothing to do.")
    failed = integer("Number of simulations that could not be changed.")
