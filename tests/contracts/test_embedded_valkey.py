"""Embedded Valkey: homes whose paths have characters that its configuration, or a URL, could read otherwise."""

import pytest
import redis

from tests.valkey import Valkey


@pytest.mark.parametrize("name", ["with blanks", 'with "quotes" and \\', "a%20b#c?d"])
def test_the_path_of_a_home_may_have_any_characters(tmp_path_factory: pytest.TempPathFactory, name: str) -> None:
    home = tmp_path_factory.mktemp("v") / name  # the path of a socket has at most 107 bytes
    home.mkdir()
    valkey = Valkey(home)
    try:
        with redis.Redis.from_url(valkey.url) as client:
            assert client.ping()
            assert client.client_info()["addr"], "job workers ask for it when they start"
            assert client.config_get("dir")["dir"] == str(home / "valkey")
    finally:
        valkey.kill()
