"""Tokens checked by a real API server, and access to the cache service with them."""

import io
import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import jwt
import pytest

from core.domain.access.cluster_accounts import parse
from core.domain.access.scopes import OPERATION
from core.services.access.accounts import Accounts
from core.services.access.cluster_tokens import ClusterTokens
from datasets.scs.authenticators import Identity, open_authenticator
from datasets.scs.authenticators.base import Authenticator, Unavailable
from datasets.scs_client.cache_nodes import CacheNode, StaticMembership
from datasets.scs_client.client import SimpleCache
from server.token_review import AUDIENCE as PLATFORM_AUDIENCE
from server.token_review import TokenReview
from tests.cluster.conftest import AUDIENCE, Account
from tests.cluster.control_plane import ControlPlane, claims_of
from tests.databases import sqlite_database
from tests.ports import free_ports
from tests.system.platform_process import die_with
from tests.waiting import until

MakeAccount = Callable[[str, str], Account]


@pytest.fixture(scope="module")
def authenticator(control_plane: ControlPlane, server_token: Path) -> Authenticator:
    return open_authenticator(authenticator_config(control_plane, server_token))


def authenticator_config(control_plane: ControlPlane, token: Path) -> dict[str, object]:
    """Return the cache service's authenticator configuration."""
    return {
        "Kind": "kubernetes",
        "Audience": AUDIENCE,
        "Server": control_plane.server,
        "CAFile": str(control_plane.authority.path),
        "TokenFile": str(token),
    }


@pytest.fixture(scope="module")
def team(account: MakeAccount) -> Account:
    return account("team-a", "trainer")


def test_a_token_for_the_cache_has_its_namespace_and_account(authenticator: Authenticator, team: Account) -> None:
    identity = authenticator.authenticate(team.token(AUDIENCE))
    assert identity is not None
    assert (identity.namespace, identity.account) == ("team-a", "trainer")


def test_a_token_for_several_audiences_is_valid_if_the_cache_is_among_them(
    authenticator: Authenticator, team: Account
) -> None:
    assert authenticator.authenticate(team.token("another", AUDIENCE)) is not None


@pytest.mark.parametrize("audience", ["another", "SCS", "scs2"])
def test_a_token_for_another_audience_is_invalid(authenticator: Authenticator, team: Account, audience: str) -> None:
    assert authenticator.authenticate(team.token(audience)) is None


def test_a_token_for_the_api_server_itself_is_invalid(authenticator: Authenticator, team: Account) -> None:
    assert authenticator.authenticate(team.token()) is None


def signed(control_plane: ControlPlane, token: str, **changed: object) -> str:
    """Return the token with other claims, signed as the API server signs."""
    kid = jwt.get_unverified_header(token)["kid"]
    return jwt.encode(claims_of(token) | changed, control_plane.signing, algorithm="RS256", headers={"kid": kid})


def test_an_expired_token_is_invalid(control_plane: ControlPlane, authenticator: Authenticator, team: Account) -> None:
    token, now = team.token(AUDIENCE), int(time.time())
    assert authenticator.authenticate(signed(control_plane, token, exp=now + 300)) is not None
    assert authenticator.authenticate(signed(control_plane, token, iat=now - 900, nbf=now - 900, exp=now - 300)) is None


def test_a_token_before_its_not_before_time_is_invalid(
    control_plane: ControlPlane, authenticator: Authenticator, team: Account
) -> None:
    now = int(time.time())
    assert (
        authenticator.authenticate(signed(control_plane, team.token(AUDIENCE), nbf=now + 600, exp=now + 1200)) is None
    )


def test_a_pods_token_is_valid_until_the_pod_is_deleted(
    control_plane: ControlPlane, authenticator: Authenticator, team: Account
) -> None:
    pod = team.pod("short-lived")
    token = team.token(AUDIENCE, pod=pod)
    assert authenticator.authenticate(token) is not None
    control_plane.request("DELETE", f"{team.path}/pods/short-lived?gracePeriodSeconds=0")
    until(lambda: authenticator.authenticate(token) is None)  # API servers cache results for seconds
    team.pod("short-lived")
    assert authenticator.authenticate(token) is None, "a new pod of the same name does not make the token valid"


def test_a_token_of_a_deleted_account_is_invalid(
    control_plane: ControlPlane, authenticator: Authenticator, account: MakeAccount
) -> None:
    deleted_account = account("team-a", "deleted")
    token = deleted_account.token(AUDIENCE)
    control_plane.request("DELETE", f"{deleted_account.path}/serviceaccounts/deleted")
    until(lambda: authenticator.authenticate(token) is None)  # API servers cache results for seconds


def test_a_token_with_another_signature_is_invalid(
    authenticator: Authenticator, team: Account, control_plane: ControlPlane
) -> None:
    from cryptography.hazmat.primitives.asymmetric import rsa

    token = team.token(AUDIENCE)
    kid = jwt.get_unverified_header(token)["kid"]
    other = rsa.generate_private_key(65537, 2048)
    assert (
        authenticator.authenticate(jwt.encode(claims_of(token), other, algorithm="RS256", headers={"kid": kid})) is None
    )
    assert authenticator.authenticate(jwt.encode(claims_of(token), "", algorithm="none", headers={"kid": kid})) is None


