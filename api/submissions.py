"""Submitting: from whatever a client sent to a simulation, and from a simulation to the answer the client asked for."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import msgspec
from flask import Response, request
from marshmallow import ValidationError, fields
from werkzeug.datastructures import FileStorage

from api import model_sources
from api.blueprint import json_response
from api.body import base_name, chunks_of, json_object, parse_json, raw_body, read_form
from api.context import context, services
from api.negotiation import choose
from api.problems import invalid
from api.schemas.simulations import LONGEST_WAIT, SimulationSchema, SubmissionOfUpload, SubmissionSchema
from api.streams import NDJSON, SSE, alive, as_events, room, stream
from core.domain.records import Model, Simulation, Submission, Tasks
from core.domain.states import State
from errors import BadRequest, Gone, Invalid, TooManyStreams, UnknownSimulation, UnsupportedMedia

ACCEPTED = {"json": "application/json", "ndjson": NDJSON, "sse": SSE}
#: How long a dry run may take, in seconds; the first one of a runtime makes its environment.
LONGEST_TRIAL = 300
_SCHEMA = SubmissionSchema()
_OF_UPLOAD = SubmissionOfUpload()
_ANSWER = SimulationSchema()
_WAIT = re.compile(r"(?:^|[,;\s])wait\s*=\s*\"?(\d{1,9})\"?(?=$|[,;\s])", re.ASCII | re.IGNORECASE)


def checked(document: Mapping[str, Any]) -> Submission:
    """Read a submission from parsed JSON, or say which field is wrong."""
    try:
        return Submission(**_SCHEMA.load(document))
    except ValidationError as error:
        raise invalid(error.messages) from None


def rerun(document: Mapping[str, Any]) -> Submission:
    """Read the simulation.json of an archive; what it asks for is checked like anything else."""
    if not all(isinstance(document.get(name), dict) for name in ("spec", "provenance")):
        raise Invalid("`spec` and `provenance` are objects in the simulation.json of an archive.")
    asked = msgspec.to_builtins(services().simulations.resubmit(document))
    return checked({name: value for name, value in asked.items() if value is not None})


def from_json(document: Mapping[str, Any]) -> Submission:
    """Read a submission, or an archive's simulation.json in its place."""
    return rerun(document) if "provenance" in document else checked(document)


def from_form() -> tuple[Submission, FileStorage | None]:
    """Read a multipart form: strings as they are, everything else as JSON, the model as a file or a reference."""
    read_form()
    files = request.files.to_dict(flat=False)
    if unknown := sorted(files.keys() - {"model"}):
        raise Invalid(f"Only `model` may be a file; `{unknown[0][:100]}` may not.")
    if len(files.get("model", ())) > 1 or (files and "model" in request.form):
        raise Invalid("Send one model, as a file or by its name.")
    document: dict[str, Any] = {}
    for name, values in request.form.lists():
        if len(values) > 1:
            raise Invalid(f"The field `{name[:100]}` is given {len(values)} times.")
        document[name] = _value_of(name, values[0])
    return checked(document), files["model"][0] if files else None


def _value_of(name: str, text: str) -> Any:
    field = _SCHEMA.fields.get(name)
    if field is None or isinstance(field, fields.String):
        return text
    try:
        # generated clients write Python's words
        return parse_json({"True": "true", "False": "false", "None": "null"}.get(text, text).encode())
    except BadRequest:
        raise Invalid(f"{name}: not valid JSON: {text[:80]!r}.") from None
    except UnicodeEncodeError:
        raise Invalid(f"{name}: not valid text.") from None


def from_upload(document: Mapping[str, Any]) -> tuple[Submission, Model]:
    """Read a submission whose model is a finished upload."""
    try:
        asked = _OF_UPLOAD.load(document)
    except ValidationError as error:
        raise invalid(error.messages) from None
    reference = asked.pop("upload")
    submission = Submission(**asked)
    return submission, model_sources.of_upload(reference, runtime=submission.runtime)


def upload(file: FileStorage, submission: Submission) -> Model:
    """Take in the model that came with a submission."""
    return services().models.add(chunks_of(file.stream), filename=base_name(file.filename), runtime=submission.runtime)


