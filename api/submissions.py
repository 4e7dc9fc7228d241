"""Submission of simulations: parsing of JSON, forms and references to uploads; responses at once, later or streamed."""

import re
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import msgspec
from flask import Response, request
from marshmallow import fields
from werkzeug.datastructures import FileStorage

from api import model_sources
from api.blueprint import json_response
from api.body import base_name, chunks_of, json_object, parse_json, raw_body, validated
from api.context import analysis_services, caller, catalogue_services, context, file_services, submission_services
from api.negotiation import choose
from api.request_digests import submission_digest
from api.schemas.fields import WholeOrAutoField
from api.schemas.models import MOST_CHECKS
from api.schemas.simulations import SimulationSchema
from api.schemas.submissions import LONGEST_WAIT, AcceptedSubmission, ScenarioSelection
from api.spooling import spool_form
from api.streams import NDJSON, SSE, encode_heartbeats, encode_results, require_free_stream, stream
from common.errors import BadRequest, Invalid, TooManyRequests, TooManyStreams, UnsupportedMedia
from core.domain.scheduling.states import State
from core.domain.submissions.records import Model, Simulation, Tasks
from core.domain.submissions.submission import Submission
from core.services.simulations.dry_runs import LONGEST_DRY_RUN, DryRunTiming, check_document, check_of
from core.services.simulations.new_simulations import resubmission
from core.services.submissions.resolving import UNKNOWN_MODEL

RESPONSE_FORMATS = {"json": "application/json", "ndjson": NDJSON, "sse": SSE}
_SCHEMA = AcceptedSubmission(exclude=("upload",))
_UPLOAD_SCHEMA = AcceptedSubmission(exclude=("model", "model_reference", "connection"))
_SIMULATION_SCHEMA = SimulationSchema()
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.ASCII | re.IGNORECASE)


def parse_submission(document: Mapping[str, Any]) -> Submission:
    """Return the submission of parsed JSON without a model's bytes; raise Invalid with each invalid field's message."""
    submission, format = _parse(document, _SCHEMA)
    if submission.model_reference is not None:
        return replace(submission, format=format)
    if submission.connection is not None:
        raise Invalid("A `connection` is for a `model_reference` only.")
    if format is not None:
        raise Invalid("`format` is of a model that is sent or imported; a registered model has its format already.")
    return submission


def _parse(document: Mapping[str, Any], schema: AcceptedSubmission) -> tuple[Submission, str | None]:
    """Return a submission without its `upload`, and the format that it names for the model's bytes."""
    values = validated(schema, document)
    values.pop("upload", None)
    return Submission(**{name: value for name, value in values.items() if name != "format"}), values.get("format")


def rerun(document: Mapping[str, Any]) -> Submission:
    """Return the submission that repeats the simulation.json of an archive; it is validated like any other."""
    if not all(isinstance(document.get(name), dict) for name in ("spec", "provenance")):
        raise Invalid("A simulation.json of an archive has the objects `spec` and `provenance`.")
    given = {name: value for name, value in msgspec.to_builtins(resubmission(document)).items() if value is not None}
    stored_only = {name: given.pop(name) for name in sorted(given.keys() - _SCHEMA.fields.keys())}
    return replace(parse_submission(given), **stored_only)


def from_json(document: Mapping[str, Any]) -> Submission:
    """Return the submission of a JSON object: a submission, or the simulation.json of an archive."""
    return rerun(document) if "provenance" in document else parse_submission(document)


def from_form() -> tuple[Submission, Model | None]:
    """Return the submission of a multipart form, and its model if it has a file; fields that are not text are JSON."""
    spool_form()
    files = request.files.to_dict(flat=False)
    if unknown := sorted(files.keys() - {"model"}):
        raise Invalid(f"Only `model` may be a file; `{unknown[0][:100]}` may not.")
    if len(files.get("model", ())) > 1 or (files and "model" in request.form):
        raise Invalid("Send one model, as a file or as a name.")
    document: dict[str, Any] = {}
    for name, values in request.form.lists():
        if len(values) > 1:
            raise Invalid(f"The field `{name[:100]}` appears {len(values)} times; send it once.")
        document[name] = _value_of(name, values[0])
    if not files:
        return parse_submission(document), None
    if "model_reference" in document:
        raise Invalid("Send a model as a file, or name it by a `model_reference`.")
    submission, format = _parse(document, _SCHEMA)
    return submission, upload(files["model"][0], submission, format)


def _value_of(name: str, text: str) -> Any:
    field = _SCHEMA.fields.get(name)
    if field is None or isinstance(field, fields.String):
        return text
    if isinstance(field, WholeOrAutoField) and text.isalpha():
        return text  # `auto`, or a word that the field refuses
    if isinstance(field, ScenarioSelection) and not text.startswith(("{", "[", '"', "null", "None")):
        return text
    try:
        # generated clients send the literals of Python
        return parse_json({"True": "true", "False": "false", "None": "null"}.get(text, text).encode())
    except BadRequest:
        raise Invalid(f"{name}: not valid JSON: {text[:80]!r}.") from None
    except UnicodeEncodeError:
        raise Invalid(f"{name}: not valid text.") from None


