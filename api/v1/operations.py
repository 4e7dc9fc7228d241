"""Routes /healthz, /readyz and /problems: liveness, readiness and the catalogue of problem types."""

from typing import Any

from flask import Response

from api.blueprint import Blueprint, Success, json_response
from api.context import context
from api.problems import RETRY, catalogue, described
from api.schemas.problems import ProblemKindSchema
from api.schemas.results import HealthSchema, ReadinessSchema
from common.errors import NotFound

blueprint = Blueprint("operations", __name__, description="Health of the platform, and problem types.")


@blueprint.operation(
    "GET /healthz", Success(schema=HealthSchema, plain=True, description="The process is alive."), verb=None
)
def get_health() -> dict[str, Any]:
    """Get the liveness of this process

    For the liveness probe of an orchestrator: answers while the process serves requests, whatever the state of the
    database. Needs no token.
    """
    return {"status": "ok"}


@blueprint.operation(
    "GET /readyz",
    Success(schema=ReadinessSchema, plain=True, description="The process can serve requests."),
    other_responses={
        503: {
            "description": "The process cannot serve requests now.",
            "content": {"application/json": {"schema": ReadinessSchema}},
        }
    },
    verb=None,
)
def get_readiness() -> Response:
    """Get the readiness of this process, and the sandbox level of this machine

    For the readiness probe of an orchestrator: checks the database, the notifier, the object store, the disk, the key
    of webhooks, and the other processes of the platform, as far as this machine knows them. Needs no token.
    """
    current = context()
    problems = {name: check() for name, check in current.checks.items()}
    ready = not any(problems[name] for name in current.vital & problems.keys())
    checks = {name: problem or "ok" for name, problem in problems.items()}
    body = {"ready": ready, "checks": checks, "sandbox": current.sandbox}
    return json_response(body) if ready else json_response(body, 503, RETRY)


@blueprint.operation(
    "GET /problems/<name:slug>",
    Success(schema=ProblemKindSchema, plain=True, description="The problem type."),
    errors=[NotFound],
    verb=None,
)
def get_problem(slug: str) -> dict[str, Any]:
    """Get the description of a problem type

    The `type` of each error response is such an address.
    """
    if slug not in catalogue():
        raise NotFound(f"There is no problem type {slug!r}.")
    return described(slug)
