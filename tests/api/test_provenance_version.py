"""The version of the platform in a provenance: the one member that a release changes."""

import pytest

from common.version import VERSION
from core.services.submissions import resolving
from tests.api.conftest import Submit


def test_provenances_of_two_releases_differ_in_the_version_of_the_platform_alone(
    submit: Submit, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = submit().json["provenance"]
    assert first["platform"].pop("windtunnel") == VERSION
    monkeypatch.setattr(resolving, "VERSION", "9.9.9")
    second = submit().json["provenance"]
    assert second["platform"].pop("windtunnel") == "9.9.9"
    assert second == first
