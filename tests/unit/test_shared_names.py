"""Names of what is shared: what a reader sees leads back to owner and name, and fits the patterns of requests."""

import re

from hypothesis import given
from hypothesis import strategies as st

from common.patterns import NAME, REFERENCE, SHARED_NAME
from core.domain.access.identities import NAME as PROJECT
from core.domain.access.references import local_reference, shared_name, split_reference

projects = st.from_regex(PROJECT, fullmatch=True)
names = st.from_regex(NAME, fullmatch=True).map(lambda name: name.removesuffix("\n"))


@given(owner=projects, reader=projects, name=names)
def test_a_shared_name_leads_back_to_its_owner_and_its_name(owner: str, reader: str, name: str) -> None:
    seen = shared_name(owner, name, reader)
    assert split_reference(seen) == (("", name) if owner == reader else (owner, name))
    assert local_reference(seen, owner) == name
    assert local_reference(shared_name(owner, name, None), reader) == name
    for reference in (seen, f"{seen}@3", f"{seen}@gold", f"{seen}@sha256:{'0' * 64}"):
        assert re.search(REFERENCE, reference)
    assert re.search(SHARED_NAME, seen)


@given(first=projects, second=projects, name=names)
def test_a_reference_has_one_project_at_most(first: str, second: str, name: str) -> None:
    for text in (f"{first}/{second}/{name}", f"/{name}", f"{first}/", f"../{name}", f"{first}//{name}"):
        assert not re.search(REFERENCE, text) and not re.search(SHARED_NAME, text), text
