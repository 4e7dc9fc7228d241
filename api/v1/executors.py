"""Route /v1/executors: the executors of the platform."""

from typing import Any

from flask.views import MethodView

from api.blueprint import Blueprint, Success
from api.context import services
from api.schemas.catalogue import ExecutorListSchema

blueprint = Blueprint("executors", __name__, url_prefix="/v1", description="Places that simulations run on.")


@blueprint.at("/executors")
class ExecutorsView(MethodView):
    """All executors."""

    @blueprint.operation(
        "list_executors", Success(schema=ExecutorListSchema, description="All executors, with their health.")
    )
    def get(self) -> dict[str, Any]:
        """List executors

        Each with its workers, how many are in use, whether it answers, and what a submission may ask of it.
        """
        return {"items": services().executors.list()}
