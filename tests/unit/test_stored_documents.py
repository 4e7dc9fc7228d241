"""Stored documents: what earlier versions have stored is read into records, and written as it was."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from msgspec.structs import replace

from common.errors import Corrupt
from core.domain.comparisons.comparison_spec import comparison_spec_of
from core.domain.submissions.provenance import dataset_of, provenance_of
from core.domain.submissions.stored_documents import decode_document, update_document
from core.domain.submissions.submission import Submission
from core.domain.submissions.submission_spec import SubmissionSpec, spec_of
from core.services.uploads.models import Properties
from datasets.versions.version_description import VersionDescription
from tests.provenances import provenance

#: Documents as these versions have stored them, each shape of them once.
RECORDED = Path(__file__).parents[1] / "recorded" / "documents"
VERSIONS = sorted(path.stem for path in RECORDED.glob("*.ndjson"))


def recorded(version: str, column: str) -> list[str]:
    """Return the documents of a column, as text."""
    rows = (json.loads(line) for line in (RECORDED / f"{version}.ndjson").read_text().splitlines())
    return [row[column] for row in rows if column in row]


def with_unknown_members(value: Any) -> Any:
    """Return a document with a member that this version does not know in each of its objects."""
    if not isinstance(value, dict):
        return value
    return {name: with_unknown_members(member) for name, member in value.items()} | {"of a later version": [None]}


@pytest.mark.parametrize("version", VERSIONS)
def test_every_provenance_is_written_byte_for_byte_as_it_was_stored(version: str) -> None:
    texts = recorded(version, "provenance")
    assert texts
    for text in texts:
        assert json.dumps(provenance_of(text).document()) == text
        assert update_document(text, provenance_of(text)) == text
        assert dataset_of(text) == provenance_of(text).dataset


@pytest.mark.parametrize("version", VERSIONS)
def test_a_change_keeps_what_a_later_version_has_added(version: str) -> None:
    for text in recorded(version, "provenance"):
        document = with_unknown_members(json.loads(text))
        record = provenance_of(json.dumps(document))
        later = replace(record, runtime=replace(record.runtime, environment="another"))
        runtime = document["runtime"] | {"environment": "another"}
        assert json.loads(update_document(json.dumps(document), later)) == document | {"runtime": runtime}


def test_a_member_that_a_change_removes_is_removed() -> None:
    record = provenance(model={"source": {"reference": "s3://a/b"}})
    text = json.dumps(record.document())
    without = replace(record, model=replace(record.model, source=None))
    assert update_document(text, without) == json.dumps(without.document()) != text


def test_a_provenance_in_pythons_json_is_read() -> None:
    text = json.dumps(provenance(model={"source": {"number": float("inf"), "text": "\ud800"}}).document())
    source = provenance_of(text).model.source
    assert source == {"number": float("inf"), "text": "\ud800"}


@pytest.mark.parametrize(("text", "told"), [("{}", "`model`"), ('{"model": 3}', r"\$\.model"), ("{", "Expecting")])
def test_a_provenance_that_no_version_has_stored_is_refused_with_the_member(text: str, told: str) -> None:
    with pytest.raises(Corrupt, match=f"has a Provenance that cannot be read: .*{told}"):
        provenance_of(text)


@pytest.mark.parametrize("version", VERSIONS)
def test_every_submission_is_read_as_it_was_stored(version: str) -> None:
    for text in recorded(version, "spec"):
        document = json.loads(text)
        submission = msgspec.to_builtins(decode_document(text, Submission))
        assert {name: submission[name] for name in document} == document
        added = {name: submission[name] for name in submission.keys() - document.keys()}
        defaults = msgspec.to_builtins(Submission(dataset="noop"))
        assert all(value == defaults[name] for name, value in added.items()), added
        read = msgspec.to_builtins(spec_of(text))
        assert {name: document.get(name, defaults[name]) for name in SubmissionSpec.__struct_fields__} == read


def test_a_spec_of_which_a_member_is_wrong_is_refused_with_the_member() -> None:
    with pytest.raises(Corrupt, match=r"has a SubmissionSpec that cannot be read: .*\$\.workers"):
        spec_of('{"workers": "four"}')


@pytest.mark.parametrize("version", VERSIONS)
def test_every_spec_of_a_comparison_is_read_as_it_was_stored(version: str) -> None:
    for text in recorded(version, "comparison_spec"):
        document = msgspec.to_builtins(comparison_spec_of(text))
        assert json.dumps(document) == text


@pytest.mark.parametrize("version", VERSIONS)
def test_every_description_of_a_dataset_is_read_as_it_was_stored(version: str) -> None:
    for text in recorded(version, "description"):
        document = msgspec.to_builtins(decode_document(text, VersionDescription))
        assert {name: document[name] for name in json.loads(text)} == json.loads(text)


@pytest.mark.parametrize("version", VERSIONS)
def test_the_options_of_every_import_are_read_as_they_were_stored(version: str) -> None:
    for text in recorded(version, "import_options"):
        assert decode_document(text, Properties) == json.loads(text)
