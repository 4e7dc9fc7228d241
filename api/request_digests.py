"""Request digests: by which a request with an Idempotency-Key is recognised when it is sent again.

Equal requests have equal digests in processes of every version since 0.2.0: in a rolling upgrade the second may be
answered by another version than the first, and keys are valid for a day. Members that came later are therefore left out
where they have their defaults, which is what an earlier version takes their absence for.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping

import msgspec

from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.pipelines.pipeline_requests import PipelineRequest, StepRequest
from core.domain.submissions.submission import Submission

#: Members that 0.2.0 had, and put into digests whatever their values. No later member is added here.
_SUBMISSION_MEMBERS = frozenset(
    "dataset runtime model scenarios params sweep repeat workers seed record labels timeout max_failures dry_run"
    " placement gang model_reference connection format log_to_run model_seeds".split()
)
_COMPARISON_MEMBERS = frozenset(
    "models dataset reference runtimes metric error_rate design method bound margin until family play_all scenarios"
    " params sweep repeat seed workers record labels placement".split()
)


def submission_digest(submission: Submission, model: str | None) -> str:
    """Return the digest of a submission; ``model``: the digest of the model that came with it, if one did.

    Equal forms have equal digests although their boundaries differ.
    """
    members = dict(sorted(_members(submission, _SUBMISSION_MEMBERS)))
    return _sha256({"model": model, "submission": members})


def comparison_digest(request: ComparisonRequest) -> str:
    """Return the digest of a comparison that is requested."""
    return _sha256(dict(_members(request, _COMPARISON_MEMBERS)))


def pipeline_digest(request: PipelineRequest) -> str:
    """Return the digest of a pipeline that is requested. 0.2.0 knew none: members are left out at defaults."""
    steps = [msgspec.to_builtins(step) | {"document": _set_members(step)} for step in request.steps]
    content = {"name": request.name, "labels": request.labels, "fresh": request.fresh, "steps": steps}
    return hashlib.sha256(msgspec.json.encode(content, order="deterministic")).hexdigest()


def _set_members(step: StepRequest) -> dict[str, object]:
    """Return what the document of a step says: without members that have their defaults."""
    request = Submission if step.kind == "submission" else ComparisonRequest
    defaults = {field.name: msgspec.to_builtins(_default(field)) for field in dataclasses.fields(request)}
    return {name: value for name, value in step.document.items() if name not in defaults or value != defaults[name]}


def _members(request: Submission | ComparisonRequest, always: frozenset[str]) -> Iterator[tuple[str, msgspec.Raw]]:
    """Yield the members that are in a digest, in the order of their declaration, each as JSON."""
    for field in dataclasses.fields(request):
        value: object = getattr(request, field.name)
        if field.name in always or value != _default(field):
            yield field.name, msgspec.Raw(msgspec.json.encode(value, order="deterministic"))


def _default(field: "dataclasses.Field[object]") -> object:
    """Return the default of a member, or None for a member that every request has."""
    if field.default_factory is not dataclasses.MISSING:
        return field.default_factory()
    return None if field.default is dataclasses.MISSING else field.default


def _sha256(members: Mapping[str, object]) -> str:
    """Return the digest of members in their order, which is that of 0.2.0."""
    return hashlib.sha256(msgspec.json.encode(members)).hexdigest()
