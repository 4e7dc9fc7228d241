"""Routes /v1/simulations/{id}/distributions, /parameters, /dependence, /sensitivity, /worst: what plots show."""

from typing import Any

from api.blueprint import Blueprint, Success
from api.context import analysis_services as services
from api.context import caller
from api.schemas.distributions import (
    DependenceQuery,
    DependenceSchema,
    DistributionsSchema,
    ParametersSchema,
    WorstQuery,
    WorstSchema,
)
from api.schemas.sensitivities import SensitivityQuery, SensitivitySchema
from common.errors import Invalid, UnknownSimulation

blueprint = Blueprint(
    "distributions",
    __name__,
    url_prefix="/v1/simulations/<id:id>",
    description="Distributions of metrics and their dependence on parameters, while a simulation runs and afterwards.",
)


@blueprint.operation(
    "GET /distributions",
    Success(schema=DistributionsSchema, plain=True, description="A histogram, or counts by text, of each metric."),
    errors=[UnknownSimulation],
)
def get_simulation_distributions(id: str) -> dict[str, Any]:
    """Get the distribution of each metric

    Of the results so far. The values are those of tasks that are `ok`; `not_ok` has the others. Histograms have at
    most 40 bins with round edges; 0 and 1, and whole numbers in a short range, have a bin each.
    """
    return services().distributions.distributions(caller(), id)


@blueprint.operation(
    "GET /parameters",
    Success(schema=ParametersSchema, plain=True, description="The parameters, those of scenarios first."),
    errors=[UnknownSimulation],
)
def list_simulation_parameters(id: str) -> dict[str, Any]:
    """List the parameters of a simulation's scenarios and sweep

    Results can be grouped by them: their names are the parameters of `dependence`, and the groups of `worst`.
    """
    return services().distributions.parameters(caller(), id)


@blueprint.operation(
    "GET /dependence",
    Success(schema=DependenceSchema, plain=True, description="Statistics by group, or a heat map."),
    errors=[UnknownSimulation, Invalid],
)
@blueprint.takes(DependenceQuery)
def get_simulation_dependence(query: dict[str, Any], id: str) -> dict[str, Any]:
    """Get how a metric depends on one or two parameters

    Of the results so far. A task that is not `ok` counts with the metric's worst value, where the dataset declares
    one, and else not at all. Numbers with more than 20 different values are divided into bins.
    """
    return services().distributions.dependence(caller(), id, query["metric"], query["parameter"])


@blueprint.operation(
    "GET /sensitivity",
    Success(schema=SensitivitySchema, plain=True, description="The parameters, the strongest association first."),
    errors=[UnknownSimulation, Invalid],
)
@blueprint.takes(SensitivityQuery)
def get_simulation_sensitivity(query: dict[str, Any], id: str) -> dict[str, Any]:
    """Get which parameters go with failure, or with a metric

    Of the results so far. It describes the results and does not prove a cause: parameters that vary together share
    their effects, and of many parameters some have an interval without 0 by chance.
    """
    return services().sensitivities.sensitivity(caller(), id, query["metric"])


@blueprint.operation(
    "GET /worst",
    Success(schema=WorstSchema, plain=True, description="The worst tasks, the worst first."),
    errors=[UnknownSimulation, Invalid],
)
@blueprint.takes(WorstQuery)
def list_worst_tasks(query: dict[str, Any], id: str) -> dict[str, Any]:
    """List the worst tasks

    Of the results so far, in the order of a summary's `worst`: first the tasks that are not `ok`, then those with
    the worst scores. A dataset without a score has the former only.
    """
    groups = [(name, value) for name, _, value in (group.partition("=") for group in query.get("group", ()))]
    return services().worst_results.worst(caller(), id, groups, query["limit"])
