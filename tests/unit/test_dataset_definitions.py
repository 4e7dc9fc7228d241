"""Definitions of datasets: what records read of them is what their documents have, in every version."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from core.domain.results.declared_results import declared_results
from datasets.catalogue import datasets, versions
from datasets.catalogue.declaration import DatasetDeclaration
from datasets.versions.scenarios import extend
from runtimes.harness.dataset_definition import Definition, definition_of, read_definition
from tests.unit.test_stored_documents import RECORDED

CURRENT = {f"{each.name}@{each.version}": each.definition for name in versions() for each in versions()[name]}
#: Definitions that were changed before they were released, which homes of that time have.
FORMER = {path.stem: json.loads(path.read_bytes()) for path in sorted((RECORDED / "definitions").glob("*.json"))}


#: Of the server's record, what a definition declares that lacks a member.
DEFAULTS = json.loads(msgspec.json.encode(DatasetDeclaration(simulator="", tasks=None, deadline=1.0)))


def registered(path: Path) -> Mapping[str, Any]:
    """Return the definition of a user's dataset from the description that its registration has stored."""
    description = json.loads(path.read_bytes())
    built_in = datasets()[description["extends"]]
    return extend(built_in, name=path.stem, version="1", digest="sha256:1", description=description).definition


REGISTERED = {path.stem: registered(path) for path in sorted((RECORDED / "definitions").glob("*.description"))}
DOCUMENTS = CURRENT | FORMER | REGISTERED


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_evaluators_read_every_definition_as_it_was_written(document: Mapping[str, Any]) -> None:
    definition = definition_of(document)
    assert read_definition(json.dumps(document).encode()) == definition
    assert definition_of(msgspec.msgpack.decode(msgspec.msgpack.encode(document))) == definition
    encoded = json.loads(msgspec.json.encode(definition))
    assert encoded.pop("$members") == document, "a simulator reads members of its own"
    for name in encoded.keys() & document.keys() - {"metrics", "score"}:
        assert encoded[name] == document[name], name
    for name in encoded.keys() - document.keys():
        assert getattr(definition, name) == getattr(Definition(), name), name
    assert [metric.name for metric in definition.metrics] == [metric["name"] for metric in document["metrics"]]
    assert (definition.score and definition.score.metric) == (document["score"] and document["score"]["metric"])


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_the_server_reads_every_definition_as_it_was_written(document: Mapping[str, Any]) -> None:
    declared = msgspec.convert(document, DatasetDeclaration)
    encoded = json.loads(msgspec.json.encode(declared))
    files = encoded.pop("files")
    assert files == [{name: file[name] for name in ("path", "digest")} for file in document.get("files", ())]
    for name in encoded:
        assert encoded[name] == document.get(name, DEFAULTS.get(name)), name


@pytest.mark.parametrize("document", DOCUMENTS.values(), ids=DOCUMENTS.keys())
def test_metrics_score_and_failures_are_read_as_every_definition_has_them(document: Mapping[str, Any]) -> None:
    results = declared_results(document)
    for metric, stored in zip(results.metrics, document["metrics"], strict=True):
        named = msgspec.to_builtins(metric)
        assert {name: stored.get(name) for name in named} == named
    assert json.loads(msgspec.json.encode(results.failure)) == document.get("failure")
    assert (results.score and results.score.metric) == (document["score"] and document["score"]["metric"])
    assert list(results.group_by) == document.get("group_by", [])
