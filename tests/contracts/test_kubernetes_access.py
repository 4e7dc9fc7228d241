"""How a client finds an API server and proves who it is: by each way that a kubeconfig knows, and in a pod.

Servers, proxy, certificates, exec plugins and issuer are real; the requests tell what came of a configuration.
"""

import base64
import json
import logging
import ssl
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
import yaml

from kube.access import Access, InCluster, Kubeconfig, TokenFile, access_of
from kube.client import KubernetesClient
from kube.messages import ApiRefused
from tests.cluster.authority import Authority, encoded
from tests.contracts.kubernetes_server import Proxy, Server, says
from workers.executors.kubernetes.objects import Owner

V1 = "client.authentication.k8s.io/v1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    """A server's side: it asks clients for a certificate, and takes them without one too."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))  # for localhost, not for 127.0.0.1
    context.load_verify_locations(authority.path)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.fixture
def server(tls: ssl.SSLContext) -> Iterator[Server]:
    made = Server(tls)
    made.answers = [says(200, {})]
    yield made
    made.close()


@pytest.fixture
def kubeconfig(server: Server, authority: Authority, tmp_path: Path) -> Callable[..., Path]:
    def make(user: dict[str, Any], **cluster: Any) -> Path:
        cluster = {"server": server.url, "certificate-authority-data": encoded(authority.path)} | cluster
        document = {
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u"}},
                {"name": "nobody", "context": {"cluster": "c"}},
            ],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    return make


@pytest.fixture
def opened() -> Iterator[Callable[[Access | Path], KubernetesClient]]:
    made: list[KubernetesClient] = []

    def make(access: Access | Path) -> KubernetesClient:
        client = KubernetesClient(Kubeconfig(access) if isinstance(access, Path) else access, time_out=5.0)
        client.check()
        made.append(client)
        return client

    yield make
    for client in made:
        client.close()


Opened = Callable[[Access | Path], KubernetesClient]
Made = Callable[..., Path]


def credentials(server: Server) -> list[str | None]:
    """Return the Authorization header of each request so far."""
    return [headers.get("authorization") for _, _, headers, _ in server.asked]


# -- server and certificates


def test_a_server_is_trusted_by_the_authority_in_the_kubeconfig_alone(
    server: Server, kubeconfig: Made, opened: Opened, tmp_path: Path
) -> None:
    opened(kubeconfig({})).get("/x", Owner)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        opened(kubeconfig({}, **{"certificate-authority-data": encoded(other.path)})).get("/x", Owner)
    assert len(server.asked) == 1


