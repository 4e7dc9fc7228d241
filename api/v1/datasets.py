"""/v1/datasets: what can be simulated."""

from typing import Any

from flask import Response
from flask.views import MethodView

from api.blueprint import Blueprint
from api.context import services
from api.paging import LINK, page
from api.schemas.catalogue import DatasetListSchema, DatasetSchema, ScenarioPageSchema
from api.schemas.pages import NumberedPageQuery
from core.errors import UnknownDataset

blueprint = Blueprint("datasets", __name__, url_prefix="/v1/datasets", description="Sets of scenarios.")


@blueprint.at("")
class Datasets(MethodView):
    """All datasets."""

    @blueprint.operation("list_datasets", DatasetListSchema, plain=True, description="Every dataset.")
    def get(self) -> dict[str, Any]:
        """List datasets"""
        return {"items": services().catalogue.datasets()}


@blueprint.at("/<ref:dataset>")
class OneDataset(MethodView):
    """One dataset."""

    @blueprint.operation("get_dataset", DatasetSchema, plain=True, description="The dataset.", fails=[UnknownDataset])
    def get(self, dataset: str) -> dict[str, Any]:
        """Describe a dataset, with its interface, metrics and parameters"""
        return services().catalogue.dataset(dataset)


@blueprint.at("/<ref:dataset>/scenarios")
class Scenarios(MethodView):
    """The scenarios of a dataset."""

    @blueprint.takes(NumberedPageQuery)
    @blueprint.operation(
        "list_scenarios", ScenarioPageSchema, description="A page of scenarios.", headers=LINK, fails=[UnknownDataset]
    )
    def get(self, query: dict[str, Any], dataset: str) -> Response:
        """List the scenarios of a dataset"""
        return page(*services().catalogue.scenarios(dataset, **query))
