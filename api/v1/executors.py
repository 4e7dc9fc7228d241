"""Routes /v1/executors: the executors of the platform, and which of them are drained."""

from typing import Any

from api.blueprint import Blueprint, Success
from api.body import json_body, validated
from api.context import caller
from api.context import operation_services as services
from api.schemas.catalogue import DrainSchema, ExecutorListSchema, ExecutorSchema
from common.errors import Invalid, TooLarge, UnknownExecutor, UnsupportedMedia
from core.domain.access.roles import Verb
from core.services.scheduling.executors import ExecutorState

blueprint = Blueprint("executors", __name__, url_prefix="/v1", description="Places that simulations run on.")

EXECUTOR = Success(schema=ExecutorSchema, description="The executor.")


@blueprint.operation(
    "GET /executors", Success(schema=ExecutorListSchema, description="All executors, with their health.")
)
def list_executors() -> dict[str, Any]:
    """List executors

    Each with its workers, how many are in use, whether it answers, whether it is drained, and what a submission may
    ask of it.
    """
    return {"items": services().executors.list(caller())}


@blueprint.operation(
    "POST /executors/<name:name>/drain",
    EXECUTOR,
    body={"application/json": DrainSchema},
    body_required=False,
    errors=[Invalid, TooLarge, UnknownExecutor, UnsupportedMedia],
    verb=Verb.OPERATE,
)
def drain_executor(name: str) -> ExecutorState:
    """Drain an executor

    It is given no simulations, also after a restart, until `undrain`; what it runs goes on to its end. Queued
    simulations that only it could run wait, and say so. Repeating it replaces the reason.
    """
    options = validated(DrainSchema(), json_body(optional=True))
    return services().executors.drain(caller(), name, reason=options.get("reason", ""))


@blueprint.operation("POST /executors/<name:name>/undrain", EXECUTOR, errors=[UnknownExecutor], verb=Verb.OPERATE)
def undrain_executor(name: str) -> ExecutorState:
    """Give a drained executor simulations again

    Of an executor that is not drained, it changes nothing.
    """
    return services().executors.undrain(caller(), name)
