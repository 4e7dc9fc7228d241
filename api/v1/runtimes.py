"""Routes /v1/runtimes and /v1/simulators: what is installed to run models and scenarios."""

from typing import Any

from api.blueprint import Blueprint, Success
from api.context import catalogue_services as services
from api.schemas.catalogue import RuntimeListSchema, RuntimeSchema, SimulatorListSchema
from common.errors import UnknownRuntime

blueprint = Blueprint("catalogue", __name__, url_prefix="/v1", description="Runtimes and simulators.")


@blueprint.operation("GET /runtimes", Success(schema=RuntimeListSchema, plain=True, description="Every runtime."))
def list_runtimes() -> dict[str, Any]:
    """List runtimes

    Each with its formats, their packages and limits. A submission need not name one: it follows from the format of
    the model.
    """
    return {"items": services().catalogue.runtimes()}


@blueprint.operation(
    "GET /runtimes/<name:name>",
    Success(schema=RuntimeSchema, plain=True, description="The runtime."),
    errors=[UnknownRuntime],
)
def get_runtime(name: str) -> dict[str, Any]:
    """Describe a runtime

    Its formats, each with the packages that models find there and the limits that hold for them.
    """
    return services().catalogue.runtime(name)


@blueprint.operation("GET /simulators", Success(schema=SimulatorListSchema, plain=True, description="Every simulator."))
def list_simulators() -> dict[str, Any]:
    """List simulators

    Each with its datasets, and whether its environment is installed on this machine.
    """
    return {"items": services().catalogue.simulators()}
