"""Submission spec: where, how wide and how long a simulation runs, as its row has it; the rest of it was resolved."""

from collections.abc import Mapping

import msgspec

from common.errors import Invalid
from core.domain.scheduling.launches import Gang, Placement, replicas
from core.domain.scheduling.worker_resources import ONE_WORKER, WorkerResources, resources_of_worker
from core.domain.submissions.declared_outputs import declared_outputs
from core.domain.submissions.stored_documents import decode_document, unreadable


class SubmissionSpec(msgspec.Struct, frozen=True, kw_only=True):
    """The members of a stored submission (submission.Submission) that are read after it was resolved.

    ``gang`` and ``placement`` as the submission has them: allow-lists are about the members that it names.
    """

    workers: int | None = None
    timeout: float | None = None
    max_failures: int | None = None
    gang: Mapping[str, object] | None = None
    placement: Mapping[str, object] | None = None
    outputs: Mapping[str, Mapping[str, object]] = {}

    @property
    def executor(self) -> str:
        """The executor that it names; empty: any."""
        return str((self.placement or {}).get("executor") or "")

    @property
    def worker_resources(self) -> WorkerResources:
        """The resources of each worker, or replica."""
        return resources_of_worker(msgspec.convert(self.placement, Placement)) if self.placement else ONE_WORKER

    def requested_workers(self, *, dry_run: bool = False) -> int | None:
        """Return the workers that it asks for; None: as many as its executor has."""
        if self.gang:
            return replicas(self.gang)
        return 1 if dry_run else self.workers


def spec_of(text: str) -> SubmissionSpec:
    """Return the spec that a row stores. Raise UnreadableRow if it, its gang or its placement cannot be read."""
    spec = decode_document(text, SubmissionSpec)
    try:
        if spec.gang:
            msgspec.convert(spec.gang, Gang)
        if spec.placement:
            msgspec.convert(spec.placement, Placement)
        if spec.outputs:
            declared_outputs(spec.outputs)
    except (Invalid, msgspec.ValidationError) as error:
        raise unreadable(SubmissionSpec.__name__, error) from None
    return spec
