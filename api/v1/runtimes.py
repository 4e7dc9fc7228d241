"""Routes /v1/runtimes and /v1/simulators: what is installed to run models and scenarios."""

from typing import Any

from flask.views import MethodView

from api.blueprint import Blueprint, Success
from api.context import catalogue_services as services
from api.schemas.catalogue import RuntimeListSchema, RuntimeSchema, SimulatorListSchema
from common.errors import UnknownRuntime

blueprint = Blueprint("catalogue", __name__, url_prefix="/v1", description="Runtimes and simulators.")


@blueprint.at("/runtimes")
class RuntimesView(MethodView):
    """All runtimes."""

    @blueprint.operation("list_runtimes", Success(schema=RuntimeListSchema, plain=True, description="Every runtime."))
    def get(self) -> dict[str, Any]:
        """List runtimes

        Each with its formats, their packages and limits. A submission need not name one: it follows from the format of
        the model.
        """
        return {"items": services().catalogue.runtimes()}


@blueprint.at("/runtimes/<name:name>")
class RuntimeView(MethodView):
    """One runtime."""

    @blueprint.operation(
        "get_runtime", Success(schema=RuntimeSchema, plain=True, description="The runtime."), errors=[UnknownRuntime]
    )
    def get(self, name: str) -> dict[str, Any]:
        """Describe a runtime

        Its formats, each with the packages that models find there and the limits that hold for them.
        """
        return services().catalogue.runtime(name)


@blueprint.at("/simulators")
class SimulatorsView(MethodView):
    """All simulators."""

    @blueprint.operation(
        "list_simulators", Success(schema=SimulatorListSchema, plain=True, description="Every simulator.")
    )
    def get(self) -> dict[str, Any]:
        """List simulators

        Each with its datasets, and whether its environment is installed on this machine.
        """
        return {"items": services().catalogue.simulators()}