def from_upload(document: Mapping[str, Any]) -> tuple[Submission, Model]:
    """Return a submission whose model is a finished upload, and the model created from it."""
    submission, format = _parse(document, _UPLOAD_SCHEMA)
    gang = submission.gang is not None
    model = model_sources.of_upload(document["upload"], runtime=submission.runtime, format=format, gang=gang)
    return submission, model


def without_upload(document: Mapping[str, object]) -> Submission:
    """Return the submission of a JSON object; in place of an upload, a model of which nothing is known yet."""
    if "upload" not in document:
        return from_json(document)
    submission, _ = _parse(document, _UPLOAD_SCHEMA)
    return replace(submission, model_reference=UNKNOWN_MODEL)


def upload(file: FileStorage, submission: Submission, format: str | None) -> Model:
    """Store the model file of a submission."""
    return file_services().models.add(
        caller(),
        chunks_of(file.stream),
        filename=base_name(file.filename),
        runtime=submission.runtime,
        format=format,
        gang=submission.gang is not None,
    )


def receive_json() -> tuple[Submission, Model | None]:
    """Return the submission of this request's JSON, and its model if it refers to an upload."""
    if request.mimetype != "application/json":
        raise UnsupportedMedia("Send JSON, with `Content-Type: application/json`; or a form to /v1/forms/simulations.")
    document = json_object(raw_body())
    return from_upload(document) if "upload" in document else (from_json(document), None)


def receive_form() -> tuple[Submission, Model | None]:
    """Return the submission of this request's form, and its model if the form has one."""
    if request.mimetype != "multipart/form-data":
        raise UnsupportedMedia("Send a multipart form: `curl -F model=@policy.onnx -F dataset=car_street`.")
    return from_form()


def receive() -> tuple[Submission, Model | None]:
    """Return the submission of this request, and its model if the request has the model's bytes."""
    if request.mimetype == "application/json":
        return receive_json()
    if request.mimetype == "multipart/form-data":
        return receive_form()
    raise UnsupportedMedia(
        "Send `Content-Type: application/json`, or a form (`curl -F model=@policy.onnx -F dataset=car_street`)."
    )


def first_answer(simulation: Simulation) -> Simulation:
    """Return a simulation as it was when it was accepted, so that a replayed request gets the first response again."""
    return replace(
        simulation,
        state=State.QUEUED,
        attempt=1,
        tasks=Tasks(total=simulation.tasks.total),
        metrics={},
        score=None,
        answer=None,
        results_digest=None,
        approximate=True,
        reason=None,
        executor=None,
        position=None,
        eta=None,
        started_at=None,
        ended_at=None,
    )


def seconds_to_wait(prefer: str | None) -> int | None:
    """Return the seconds to wait of a Prefer header (RFC 7240), at most LONGEST_WAIT; None without `wait`."""
    match = _WAIT.search(prefer or "")
    return min(int(match[1]), LONGEST_WAIT) if match else None


def created(simulation: Simulation, headers: Mapping[str, str] | None = None) -> Response:
    """Answer with a new simulation and its address."""
    location = {"Location": f"/v1/simulations/{simulation.id}"}
    return json_response(_SIMULATION_SCHEMA.dump(simulation), 201, location | dict(headers or {}))


class RequestKey(msgspec.Struct):
    """The headers of a request that may be repeated, as `IdempotencyHeaders` has accepted them."""

    idempotency_key: str | None = None


def replay_headers(replayed: bool) -> dict[str, str]:
    """Return the headers that say whether an earlier request with the same Idempotency-Key is answered again."""
    return {"Idempotency-Replayed": "true"} if replayed else {}


def submit(
    submission: Submission, model: Model | None, *, key: str | None = None, prefer: str | None = None
) -> Response:
    """Submit a simulation; answer immediately, after the seconds of `Prefer: wait`, or with a stream of its results."""
    format = choose(RESPONSE_FORMATS)
    if format != "json":
        require_free_stream()
    if submission.dry_run:
        return json_response(dry_run(submission, model))
    digest = submission_digest(submission, model.digest if model else None) if key else None
    id, replayed = submission_services().simulations.accept(
        caller(), submission, model=model, key=key, request_digest=digest
    )
    headers = replay_headers(replayed)
    simulation = submission_services().simulations.of_key(caller(), id)
    if format != "json":
        return follow(id, format, headers)
    wait = seconds_to_wait(prefer)
    if wait is None:
        return created(first_answer(simulation), headers)
    try:
        require_free_stream()
        simulation = submission_services().simulations.wait(caller(), simulation.id, wait)
    except (TooManyStreams, TooManyRequests):
        return created(first_answer(simulation), headers)
    return created(simulation, headers | {"Preference-Applied": f"wait={wait}"})


