"""Settings from the environment: parsing, defaults and refusals."""

from dataclasses import fields
from datetime import timedelta
from pathlib import Path

import pytest

from core.settings import RENAMED, Settings
from scripts import settings as page

SECRET = "0123456789abcdef"


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


def test_an_unknown_setting_is_answered_with_the_nearest_ones_not_with_all() -> None:
    with pytest.raises(ValueError, match=r"^unknown settings: WINDTUNNEL_PROT\. Did you mean WINDTUNNEL_PORT\?$"):
        Settings.from_env({"WINDTUNNEL_PROT": "1"})
    with pytest.raises(ValueError, match=r"^unknown settings: WINDTUNNEL_XYZZY\. docs/settings.md lists"):
        Settings.from_env({"WINDTUNNEL_XYZZY": "1"})


def test_an_empty_text_is_no_home() -> None:
    with pytest.raises(ValueError, match="WINDTUNNEL_HOME: an empty text names no folder; name one, or leave"):
        Settings.from_env({"WINDTUNNEL_HOME": ""})


@pytest.mark.parametrize(("old", "new"), RENAMED.items())
def test_a_setting_by_its_old_name_is_refused_with_the_new_name(old: str, new: str) -> None:
    with pytest.raises(ValueError, match=f"WINDTUNNEL_{old} is called WINDTUNNEL_{new} now"):
        Settings.from_env({f"WINDTUNNEL_{old}": "1"})
    assert new.lower() in {setting.name for setting in fields(Settings)}


def test_without_a_token_only_this_machine_is_served() -> None:
    with pytest.raises(ValueError, match="WINDTUNNEL_TOKEN"):
        Settings.from_env({"WINDTUNNEL_HOST": "0.0.0.0"})
    assert Settings.from_env({"WINDTUNNEL_HOST": "0.0.0.0", "WINDTUNNEL_TOKEN": SECRET}).token == SECRET
    with pytest.raises(ValueError, match="WINDTUNNEL_TOKEN"):
        Settings.from_env({"WINDTUNNEL_HOST": "0.0.0.0", "WINDTUNNEL_ANONYMOUS": "no"})


@pytest.mark.parametrize(
    "token",
    [
        "p\N{LATIN SMALL LETTER A WITH DIAERESIS}ssw\u00f6rd-of-the-lab",
        "two words of a token",
        "line\nbreak-in-the-token",
    ],
)
def test_a_token_that_no_header_could_match_is_refused(token: str) -> None:
    with pytest.raises(ValueError, match=r"WINDTUNNEL_TOKEN: .*printable ASCII without spaces") as failure:
        Settings.from_env({"WINDTUNNEL_TOKEN": token})
    assert token not in str(failure.value)


def test_a_short_token_is_refused() -> None:
    with pytest.raises(ValueError, match="WINDTUNNEL_TOKEN: the token has 15 characters; at least 16 are needed"):
        Settings.from_env({"WINDTUNNEL_TOKEN": SECRET[1:]})


@pytest.mark.parametrize("setting", ["BODY_TIMEOUT", "BODY_RATE", "BODIES"])
def test_limits_of_bodies_cannot_be_zero(setting: str) -> None:
    with pytest.raises(ValueError, match=f"WINDTUNNEL_{setting}: "):
        Settings.from_env({f"WINDTUNNEL_{setting}": "0"})


def test_an_explicit_setting_permits_service_without_a_token() -> None:
    assert Settings.from_env({"WINDTUNNEL_HOST": "0.0.0.0", "WINDTUNNEL_ANONYMOUS": "yes"}).anonymous
    with pytest.raises(ValueError, match="'yes' or 'no', not 'perhaps'"):
        Settings.from_env({"WINDTUNNEL_ANONYMOUS": "perhaps"})


def test_every_setting_is_described() -> None:
    assert all(page.descriptions().values()), "a setting has no description"


@pytest.mark.parametrize(
    ("variables", "ports"),
    [
        ({}, (5000, 5001, 5080)),
        ({"PORT": "6000"}, (6000, 6001, 6080)),
        ({"PORT": "6000", "RUNNER_API_PORT": "7000"}, (6000, 7000, 6080)),
        ({"PORT": "6000", "SCS_PORT": "0"}, (6000, 6001, 0)),
        ({"PORT": "65535"}, (65535, 65534, 65455)),
    ],
)
def test_one_variable_moves_a_server_with_all_its_ports(variables: dict[str, str], ports: tuple[int, int, int]) -> None:
    settings = Settings.from_env({f"WINDTUNNEL_{name}": value for name, value in variables.items()})
    assert (settings.port, settings.runner_api_port, settings.scs_port) == ports
    assert settings.runner_api_address == f"http://127.0.0.1:{ports[1]}"


LAPTOP: dict[str, str] = {}
SERVER = {"WINDTUNNEL_HOST": "0.0.0.0", "WINDTUNNEL_TOKEN": SECRET}


@pytest.mark.parametrize(
    ("environ", "allowed"),
    [
        (LAPTOP, True),
        ({"WINDTUNNEL_TOKEN": SECRET}, True),
        (SERVER, False),
        ({"WINDTUNNEL_NAMES": "windtunnel.example"}, False),
        ({"WINDTUNNEL_TRUSTED_PROXIES": "127.0.0.1"}, False),
        ({"WINDTUNNEL_EXECUTORS": "executors.json"}, False),
        (SERVER | {"WINDTUNNEL_TRUSTED": "yes"}, True),
        ({"WINDTUNNEL_TRUSTED": "no"}, False),
        ({"WINDTUNNEL_TRUSTED": "auto"}, True),
    ],
)
def test_trusted_runs_are_allowed_on_a_laptop_or_by_the_operator(environ: dict[str, str], allowed: bool) -> None:
    assert Settings.from_env(environ).allows_trusted is allowed


def test_another_word_than_yes_no_and_auto_does_not_allow_trusted_runs() -> None:
    with pytest.raises(ValueError, match="WINDTUNNEL_TRUSTED: 'auto', 'yes' or 'no', not 'true'"):
        Settings.from_env({"WINDTUNNEL_TRUSTED": "true"})
