"""Requests of the client: which addresses it can be made to call."""

import pytest

from windtunnel import Client, WindtunnelError
from windtunnel.records import Model, read

MODEL = read(Model, {"id": "a", "name": "idm", "version": 1, "digest": "d", "format": "python", "size": 1, "tags": []})


def test_the_token_is_not_sent_to_another_host() -> None:
    with Client("http://localhost:1", token="secret") as client:
        for address in ("http://elsewhere.example/v1/models", "elsewhere", "//elsewhere.example/v1", ""):
            with pytest.raises(WindtunnelError, match=r"not a path of the platform|No platform answers at"):
                client.get(address)


@pytest.mark.parametrize("name", ["", ".", "..", MODEL, None, 1.5])
def test_what_is_not_a_name_is_refused_before_a_request(name: object) -> None:
    with Client("http://localhost:1") as client, pytest.raises(WindtunnelError, match="is not a name or an id"):
        client.models.get(name)  # type: ignore[arg-type]


def test_records_can_be_members_of_sets() -> None:
    assert {MODEL, read(Model, dict(MODEL.raw))} == {MODEL}
