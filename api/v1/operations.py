"""/healthz, /readyz and /problems: for those who run the platform, and for those it said no to."""

from typing import Any

from flask import Response
from flask.views import MethodView

from api.blueprint import Blueprint, Success, json_response
from api.context import context
from api.problems import catalogue, status_of, title_of
from api.schemas.problems import ProblemKindSchema
from api.schemas.results import HealthSchema, ReadinessSchema
from errors import NotFound

blueprint = Blueprint("operations", __name__, description="For those who run the platform.")


@blueprint.at("/healthz")
class HealthView(MethodView):
    """Whether this process is alive."""

    @blueprint.operation("get_health", Success(schema=HealthSchema, plain=True, description="It is alive."))
    def get(self) -> dict[str, Any]:
        """Tell whether this process is alive"""
        return {"status": "ok"}


@blueprint.at("/readyz")
class ReadinessView(MethodView):
    """Whether this process can serve."""

    @blueprint.operation(
        "get_readiness",
        Success(schema=ReadinessSchema, plain=True, description="It can serve."),
        other_responses={
            503: {
                "description": "It cannot serve now.",
                "content": {"application/json": {"schema": ReadinessSchema}},
            }
        },
    )
    def get(self) -> Response:
        """Tell whether this process can serve, and how models are confined here"""
        here = context()
        found = {name: check() for name, check in here.checks.items()}
        ready = not any(found[name] for name in here.vital & found.keys())
        told = {name: wrong or "ok" for name, wrong in found.items()}
        body = {"ready": ready, "checks": told, "sandbox": here.sandbox}
        return json_response(body, 200 if ready else 503)


@blueprint.at("/problems/<name:slug>")
class ProblemView(MethodView):
    """A kind of problem."""

    @blueprint.operation(
        "get_problem",
        Success(schema=ProblemKindSchema, plain=True, description="What the kind of problem means."),
        errors=[NotFound],
    )
    def get(self, slug: str) -> dict[str, Any]:
        """Get the description of a problem type"""
        error_class = catalogue().get(slug)
        if error_class is None:
            raise NotFound(f"There is no problem type {slug!r}.")
        return {
            "type": f"/problems/{slug}",
            "title": title_of(slug),
            "status": status_of(error_class),
            "detail": error_class.__doc__,
        }
