"""Settings from the environment: parsing, defaults and refusals."""

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from core.settings import RENAMED, Settings
from scripts import settings as page


def test_a_laptop_needs_no_settings() -> None:
    settings = Settings.from_env({})
    assert (settings.host, settings.port, settings.sandbox) == ("127.0.0.1", 5000, "auto")
    assert settings.database.startswith("sqlite:///") and settings.objects.startswith("file:///")


def test_settings_are_parsed_to_their_types() -> None:
    settings = Settings.from_env(
        {
            "WINDTUNNEL_HOME": "/srv/w",
            "WINDTUNNEL_LEASE_TTL": "2.5",
            "WINDTUNNEL_NAMES": "a.example, b.example",
            "PATH": "/bin",
        }
    )
    assert settings.home == Path("/srv/w")
    assert settings.lease_ttl == timedelta(seconds=2.5)
    assert settings.names == ("a.example", "b.example")


@pytest.mark.parametrize("env", [{"WINDTUNNEL_PROT": "1"}, {"WINDTUNNEL_PORT": "many"}, {"WINDTUNNEL_SANDBOX": "weak"}])
def test_an_unknown_or_invalid_setting_is_an_error_with_its_name(env: dict[str, str]) -> None:
    with pytest.raises(ValueError, match=next(iter(env))):
        Settings.from_env(env)


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_setting_by_its_old_name_is_refused_with_the_new_name(old: str, new: str) -> None:
    with pytest.raises(ValueError, match=f"WINDTUNNEL_{old} is called WINDTUNNEL_{new} now"):
        Settings.from_env({f"WINDTUNNEL_{old}": "1"})
    assert new.lower() in {setting.name for setting in fields(Settings)}


def test_without_a_token_only_this_machine_is_served() -> None:
    with pytest.raises(ValueError, match="WINDTUNNEL_TOKEN"):
        Settings.from_env({"WINDTUNNEL_HOST": "0.0.0.0"})
    assert Settings.from_env({"WINDTUNNEL_HOST": "0.0.0.0", "WINDTUNNEL_TOKEN": "secret"}).token == "secret"
    with pytest.raises(ValueError, match="WINDTUNNEL_TOKEN"):
        Settings.from_env({"WINDTUNNEL_HOST": "0.0.0.0", "WINDTUNNEL_ANONYMOUS": "no"})


def test_an_explicit_setting_permits_service_without_a_token() -> None:
    assert Settings.from_env({"WINDTUNNEL_HOST": "0.0.0.0", "WINDTUNNEL_ANONYMOUS": "yes"}).anonymous
    with pytest.raises(ValueError, match="'yes' or 'no', not 'perhaps'"):
        Settings.from_env({"WINDTUNNEL_ANONYMOUS": "perhaps"})


def test_every_setting_is_documented_with_its_default() -> None:
    assert all(page.descriptions().values()), "a setting has no description"
    assert page.PAGE.read_text() == page.page(), "run `python -m scripts.settings`"
