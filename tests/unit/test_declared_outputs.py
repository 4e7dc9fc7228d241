"""Declared outputs: which file becomes an output, and what is refused."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from common.errors import Invalid
from core.domain.submissions.declared_outputs import (
    DeclaredOutput,
    LeftFile,
    MadeOutput,
    choose_file,
    declared_outputs,
    failures_of,
)

POLICY = DeclaredOutput(file="policy.onnx", kind="model")
files = st.builds(LeftFile, st.integers(0, 3), st.sampled_from(["sha256:a", "sha256:b"]))


@given(left=st.lists(files, max_size=6), task=st.none() | st.integers(0, 3))
def test_a_file_is_chosen_exactly_where_all_candidates_have_the_same_bytes(
    left: list[LeftFile], task: int | None
) -> None:
    output = DeclaredOutput(file="policy.onnx", kind="model", task=task)
    digests = {file.digest for file in left if task in {None, file.task}}
    if len(digests) == 1:
        assert choose_file(output, left).digest in digests
    else:
        with pytest.raises(Invalid):
            choose_file(output, left)


def test_different_files_name_two_tasks_and_the_next_step() -> None:
    with pytest.raises(Invalid, match=r"tasks 2 and 5 left different files.*name the `task`"):
        choose_file(POLICY, [LeftFile(2, "sha256:a"), LeftFile(5, "sha256:b")])


@pytest.mark.parametrize(
    ("outputs", "fragment"),
    [
        ({"model": {"file": "a"}}, "as"),
        ({"model": {"file": "a", "as": "weights"}}, "weights"),
        ({"data": {"file": "a.zip", "as": "dataset", "format": "onnx"}}, "a dataset has neither"),
    ],
)
def test_an_output_that_cannot_be_made_is_refused(outputs: dict[str, Any], fragment: str) -> None:
    with pytest.raises(Invalid, match=fragment):
        declared_outputs(outputs)


def test_failures_are_one_sentence_and_none_without_any() -> None:
    made = MadeOutput(kind="model", file="a", name="a")
    assert failures_of({"a": made}) is None
    failed = MadeOutput(kind="model", file="b", error="it is empty")
    assert failures_of({"a": made, "b": failed}) == "not every output was made: b: it is empty"
