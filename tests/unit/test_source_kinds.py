"""Kinds of dataset sources: their table, their stored form, and requests that name two of them."""

import json

import msgspec
import pytest

from common.errors import Invalid
from core.domain.access.scopes import LOCAL_CALLER
from core.services.datasets.file_sources import Sources
from core.services.datasets.source_kinds import KINDS, source_of_request, stored_source
from core.services.uploads.uploads import Uploads
from tests.product import ROOT, modules

LINE = {"path": "a", "digest": f"sha256:{'0' * 64}", "size": 1, "source": "s3://fleet/a", "connection": "lab"}
#: Stored sources, as every version since 0.2.0 writes them -> the uploads that they are read from.
STORED_SOURCES = {
    '{"upload": "u1"}': ["u1"],
    '{"uploads": [{"path": "a", "upload": "u2"}, {"path": "b", "upload": "u1"}, {"path": "c", "upload": "u2"}]}': [
        "u2",
        "u1",
    ],
    '{"connection": "lab", "s3": "s3://fleet/drives/"}': [],
    json.dumps({"manifest": [LINE]}, sort_keys=True): [],
    '{"manifest": {"upload": "u1"}}': ["u1"],
    '{"manifest": {"upload": "u1"}, "upload": "u2"}': ["u2", "u1"],
}


@pytest.mark.parametrize("text", STORED_SOURCES)
def test_a_stored_source_is_read_and_written_to_equal_bytes(text: str) -> None:
    source = stored_source(text)
    assert json.dumps(msgspec.to_builtins(source), sort_keys=True) == text
    assert list(source.upload_ids()) == STORED_SOURCES[text]


def test_paths_begin_in_the_top_folder_of_an_archive_alone() -> None:
    assert [stored_source(text).has_archive for text in STORED_SOURCES] == [True, False, False, False, False, True]


@pytest.mark.parametrize("names", [(), ("upload", "uploads"), ("upload", "s3"), ("s3", "manifest"), tuple(KINDS)])
def test_a_request_names_one_kind_or_a_manifest_with_an_archive(names: tuple[str, ...]) -> None:
    with pytest.raises(Invalid) as raised:
        source_of_request(LOCAL_CALLER, dict.fromkeys(names, "x"), Uploads.__new__(Uploads), Sources.__new__(Sources))
    expected = "`source` has one of `upload`, `uploads`, `s3` and `manifest`, or `manifest` and `upload`."
    assert raised.value.detail == expected


def test_a_kind_of_source_is_a_file_that_only_the_table_names() -> None:
    texts = {str(path): (ROOT / path).read_text() for path in modules()}
    kind_modules = [kind.__module__ for kind in KINDS.values()]
    assert len(set(kind_modules)) == len(KINDS)
    for module in kind_modules:
        users = [path for path, text in texts.items() if f"from {module} import" in text]
        assert users == ["core/services/datasets/source_kinds/__init__.py"]