def receive() -> tuple[Submission, Model | None]:
    """Read this request's submission, with the model if it brought one."""
    if request.mimetype == "application/json":
        document = json_object(raw_body())
        if "upload" not in document:
            return from_json(document), None
        return from_upload(document)
    if request.mimetype == "multipart/form-data":
        submission, file = from_form()
        return submission, upload(file, submission) if file else None
    raise UnsupportedMedia(
        "Send `Content-Type: application/json`, or a form (`curl -F model=@policy.onnx -F dataset=car_street`)."
    )


def digest_of(submission: Submission, model: Model | None) -> str:
    """Name a request by what it asks for; the same form sent twice differs in its boundaries, not in this."""
    asked = {"submission": msgspec.to_builtins(submission), "model": model and model.digest}
    return hashlib.sha256(msgspec.json.encode(asked, order="deterministic")).hexdigest()


def first_answer(simulation: Simulation) -> Simulation:
    """Return a simulation as it stood when it was accepted, so that a replayed request has the first answer again."""
    return replace(
        simulation,
        state=State.QUEUED,
        attempt=1,
        tasks=Tasks(total=simulation.tasks.total),
        metrics={},
        approximate=True,
        reason=None,
        executor=None,
        position=None,
        eta=None,
        started_at=None,
        ended_at=None,
    )


def seconds_to_wait(prefer: str | None) -> int | None:
    """Return how long a Prefer header asks to wait (RFC 7240), if it does."""
    match = _WAIT.search(prefer or "")
    return min(int(match[1]), LONGEST_WAIT) if match else None


def created(simulation: Simulation, headers: Mapping[str, str] | None = None) -> Response:
    """Answer that a simulation has been made."""
    location = {"Location": f"/v1/simulations/{simulation.id}"}
    return json_response(_ANSWER.dump(simulation), 201, location | dict(headers or {}))


def submit(
    submission: Submission, model: Model | None, *, key: str | None = None, prefer: str | None = None
) -> Response:
    """Submit, and answer at once, after a while, or with the results as they come."""
    accepted = choose(ACCEPTED)
    if accepted != "json":
        room()
    if submission.dry_run:
        return json_response(tried(submission, model))
    digest = digest_of(submission, model) if key else None
    try:
        simulation, replayed = services().simulations.submit(submission, model=model, key=key, request_digest=digest)
    except UnknownSimulation:
        raise Gone("What this Idempotency-Key made has been deleted since. Use a new key for a new request.") from None
    headers = {"Idempotency-Replayed": "true"} if replayed else {}
    if accepted != "json":
        return followed(simulation, accepted, headers)
    wait = seconds_to_wait(prefer)
    if wait is None:
        return created(first_answer(simulation), headers)
    try:
        simulation = services().simulations.wait(simulation.id, wait)
    except TooManyStreams:
        return created(first_answer(simulation), headers)
    return created(simulation, headers | {"Preference-Applied": f"wait={wait}"})


def tried(submission: Submission, model: Model | None) -> dict[str, Any]:
    """Play one real step and say what came of it, in words; nothing of it is kept."""
    room()
    simulations = services().simulations
    simulation, _ = simulations.submit(submission, model=model)
    simulation = simulations.wait(simulation.id, LONGEST_TRIAL)
    if not simulation.final:
        simulations.cancel(simulation.id)
        reason = f"The trial did not end within {LONGEST_TRIAL} s: {simulation.reason or simulation.state}."
        return {"fits": False, "reason": reason}
    line = b"".join(services().results.lines(simulation.id)).partition(b"\n")[0]
    simulations.delete(simulation.id)
    result = msgspec.json.decode(line) if line else {}
    fits = result.get("status") == "ok"
    return {"fits": fits, "reason": None if fits else result.get("error") or simulation.reason or str(simulation.state)}


def followed(simulation: Simulation, accepted: str, headers: Mapping[str, str]) -> Response:
    """Answer a submission with its results as they come; a hang-up does not stop the simulation."""
    location = f"/v1/simulations/{simulation.id}"
    headers = {**headers, "Location": location, "Link": f'<{location}/results>; rel="results"'}
    lines = services().results.follow(simulation.id, heartbeat=context().heartbeat)
    pieces = as_events(lines) if accepted == "sse" else alive(lines)
    return stream(pieces, ACCEPTED[accepted], status=201, headers=headers)