@pytest.mark.parametrize("garbage", ["", "x", "a.b.c", "\N{SNOWMAN}", "A" * 100_000, '{"token": 1}'])
def test_a_malformed_token_is_invalid(authenticator: Authenticator, garbage: str) -> None:
    assert authenticator.authenticate(garbage) is None


def test_without_the_right_to_create_token_reviews_the_result_is_unknown(
    control_plane: ControlPlane, team: Account, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text(team.token())
    authenticator = open_authenticator(authenticator_config(control_plane, tmp_path / "token"))
    token = team.token(AUDIENCE)
    with pytest.raises(Unavailable) as caught:
        authenticator.authenticate(token)
    assert token not in str(caught.value)


def test_the_issuers_published_keys_give_the_same_results(
    control_plane: ControlPlane, authenticator: Authenticator, server_token: Path, account: MakeAccount, team: Account
) -> None:
    account("scs", "key-reader").bind("system:service-account-issuer-discovery")
    reader = server_token.parent / "key-reader"
    reader.write_text(Account(control_plane, "scs", "key-reader").token())
    published = open_authenticator(
        {
            "Kind": "jwt",
            "Audience": AUDIENCE,
            "KeysURL": f"{control_plane.server}/openid/v1/jwks",
            "CAFile": str(control_plane.authority.path),
            "TokenFile": str(reader),
        }
    )
    token = team.token(AUDIENCE)
    identity = published.authenticate(token)
    assert identity is not None
    assert Identity(identity.namespace, identity.account) == authenticator.authenticate(token)
    assert published.authenticate(team.token("another")) is None


@pytest.fixture(scope="module")
def service(control_plane: ControlPlane, server_token: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The cache service, configured as in a cluster; yields its address."""
    parent = os.getpid()
    folder, port = tmp_path_factory.mktemp("service"), free_ports(1)[0]
    bucket = {"Name": "private", "Public": False, "BucketQuota": "1Mi", "AllowNamespaces": ["team-a"]}
    document = {
        "Bucket": [bucket],
        "Directory": str(folder / "objects"),
        "Listen": f"127.0.0.1:{port}",
        "KeepFree": 0,
        "Reviewer": authenticator_config(control_plane, server_token),
    }
    (folder / "scs.json").write_text(json.dumps(document))
    command = [sys.executable, "-m", "datasets.scs", "--config", str(folder / "scs.json")]
    with open(folder / "log", "wb") as log:
        process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, preexec_fn=lambda: die_with(parent))
    try:
        until(lambda: listens(port), message=lambda: (folder / "log").read_text())
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        process.wait()


def listens(port: int) -> bool:
    """Return whether the port answers."""
    try:
        socket.create_connection(("127.0.0.1", port), timeout=1).close()
    except OSError:
        return False
    return True


def test_the_cache_serves_only_its_configured_namespaces(
    service: str, team: Account, account: MakeAccount, tmp_path: Path
) -> None:
    digest, file = "sha256:" + "0" * 64, tmp_path / "file"
    file.write_bytes(b"content")
    counts = {}
    for name, token in {
        "allowed namespace": team.token(AUDIENCE, pod=team.pod("reader")),
        "other audience": team.token("another"),
        "other namespace": account("team-b", "trainer").token(AUDIENCE),
    }.items():
        (tmp_path / name).write_text(token)
        cache = SimpleCache(StaticMembership([CacheNode(service)]), token=tmp_path / name, time_out=30)
        cache.put(digest, file)
        cache.get(digest, 7, io.BytesIO())
        counts[name] = cache.counts
        cache.close()
    assert counts == {
        "allowed namespace": {"fills": 1, "hits": 1},
        "other audience": {"refused": 2},
        "other namespace": {"refused": 2},
    }


def test_a_pods_token_acts_in_the_project_of_its_namespace_until_the_pod_is_gone(
    control_plane: ControlPlane, team: Account, tmp_path: Path
) -> None:
    database = sqlite_database(tmp_path / "windtunnel.db")
    accounts = Accounts(database)
    accounts.begin("a token of the operator's own")
    accounts.create_project(OPERATION, "red")
    review = TokenReview(str(control_plane.kubeconfig))
    tokens = ClusterTokens(database, review, parse(["team-a/trainer=red:submitter"]))
    pod = team.pod("in-a-project")
    token = team.token(PLATFORM_AUDIENCE, pod=pod).encode()
    identity = tokens.identify(token)
    assert identity is not None and identity.user == "system:serviceaccount:team-a:trainer"
    assert identity.act_in(None).scope.project == "red"
    assert tokens.identify(team.token(AUDIENCE).encode()) is None, "a token for the cache is for the cache"
    assert tokens.identify(team.token().encode()) is None, "a token for the API server is for nobody else"
    control_plane.request("DELETE", f"{team.path}/pods/in-a-project?gracePeriodSeconds=0")
    until(lambda: tokens.identify(token) is None)  # API servers cache results for seconds
    database.close()
