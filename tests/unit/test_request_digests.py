"""Request digests: those of 0.2.0 for what it knew, whatever members came later."""

from dataclasses import fields, replace

import pytest

from api.request_digests import comparison_digest, pipeline_digest, submission_digest
from core.domain.comparisons.claims import Claim
from core.domain.comparisons.comparison_requests import ComparisonRequest
from core.domain.pipelines.pipeline_requests import PipelineRequest, StepRequest
from core.domain.submissions.submission import Submission

FULL = Submission(
    dataset="cartpole", labels={"b": "2", "a": "1"}, params={"x": 1.5}, gang={"size": 2, "kind": "mpi"}, timeout=2.0
)
LABELLED = ComparisonRequest(
    models=["a", "b"], dataset="cartpole", labels={"b": "2", "a": "1"}, until=Claim.EQUIVALENT, margin=0.5
)


@pytest.mark.parametrize(
    ("request_", "model", "digest"),
    [
        (Submission(dataset="cartpole"), None, "5f516085acf1b087b95a1369d29aaeaf4446786b1dcb399310bcbd059d84f7d6"),
        (FULL, "sha256:ab", "954ed329abe3b8c3de7108ecac48094b74ace3bf1b68054a8156025e843953be"),
    ],
)
def test_a_submission_has_the_digest_that_0_2_0_gave_it(request_: Submission, model: str | None, digest: str) -> None:
    assert submission_digest(request_, model) == digest


@pytest.mark.parametrize(
    ("request_", "digest"),
    [
        (
            ComparisonRequest(models=["a", "b"], dataset="cartpole"),
            "c6370f0b2c6221de427f88d8c5cc12d1bef99436ce93ddda398e445017a6920d",
        ),
        (LABELLED, "4a0651d093efda55f8d1564eb0319991e244b6d143f036ab1a18d9c81dfefa2f"),
    ],
)
def test_a_comparison_has_the_digest_that_0_2_0_gave_it(request_: ComparisonRequest, digest: str) -> None:
    assert comparison_digest(request_) == digest


def test_a_member_that_came_later_is_in_the_digest_once_it_is_set() -> None:
    assert submission_digest(replace(FULL, worlds=4), None) != submission_digest(FULL, None)
    assert submission_digest(replace(FULL, outputs={"m": {"path": "a"}}), None) != submission_digest(FULL, None)
    assert comparison_digest(replace(LABELLED, trusted=True)) != comparison_digest(LABELLED)


def test_every_member_that_is_set_to_something_else_makes_another_digest() -> None:
    for field in fields(Submission):
        changed = replace(FULL, **{field.name: "another"})
        assert submission_digest(changed, None) != submission_digest(FULL, None), field.name
    for field in fields(ComparisonRequest):
        other = replace(LABELLED, **{field.name: "another"})
        assert comparison_digest(other) != comparison_digest(LABELLED), field.name


def pipeline(**document: object) -> PipelineRequest:
    step = StepRequest(name="one", kind="submission", document={"dataset": "cartpole", **document})
    return PipelineRequest(steps=[step])


def test_a_step_has_the_same_digest_with_the_defaults_that_a_later_version_writes_into_it() -> None:
    assert pipeline_digest(pipeline(worlds="auto", labels={}, runtime=None)) == pipeline_digest(pipeline())
    assert pipeline_digest(pipeline(worlds=2)) != pipeline_digest(pipeline())