def dry_run(submission: Submission, model: Model | None) -> dict[str, Any]:
    """Run a few real steps of a submission and return whether the model fits; the simulation is deleted."""
    check, _ = _end_of(_begun(submission, model))
    return check


def _begun(submission: Submission, model: Model | None) -> str:
    """Submit a dry run; return its id."""
    require_free_stream()
    simulation, _ = submission_services().simulations.submit(caller(), replace(submission, dry_run=True), model=model)
    return simulation.id


def _end_of(id: str) -> tuple[dict[str, Any], bool]:
    """Wait for the end of a dry run, and delete it; return whether the model fits, and whether it was refused unused.

    A refused model does not load, or does not fit the dataset's observations and actions.
    """
    simulations = submission_services().simulations
    simulation = simulations.wait(caller(), id, LONGEST_DRY_RUN)
    if not simulation.final:
        simulations.cancel(caller(), simulation.id)
        reason = f"The dry run did not end within {LONGEST_DRY_RUN} s: {simulation.reason or simulation.state}."
        return check_document(simulation, DryRunTiming(), reason), False
    line = b"".join(analysis_services().results.lines(caller(), simulation.id)).partition(b"\n")[0]
    simulations.delete(caller(), simulation.id)
    return check_of(simulation, line), simulation.state == State.FAILED and not line


#: Dry runs of one check that are unfinished at the same time.
CHECKS_AHEAD = 4
#: The answer to a check that found out before its dry run that the model does not fit.
_UNMEASURED: Mapping[str, Any] = {
    "fits": False,
    "runtime": None,
    **dict.fromkeys(("model", "load_seconds", "act_seconds", "slowest_act_seconds", "memory")),
}


def checks_of(ref: str, names: Sequence[str] | None, options: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Check a model with datasets, a few at a time; None: the built-in ones, and registered ones with scenarios.

    A dataset that the model's runtime cannot be combined with does not end the others' checks. A registered dataset has
    the observations and actions of the built-in one that it extends: a model that this one refuses is not tried again.
    """
    model = file_services().models.get(caller(), ref)
    waiting = deque(_datasets_with_scenarios() if names is None else [(name, None) for name in names])
    begun: deque[tuple[str, str | dict[str, Any]]] = deque()  # ids of dry runs, and answers that are known without one
    checks: list[dict[str, Any]] = []
    refused: dict[str | None, str] = {}  # the reasons, by dataset
    try:
        while waiting or begun:
            while waiting and len(begun) < CHECKS_AHEAD and waiting[0][1] not in [name for name, _ in begun]:
                name, extended = waiting.popleft()
                known = {**_UNMEASURED, "dataset": name, "format": model.format}
                if extended in refused:
                    begun.append((name, {**known, "reason": refused[extended]}))
                    continue
                try:
                    begun.append((name, _begun(Submission(dataset=name, model=model.digest, **options), None)))
                except Invalid as error:
                    if names is not None:
                        raise
                    begun.append((name, {**known, "reason": str(error)}))
            name, first = begun.popleft()
            check, unused = _end_of(first) if isinstance(first, str) else (first, False)
            if unused:
                refused[name] = check["reason"]
            checks.append(check)
    finally:
        for _, first in begun:  # of a check that ends with an error
            if isinstance(first, str):
                submission_services().simulations.cancel(caller(), first)
    return checks


class _ListedDataset(msgspec.Struct):
    """Of a dataset in a list, what tells whether it can be simulated."""

    name: str
    extends: str | None = None
    simulator: str | None = None
    tasks: int | None = None


def _datasets_with_scenarios() -> list[tuple[str, str | None]]:
    """Return the latest versions of the datasets with scenarios, built-in ones first; at most MOST_CHECKS.

    Each with the name of the built-in dataset that it extends; None: it is built in. Templates have no scenarios.
    """
    items, _ = catalogue_services().datasets.page(caller(), limit=MOST_CHECKS)
    listed = msgspec.convert(items, list[_ListedDataset])
    return [(dataset.name, dataset.extends) for dataset in listed if dataset.simulator and dataset.tasks != 0]


def follow(id: str, format: str, headers: Mapping[str, str]) -> Response:
    """Answer with a stream of a simulation's results; the simulation continues if the client disconnects."""
    location = f"/v1/simulations/{id}"
    headers = {**headers, "Location": location, "Link": f'<{location}/results>; rel="results"'}
    lines = analysis_services().results.follow(caller(), id, heartbeat=context().heartbeat)
    chunks = encode_results(lines) if format == "sse" else encode_heartbeats(lines)
    return stream(chunks, RESPONSE_FORMATS[format], status=201, headers=headers)
