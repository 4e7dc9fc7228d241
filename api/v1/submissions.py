"""Routes /v1/checks, /v1/estimates, /v1/reruns and /v1/forms: dry runs, estimates, repetitions, forms with a model.

Each has one kind of body and one kind of response, because clients that are generated from the OpenAPI document encode
one and decode one per operation. `POST /v1/simulations` and `POST /v1/models` accept the same bodies without that.
"""

from typing import Any

from flask import Response

from api.blueprint import Blueprint, Success, json_response
from api.body import json_body, validated
from api.context import caller
from api.context import submission_services as services
from api.rendering.usage_tables import estimate_document
from api.schemas.models import ModelCheckFields, ModelChecksSchema, ModelForm, ModelSchema
from api.schemas.project_usage import EstimateSchema
from api.schemas.simulations import SimulationSchema
from api.schemas.submissions import DryRunSchema, RerunSchema, SubmissionForm, SubmissionHeaders, SubmissionSchema
from api.submissions import checks_of, dry_run, receive_form, receive_json, rerun, submit, without_upload
from api.v1.models import CREATED as MODEL_CREATED
from api.v1.models import CREATION_ERRORS, created, from_form
from api.v1.simulations import CREATED, NEXT, RESOLUTION_ERRORS, SUBMISSION_ERRORS
from common.errors import IdempotencyMismatch, Invalid, NotAcceptable, StillRunning
from core.domain.access.roles import Verb

blueprint = Blueprint(
    "submissions",
    __name__,
    url_prefix="/v1",
    description="Checks, estimates, repetitions, and forms that contain a model.",
)

CHECK_ERRORS = tuple(set(SUBMISSION_ERRORS) - {IdempotencyMismatch, NotAcceptable, StillRunning})
CHECKED = Success(schema=DryRunSchema, plain=True, description="Whether the model fits; no simulation is kept.")
ACCEPTED = Success(status=201, schema=SimulationSchema, description="Accepted.", headers=CREATED, links=NEXT)


@blueprint.operation(
    "POST /checks", CHECKED, body={"application/json": SubmissionSchema}, errors=CHECK_ERRORS, verb=Verb.SUBMIT
)
def check_submission() -> Response:
    """Check with one real step whether a model loads and fits a dataset (dry run)

    Takes the body of a submission, and answers after a few real steps with the reason if the model does not fit.
    Nothing is stored. The first check in a runtime installs its packages, and may take minutes.
    """
    return json_response(dry_run(*receive_json()))


@blueprint.operation(
    "POST /estimates",
    Success(schema=EstimateSchema, plain=True, description="What the submission will need; nothing is stored."),
    body={"application/json": SubmissionSchema},
    errors=[Invalid, *RESOLUTION_ERRORS],
    verb=Verb.SUBMIT,
)
def estimate_submission() -> dict[str, object]:
    """Estimate the needs of a submission: tasks, core hours, cost, and its part of each quota

    Takes the body of a submission and answers at once, without a worker, from the use of earlier simulations.
    Of a model that is not there yet (an `upload`, a `model_reference`) it knows the dataset alone.
    """
    submission = without_upload(json_body())
    return estimate_document(services().estimates.estimate(caller(), submission))


@blueprint.operation(
    "POST /models/<ref:model>/check",
    Success(schema=ModelChecksSchema, description="One check for each dataset; no simulation is kept."),
    body={"application/json": ModelCheckFields},
    body_required=False,
    errors=CHECK_ERRORS,
    verb=Verb.SUBMIT,
)
def check_model(model: str) -> dict[str, Any]:
    """Find the datasets that a model fits

    A dry run for each dataset, a few at a time. Tells how the model describes itself, how fast it answers and how
    much memory it takes. A registered dataset is not tried if the built-in one that it extends refuses the model.
    The first check in a runtime installs its packages, and may take minutes.
    """
    options = validated(ModelCheckFields(), json_body(optional=True))
    return {"items": checks_of(model, options.pop("datasets"), options)}


@blueprint.operation(
    "POST /reruns", ACCEPTED, body={"application/json": RerunSchema}, errors=SUBMISSION_ERRORS, verb=Verb.SUBMIT
)
@blueprint.takes(SubmissionHeaders, location="headers")
def rerun_simulation(headers: dict[str, Any]) -> Response:
    """Repeat a simulation from the `simulation.json` of its archive

    The same model and dataset, by their digests, the same scenarios and seeds: the results are the same. Models and
    datasets that were deleted have to be uploaded first.
    """
    return submit(rerun(json_body()), None, key=headers.get("idempotency_key"), prefer=headers.get("prefer"))


@blueprint.operation(
    "POST /forms/simulations",
    ACCEPTED,
    body={"multipart/form-data": SubmissionForm},
    errors=SUBMISSION_ERRORS,
    verb=Verb.SUBMIT,
)
@blueprint.takes(SubmissionHeaders, location="headers")
def submit_form(headers: dict[str, Any]) -> Response:
    """Submit a simulation as a form that contains the model

    Members that are objects are text that contains JSON. Otherwise as `POST /v1/simulations`.
    """
    return submit(*receive_form(), key=headers.get("idempotency_key"), prefer=headers.get("prefer"))


@blueprint.operation(
    "POST /forms/checks", CHECKED, body={"multipart/form-data": SubmissionForm}, errors=CHECK_ERRORS, verb=Verb.SUBMIT
)
def check_form() -> Response:
    """Check with one real step whether the model in a form loads and fits a dataset (dry run)

    Takes the form of a submission, and answers after a few real steps with the reason if the model does not fit.
    Nothing is stored.
    """
    return json_response(dry_run(*receive_form()))


@blueprint.operation(
    "POST /forms/models",
    Success(schema=ModelSchema, status=201, description="The model is created.", headers=MODEL_CREATED),
    body={"multipart/form-data": ModelForm},
    errors=CREATION_ERRORS,
    verb=Verb.UPLOAD,
)
def upload_model() -> Response:
    """Create a model from a form that contains it

    An existing name gets its next version; the content of its newest version stays that version.
    """
    return created(from_form())
