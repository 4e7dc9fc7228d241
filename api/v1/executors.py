"""/v1/executors: the places simulations run in."""

from typing import Any

from flask.views import MethodView

from api.blueprint import Blueprint
from api.context import services
from api.schemas.catalogue import ExecutorListSchema

blueprint = Blueprint("executors", __name__, url_prefix="/v1", description="Where simulations run.")


@blueprint.at("/executors")
class Executors(MethodView):
    """All executors."""

    @blueprint.operation("list_executors", ExecutorListSchema, description="Every place, and how it fares.")
    def get(self) -> dict[str, Any]:
        """List the places that simulations run in"""
        return {"items": services().executors.list()}