def test_files_are_named_from_the_kubeconfig_s_folder(
    server: Server, kubeconfig: Made, opened: Opened, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.path.read_bytes())
    (tmp_path / "token").write_text("from-a-file\n")
    path = kubeconfig({"tokenFile": "token"}, **{"certificate-authority": "ca.crt"})
    document = yaml.safe_load(path.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path.write_text(yaml.safe_dump(document))
    opened(path).get("/x", Owner)
    assert credentials(server) == ["Bearer from-a-file"]


def test_a_server_may_have_a_certificate_for_another_name(server: Server, kubeconfig: Made, opened: Opened) -> None:
    address = f"https://127.0.0.1:{server.port}"
    with pytest.raises(OSError, match="IP address mismatch"):
        opened(kubeconfig({}, server=address)).get("/x", Owner)
    opened(kubeconfig({}, server=address, **{"tls-server-name": "localhost"})).get("/x", Owner)
    assert len(server.asked) == 1


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_a_server_that_need_not_be_verified_is_not(server: Server, kubeconfig: Made, opened: Opened) -> None:
    address = f"https://127.0.0.1:{server.port}"
    path = kubeconfig({}, server=address, **{"insecure-skip-tls-verify": True})
    document = yaml.safe_load(path.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path.write_text(yaml.safe_dump(document))
    opened(path).get("/x", Owner)
    assert len(server.asked) == 1


def test_a_server_behind_a_path_is_asked_there(server: Server, kubeconfig: Made, opened: Opened) -> None:
    opened(kubeconfig({}, server=f"{server.url}/k8s/clusters/c-1/")).get("/api/v1/pods", Owner)
    assert server.asked[0][1] == "/k8s/clusters/c-1/api/v1/pods"


@pytest.mark.parametrize("inline", [True, False])
def test_a_client_s_certificate_is_shown(
    server: Server, kubeconfig: Made, opened: Opened, authority: Authority, inline: bool
) -> None:
    certificate, key = authority.issue("alice")
    if inline:
        user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    else:
        user = {"client-certificate": str(certificate), "client-key": str(key)}
    opened(kubeconfig(user)).get("/x", Owner)
    assert server.shown == ["alice"]


# -- proxies


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy()
    yield made
    made.close()


def test_a_cluster_is_reached_through_its_proxy(
    server: Server, kubeconfig: Made, opened: Opened, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    opened(kubeconfig({}, **{"proxy-url": proxy.url})).get("/x", Owner)
    assert proxy.tunnels == [f"localhost:{server.port}"]
    assert len(server.asked) == 1


def test_the_environment_s_proxy_is_used_but_for_what_it_excepts(
    server: Server, kubeconfig: Made, opened: Opened, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("https_proxy", "no_proxy", "NO_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    opened(kubeconfig({})).get("/x", Owner)
    assert proxy.tunnels == [f"localhost:{server.port}"]
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,localhost")
    opened(kubeconfig({})).get("/x", Owner)
    assert len(proxy.tunnels) == 1
    assert len(server.asked) == 2


def test_a_proxy_that_is_away_is_an_oserror(server: Server, kubeconfig: Made, opened: Opened, proxy: Proxy) -> None:
    proxy.close()
    with pytest.raises(OSError, match="proxy"):
        opened(kubeconfig({}, **{"proxy-url": proxy.url})).get("/x", Owner)
    assert server.asked == []


# -- tokens and passwords


def test_a_token_or_a_name_and_password_or_nothing(server: Server, kubeconfig: Made, opened: Opened) -> None:
    opened(kubeconfig({"token": "word"})).get("/x", Owner)
    path = kubeconfig({"username": "me", "password": "pw"})
    opened(path).get("/x", Owner)
    opened(Kubeconfig(path, "nobody")).get("/x", Owner)
    both = base64.b64encode(b"me:pw").decode()
    assert credentials(server) == ["Bearer word", f"Basic {both}", None]


def test_a_token_file_is_read_again(server: Server, kubeconfig: Made, opened: Opened, tmp_path: Path) -> None:
    (tmp_path / "token").write_text("first\n")
    client = opened(kubeconfig({"tokenFile": "token"}))
    client.get("/x", Owner)
    (tmp_path / "token").write_text("second, longer\n")
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer first", "Bearer second, longer"]
    assert server.connections == 1


@pytest.mark.parametrize("content", ["two\nlines-of-a-secret", "\N{SNOWMAN}-of-a-secret", None])
def test_a_token_file_without_a_token_is_an_oserror_that_repeats_nothing(
    server: Server, kubeconfig: Made, opened: Opened, tmp_path: Path, content: str | None
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(OSError) as caught:
        opened(kubeconfig({"tokenFile": "token"})).get("/x", Owner)
    assert "of-a-secret" not in str(caught.value)
    assert server.asked == []


@pytest.mark.parametrize("content", [b"\xff\xfe-of-a-secret", b"two\nlines-of-a-secret", None])
def test_a_token_file_that_breaks_while_it_is_used_is_an_oserror_until_it_is_whole_again(
    server: Server, kubeconfig: Made, opened: Opened, tmp_path: Path, content: bytes | None
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    client = opened(kubeconfig({"tokenFile": "token"}))
    client.get("/x", Owner)
    token.write_bytes(content) if content is not None else token.unlink()
    with pytest.raises(OSError) as caught:
        client.get("/x", Owner)
    assert "of-a-secret" not in str(caught.value)
    token.write_text("second")
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer first", "Bearer second"]


def only(token: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Answer 401 to all other tokens."""

    def answer(asked: BaseHTTPRequestHandler) -> None:
        good = (asked.headers.get("authorization") or "").lower() == f"bearer {token}".lower()
        (says(200, {}) if good else says(401, {"message": "Unauthorized"}))(asked)

    return answer


def test_credentials_that_are_refused_are_loaded_again_and_the_request_succeeds(
    server: Server, kubeconfig: Made, opened: Opened
) -> None:
    client = opened(kubeconfig({"token": "old"}))
    server.answers = [only("old")]
    client.get("/x", Owner)
    kubeconfig({"token": "new"})
    server.answers = [only("new")]
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer old", "Bearer old", "Bearer new"]


def test_credentials_that_stay_refused_are_an_oserror_and_are_not_loaded_for_each_request(
    server: Server, kubeconfig: Made, opened: Opened
) -> None:
    server.answers = [only("another")]
    client = opened(kubeconfig({"token": "old"}))
    for _ in range(5):
        with pytest.raises(OSError, match="401"):
            client.get("/x", Owner)
    assert len(server.asked) == 6


def test_a_kubeconfig_that_breaks_while_it_is_used_is_an_oserror(
    server: Server, kubeconfig: Made, opened: Opened
) -> None:
    path = kubeconfig({"token": "old"})
    client = opened(path)
    server.answers = [only("another")]
    path.write_text("{}")
    with pytest.raises(OSError, match="kubeconfig"):
        client.get("/x", Owner)


def test_a_server_with_a_token_file_needs_no_kubeconfig(
    server: Server, opened: Opened, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first")
    client = opened(TokenFile(f"{server.url}/behind", tmp_path / "token", authority.path))
    client.get("/x", Owner)
    assert (server.asked[0][1], credentials(server)) == ("/behind/x", ["Bearer first"])


def test_an_authority_that_is_not_there_is_told_at_the_start(opened: Opened, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="CA certificates"):
        opened(TokenFile("https://localhost", tmp_path / "token", tmp_path / "ca.crt"))


# -- exec plugins


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Write an exec plugin, which counts its runs; return its entry in a kubeconfig."""

    def make(script: str) -> dict[str, Any]:
        program = tmp_path / "login"
        program.write_text(f"#!/bin/sh\necho run >> {tmp_path}/count\n{script}\n")
        program.chmod(0o755)
        return {"apiVersion": V1, "command": "./login", "env": [{"name": "WORD", "value": "made-up"}]}

    return make


def printing(**status: str) -> str:
    credential = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})
    return f"cat <<EOF\n{credential}\nEOF"


def in_seconds(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(("seconds", "runs"), [(3600, 1), (180, 1), (30, 3)])
def test_an_exec_plugin_is_run_again_a_minute_before_its_token_expires(
    server: Server,
    kubeconfig: Made,
    opened: Opened,
    plugin: Callable[[str], Any],
    tmp_path: Path,
    seconds: int,
    runs: int,
) -> None:
    entry = plugin(printing(token="$WORD", expirationTimestamp=in_seconds(seconds)))
    client = opened(kubeconfig({"exec": entry}))
    assert not (tmp_path / "count").exists(), "nothing runs before there is a request"
    for _ in range(2):
        client.get("/x", Owner)
    assert credentials(server) == ["Bearer made-up"] * 2
    assert (tmp_path / "count").read_text().count("run") == runs


def test_an_exec_plugin_s_token_without_expiry_is_used_until_it_is_refused(
    server: Server, kubeconfig: Made, opened: Opened, plugin: Callable[[str], Any], tmp_path: Path
) -> None:
    client = opened(kubeconfig({"exec": plugin(printing(token="first"))}))
    client.get("/x", Owner)
    plugin(printing(token="second"))
    client.get("/x", Owner)
    server.answers = [only("second")]
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer first"] * 3 + ["Bearer second"]


def test_an_exec_plugin_s_certificate_is_shown(
    server: Server, kubeconfig: Made, opened: Opened, plugin: Callable[[str], Any], authority: Authority
) -> None:
    certificate, key = (path.read_text() for path in authority.issue("bob"))
    entry = plugin(printing(clientCertificateData=certificate, clientKeyData=key))
    opened(kubeconfig({"exec": entry})).get("/x", Owner)
    assert server.shown == ["bob"]


def test_an_exec_plugin_learns_of_its_cluster(
    server: Server, kubeconfig: Made, opened: Opened, plugin: Callable[[str], Any], tmp_path: Path
) -> None:
    entry = plugin(f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n{printing(token="word")}')
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "cluster"}}
    opened(kubeconfig({"exec": entry | {"provideClusterInfo": True}}, extensions=[extension])).get("/x", Owner)
    told = json.loads((tmp_path / "info").read_text())
    assert (told["apiVersion"], told["kind"], told["spec"]["interactive"]) == (V1, "ExecCredential", False)
    assert told["spec"]["cluster"]["server"] == server.url
    assert told["spec"]["cluster"]["config"] == {"audience": "cluster"}


@pytest.mark.parametrize(
    "script",
    [
        "echo a-secret; echo a-secret >&2; exit 3",
        "echo a-secret",
        "echo '[\"a-secret\"]'",
        printing(other="a-secret"),
        printing(token="a-secret").replace("/v1", "/v1beta1"),
        "sleep 30; echo a-secret",
    ],
)
def test_an_exec_plugin_that_fails_is_an_oserror_that_repeats_nothing_of_its_output(
    server: Server,
    kubeconfig: Made,
    opened: Opened,
    plugin: Callable[[str], Any],
    script: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import kube.configuration

    monkeypatch.setattr(kube.configuration, "EXEC_TIMEOUT", 1.0)
    client = opened(kubeconfig({"exec": plugin(script)}))
    with caplog.at_level(logging.DEBUG), pytest.raises(OSError, match=r"exec plugin \./login") as caught:
        client.get("/x", Owner)
    assert "a-secret" not in str(caught.value) + caplog.text
    assert server.asked == [], "nobody goes on without credentials"


def test_a_plugin_that_works_again_is_used_at_the_next_request(
    server: Server, kubeconfig: Made, opened: Opened, plugin: Callable[[str], Any]
) -> None:
    client = opened(kubeconfig({"exec": plugin("exit 1")}))
    with pytest.raises(OSError):
        client.get("/x", Owner)
    plugin(printing(token="word"))
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer word"]


# -- OIDC


def id_token(seconds: float) -> str:
    parts = ({"alg": "none"}, {"exp": int(time.time() + seconds)})
    text = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*text, "signature"])


class Issuer:
    """An OpenID issuer that gives a new token, and a new refresh token, for its last refresh token."""

    def __init__(self, server: Server) -> None:
        self.server, self.given = server, "refresh-1"
        server.answers = [self.answer]
        self.token = id_token(3600)

    def answer(self, asked: BaseHTTPRequestHandler) -> None:
        if asked.path == "/.well-known/openid-configuration":
            return says(200, {"token_endpoint": f"{self.server.url}/token"})(asked)
        assert f"refresh_token={self.given}".encode() in self.server.asked[-1][3]
        self.given = f"refresh-{len(self.server.asked)}"
        answer = {"id_token": self.token, "refresh_token": self.given, "access_token": "a", "token_type": "Bearer"}
        return says(200, answer, Content_Type="application/json")(asked)


@pytest.fixture
def issuer(tls: ssl.SSLContext) -> Iterator[Issuer]:
    made = Server(tls)
    yield Issuer(made)
    made.close()


def oidc(issuer: Issuer, token: str, **more: str) -> dict[str, Any]:
    config = {"client-id": "c", "client-secret": "s", "refresh-token": issuer.given, "id-token": token}
    return {"auth-provider": {"name": "oidc", "config": config | {"idp-issuer-url": issuer.server.url} | more}}


def test_an_oidc_token_that_has_expired_is_refreshed_and_kept(
    server: Server, kubeconfig: Made, opened: Opened, issuer: Issuer, authority: Authority
) -> None:
    authorities = {"idp-certificate-authority-data": encoded(authority.path)}
    path = kubeconfig(oidc(issuer, id_token(-60), **authorities))
    opened(path).get("/x", Owner)
    assert credentials(server) == [f"Bearer {issuer.token}"]
    kept = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (kept["id-token"], kept["refresh-token"]) == (issuer.token, issuer.given)


def test_an_oidc_token_that_is_refused_is_refreshed_by_a_process_that_goes_on(
    server: Server, kubeconfig: Made, opened: Opened, issuer: Issuer, authority: Authority
) -> None:
    first = id_token(310)  # refreshed from five minutes before its expiry on
    path = kubeconfig(oidc(issuer, first, **{"idp-certificate-authority-data": encoded(authority.path)}))
    client = opened(path)
    client.get("/x", Owner)
    document = yaml.safe_load(path.read_text())
    document["users"][0]["user"]["auth-provider"]["config"]["id-token"] = id_token(-1)
    path.write_text(yaml.safe_dump(document))
    server.answers = [only(issuer.token)]
    client.get("/x", Owner)
    assert credentials(server) == [f"Bearer {first}"] * 2 + [f"Bearer {issuer.token}"]


def test_an_issuer_whose_authority_is_not_named_is_verified_all_the_same(
    server: Server, kubeconfig: Made, opened: Opened, issuer: Issuer
) -> None:
    path = kubeconfig(oidc(issuer, id_token(-60)))
    before = path.read_text()
    with pytest.raises(OSError):
        opened(path).get("/x", Owner)
    assert issuer.server.asked == [] and server.asked == []
    assert path.read_text() == before


# -- a pod


def test_a_pod_s_service_account_is_used(
    server: Server, opened: Opened, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from kubernetes.config import incluster_config

    (tmp_path / "token").write_text("the-pod-s")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority.path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    client = opened(access_of())
    client.get("/x", Owner)
    (tmp_path / "token").write_text("replaced")
    server.answers = [only("replaced")]
    client.get("/x", Owner)  # the package reads it each minute, and a refused one is read at once
    assert [(value or "").partition(" ")[2] for value in credentials(server)] == ["the-pod-s", "the-pod-s", "replaced"]


def test_outside_of_a_pod_a_kubeconfig_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ValueError, match="name a kubeconfig"):
        KubernetesClient(InCluster()).check()


# -- mistakes


HERE = "{current-context: x, contexts: [{name: x, context: {cluster: c}}]"


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "not a usable kubeconfig"),
        ("just words", "not a kubeconfig"),
        ("{", "not a kubeconfig"),
        ("{contexts: [], clusters: [], users: []}", "current-context"),
        ("{current-context: x, contexts: [{name: x, context: {cluster: c}}], clusters: []}", "name c in"),
        (
            "{current-context: x, contexts: [{name: x, context: {cluster: c}}], clusters: [{name: c, cluster: {}}]}",
            "key server",
        ),
    ],
)
def test_what_is_not_a_kubeconfig_is_told_at_the_start(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        KubernetesClient(Kubeconfig(path)).check()
    assert str(path) in str(caught.value)


def test_a_kubeconfig_that_lacks_something_says_what_and_repeats_no_secret(kubeconfig: Made, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="elsewhere"):
        KubernetesClient(Kubeconfig(kubeconfig({}), "elsewhere")).check()
    with pytest.raises(ValueError, match="http or https URL"):
        KubernetesClient(Kubeconfig(kubeconfig({}, server="nonsense"))).check()
    with pytest.raises(ValueError, match="cannot be read"):
        KubernetesClient(Kubeconfig(tmp_path / "nothing")).check()
    path = kubeconfig({"token": "a-secret"})
    path.write_text(path.read_text().replace("  user:\n    token", "  token"))
    with pytest.raises(ValueError) as caught:
        KubernetesClient(Kubeconfig(path)).check()
    assert "a-secret" not in str(caught.value)


def test_a_refusal_by_the_server_is_not_a_matter_of_credentials(
    server: Server, kubeconfig: Made, opened: Opened
) -> None:
    server.answers = [says(403, {"reason": "Forbidden", "message": "no"})]
    with pytest.raises(ApiRefused):
        opened(kubeconfig({"token": "word"})).get("/x", Owner)
    assert len(server.asked) == 1
