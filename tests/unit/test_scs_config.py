"""Configuration of the cache service: the published JSON form, and the errors."""

import json
from pathlib import Path
from typing import Any

import pytest

from datasets.scs.__main__ import is_loopback
from datasets.scs.authenticators import open_authenticator
from datasets.scs.config import load, parse, quantity

PUBLISHED = {"Bucket": [{"Name": "b", "Public": False, "BucketQuota": "100Gi", "AllowNamespaces": ["ns1", "ns2"]}]}


def test_the_published_form_is_accepted() -> None:
    config = parse(PUBLISHED)
    bucket = config.buckets["b"]
    assert (bucket.quota, bucket.public, config.capacity) == (100 << 30, False, 100 << 30)
    assert bucket.allows("ns1") and not bucket.allows("ns3")


def test_the_laptop_configuration_is_valid() -> None:
    config = load(Path("datasets/scs/laptop.json"))
    assert set(config.buckets) == {"public", "private"} and config.host == "127.0.0.1" and config.port == 5080
    assert config.buckets["public"].public and not config.buckets["private"].public
    identity = open_authenticator(config.authenticator).authenticate("laptop")
    assert identity is not None and config.buckets["private"].allows(identity.namespace)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("128974848", 128974848),
        (128974848, 128974848),
        ("129e6", 129_000_000),
        ("129M", 129_000_000),
        ("123Mi", 123 << 20),
        ("1.5Gi", 3 << 29),
        (".5Ki", 512),
        ("1.", 1),
        ("+1k", 1000),
        ("1E", 10**18),
        ("1E3", 1000),
        ("128974848000m", 128974848),
        ("1m", 1),
        ("0.1", 1),
    ],
)
def test_quantities_follow_kubernetes_grammar(text: str | int, value: int) -> None:
    assert quantity(text) == value


@pytest.mark.parametrize(
    "text", ["", "Gi", "1KiB", "1K", "1 Gi", "-1", "1e", "0x10", "٣", "16Ei", "1e99", 1.5, True, None, []]
)
def test_an_invalid_quantity_is_refused(text: Any) -> None:
    with pytest.raises(ValueError):
        quantity(text)


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ([], "JSON object"),
        ({}, "Bucket is missing"),
        ({"Bucket": []}, "at least one"),
        (PUBLISHED | {"Buckets": []}, "unknown key 'Buckets'"),
        ({"Bucket": [{"Name": "b", "BucketQuota": "1Gi", "public": True}]}, "number 0: unknown key 'public'"),
        ({"Bucket": [{"Name": "b"}]}, "BucketQuota is needed"),
        ({"Bucket": [{"Name": "a/b", "BucketQuota": "1"}]}, "Name is needed"),
        ({"Bucket": PUBLISHED["Bucket"] * 2}, "two buckets of the name"),
        ({"Bucket": [{"Name": "b", "BucketQuota": "1", "AllowNamespaces": "ns"}]}, "list of strings"),
        ({"Bucket": [{"Name": "b", "BucketQuota": "1", "Public": "yes"}]}, "true or false"),
        ({"Bucket": [{"Name": "b", "BucketQuota": "1", "Eviction": "mru"}]}, "Eviction is one of"),
        (PUBLISHED | {"Listen": "5080"}, "host:port"),
        (PUBLISHED | {"Limits": {"Connection": 1}}, "unknown key 'Connection'"),
    ],
)
def test_an_error_names_the_key(document: Any, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse(document)


def test_no_error_and_no_repr_contains_a_token(tmp_path: Path) -> None:
    secret = "very-secret-token"
    config = parse(PUBLISHED | {"Reviewer": {"Kind": "static", "Tokens": [{"Token": secret, "Name": "x"}]}})
    assert secret not in repr(config)
    with pytest.raises(ValueError) as authenticator_error:
        open_authenticator(config.authenticator)
    assert secret not in str(authenticator_error.value)
    path = tmp_path / "scs.json"
    path.write_text(json.dumps({"Reviewer": {"Tokens": secret}}) + "}")
    with pytest.raises(ValueError) as config_error:
        load(path)
    assert secret not in str(config_error.value)


@pytest.mark.parametrize(
    ("token", "fault"), [("sch\u00f6n-und-lang-genug", "printable ASCII"), ("0123456789abcde", "16")]
)
def test_a_token_that_cannot_match_or_can_be_guessed_is_refused_where_others_reach_the_service(
    token: str, fault: str
) -> None:
    authenticator = {"Kind": "static", "Tokens": [{"Token": token, "Namespace": "team"}]}
    with pytest.raises(ValueError, match=f"Tokens number 0: .*{fault}") as failure:
        open_authenticator(authenticator, local=False)
    assert token not in str(failure.value)


def test_a_token_for_this_machine_alone_may_be_short() -> None:
    authenticator = open_authenticator(
        {"Kind": "static", "Tokens": [{"Token": "laptop", "Namespace": "x"}]}, local=True
    )
    assert authenticator.authenticate("laptop") is not None


@pytest.mark.parametrize(
    ("host", "local"), [("127.0.0.1", True), ("::1", True), ("localhost", True), ("0.0.0.0", False), ("cache", False)]
)
def test_loopback_addresses_are_local(host: str, local: bool) -> None:
    assert is_loopback(host) is local
