"""Access to an API server: address, TLS, proxy and credentials, from a kubeconfig or a pod's service account.

Servers, proxy, certificates, exec plugins and issuer are real; the requests show the effect of a configuration.
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
from tests.contracts.kubernetes_server import Proxy, ScriptedServer, response
from workers.executors.kubernetes.objects import Owner

V1 = "client.authentication.k8s.io/v1"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def tls(authority: Authority) -> ssl.SSLContext:
    """The TLS context of a server that requests client certificates but does not require them."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))  # for localhost, not for 127.0.0.1
    context.load_verify_locations(authority.path)
    context.verify_mode = ssl.CERT_OPTIONAL
    return context


@pytest.fixture
def server(tls: ssl.SSLContext) -> Iterator[ScriptedServer]:
    server = ScriptedServer(tls)
    server.answers = [response(200, {})]
    yield server
    server.close()


@pytest.fixture
def write_kubeconfig(server: ScriptedServer, authority: Authority, tmp_path: Path) -> Callable[..., Path]:
    def make(user: dict[str, Any], **cluster: Any) -> Path:
        cluster = {"server": server.url, "certificate-authority-data": encoded(authority.path)} | cluster
        document = {
            "current-context": "here",
            "contexts": [
                {"name": "here", "context": {"cluster": "c", "user": "u"}},
                {"name": "anonymous", "context": {"cluster": "c"}},
            ],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": user}],
        }
        path = tmp_path / "kubeconfig"
        path.write_text(yaml.safe_dump(document))
        return path

    return make


@pytest.fixture
def open_client() -> Iterator[Callable[[Access | Path], KubernetesClient]]:
    clients: list[KubernetesClient] = []

    def make(access: Access | Path) -> KubernetesClient:
        client = KubernetesClient(Kubeconfig(access) if isinstance(access, Path) else access, time_out=5.0)
        client.check()
        clients.append(client)
        return client

    yield make
    for client in clients:
        client.close()


OpenClient = Callable[[Access | Path], KubernetesClient]
WriteKubeconfig = Callable[..., Path]


def credentials(server: ScriptedServer) -> list[str | None]:
    """Return the Authorization header of each request so far."""
    return [headers.get("authorization") for _, _, headers, _ in server.requests]


# -- server and certificates


def test_a_server_is_verified_with_the_authority_of_the_kubeconfig_only(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient, tmp_path: Path
) -> None:
    open_client(write_kubeconfig({})).get("/x", Owner)
    (tmp_path / "other").mkdir()
    other = Authority(tmp_path / "other")
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        open_client(write_kubeconfig({}, **{"certificate-authority-data": encoded(other.path)})).get("/x", Owner)
    assert len(server.requests) == 1


def test_paths_are_relative_to_the_kubeconfig_s_folder(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    authority: Authority,
    tmp_path: Path,
) -> None:
    (tmp_path / "ca.crt").write_bytes(authority.path.read_bytes())
    (tmp_path / "token").write_text("from-a-file\n")
    path = write_kubeconfig({"tokenFile": "token"}, **{"certificate-authority": "ca.crt"})
    document = yaml.safe_load(path.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path.write_text(yaml.safe_dump(document))
    open_client(path).get("/x", Owner)
    assert credentials(server) == ["Bearer from-a-file"]


def test_tls_server_name_replaces_the_host_name_for_verification(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient
) -> None:
    address = f"https://127.0.0.1:{server.port}"
    with pytest.raises(OSError, match="IP address mismatch"):
        open_client(write_kubeconfig({}, server=address)).get("/x", Owner)
    open_client(write_kubeconfig({}, server=address, **{"tls-server-name": "localhost"})).get("/x", Owner)
    assert len(server.requests) == 1


@pytest.mark.filterwarnings("ignore:Unverified HTTPS request")
def test_insecure_skip_tls_verify_disables_verification(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient
) -> None:
    address = f"https://127.0.0.1:{server.port}"
    path = write_kubeconfig({}, server=address, **{"insecure-skip-tls-verify": True})
    document = yaml.safe_load(path.read_text())
    del document["clusters"][0]["cluster"]["certificate-authority-data"]
    path.write_text(yaml.safe_dump(document))
    open_client(path).get("/x", Owner)
    assert len(server.requests) == 1


def test_a_path_in_the_server_s_address_prefixes_every_request(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient
) -> None:
    open_client(write_kubeconfig({}, server=f"{server.url}/k8s/clusters/c-1/")).get("/api/v1/pods", Owner)
    assert server.requests[0][1] == "/k8s/clusters/c-1/api/v1/pods"


@pytest.mark.parametrize("inline", [True, False])
def test_a_client_certificate_is_presented(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    authority: Authority,
    inline: bool,
) -> None:
    certificate, key = authority.issue("alice")
    if inline:
        user = {"client-certificate-data": encoded(certificate), "client-key-data": encoded(key)}
    else:
        user = {"client-certificate": str(certificate), "client-key": str(key)}
    open_client(write_kubeconfig(user)).get("/x", Owner)
    assert server.client_names == ["alice"]


# -- proxies


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    proxy = Proxy()
    yield proxy
    proxy.close()


def test_a_cluster_is_reached_through_its_proxy(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    open_client(write_kubeconfig({}, **{"proxy-url": proxy.url})).get("/x", Owner)
    assert proxy.tunnels == [f"localhost:{server.port}"]
    assert len(server.requests) == 1


def test_the_environment_s_proxy_is_used_except_for_no_proxy(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    proxy: Proxy,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("https_proxy", "no_proxy", "NO_PROXY", "ALL_PROXY", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTPS_PROXY", proxy.url)
    open_client(write_kubeconfig({})).get("/x", Owner)
    assert proxy.tunnels == [f"localhost:{server.port}"]
    monkeypatch.setenv("NO_PROXY", "10.0.0.0/8,localhost")
    open_client(write_kubeconfig({})).get("/x", Owner)
    assert len(proxy.tunnels) == 1
    assert len(server.requests) == 2


def test_an_unreachable_proxy_is_an_oserror(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient, proxy: Proxy
) -> None:
    proxy.close()
    with pytest.raises(OSError, match="proxy"):
        open_client(write_kubeconfig({}, **{"proxy-url": proxy.url})).get("/x", Owner)
    assert server.requests == []


# -- tokens and passwords


def test_a_user_has_a_token_or_a_password_or_no_credentials(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient
) -> None:
    open_client(write_kubeconfig({"token": "word"})).get("/x", Owner)
    path = write_kubeconfig({"username": "me", "password": "pw"})
    open_client(path).get("/x", Owner)
    open_client(Kubeconfig(path, "anonymous")).get("/x", Owner)
    encoded_password = base64.b64encode(b"me:pw").decode()
    assert credentials(server) == ["Bearer word", f"Basic {encoded_password}", None]


def test_a_changed_token_file_is_read_again(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first\n")
    client = open_client(write_kubeconfig({"tokenFile": "token"}))
    client.get("/x", Owner)
    (tmp_path / "token").write_text("second, longer\n")
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer first", "Bearer second, longer"]
    assert server.connections == 1


@pytest.mark.parametrize("content", ["two\nlines-of-a-secret", "\N{SNOWMAN}-of-a-secret", None])
def test_an_invalid_token_file_is_an_oserror_that_does_not_quote_it(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    tmp_path: Path,
    content: str | None,
) -> None:
    if content is not None:
        (tmp_path / "token").write_text(content)
    with pytest.raises(OSError) as caught:
        open_client(write_kubeconfig({"tokenFile": "token"})).get("/x", Owner)
    assert "of-a-secret" not in str(caught.value)
    assert server.requests == []


@pytest.mark.parametrize("content", [b"\xff\xfe-of-a-secret", b"two\nlines-of-a-secret", None])
def test_a_token_file_that_becomes_invalid_is_an_oserror_until_it_is_repaired(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    tmp_path: Path,
    content: bytes | None,
) -> None:
    token = tmp_path / "token"
    token.write_text("first")
    client = open_client(write_kubeconfig({"tokenFile": "token"}))
    client.get("/x", Owner)
    token.write_bytes(content) if content is not None else token.unlink()
    with pytest.raises(OSError) as caught:
        client.get("/x", Owner)
    assert "of-a-secret" not in str(caught.value)
    token.write_text("second")
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer first", "Bearer second"]


def accepts_only(token: str) -> Callable[[BaseHTTPRequestHandler], None]:
    """Return an answer: 200 to this token, 401 to every other."""

    def answer(request: BaseHTTPRequestHandler) -> None:
        accepted = (request.headers.get("authorization") or "").lower() == f"bearer {token}".lower()
        (response(200, {}) if accepted else response(401, {"message": "Unauthorized"}))(request)

    return answer


def test_refused_credentials_are_reloaded_and_the_request_is_repeated(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient
) -> None:
    client = open_client(write_kubeconfig({"token": "old"}))
    server.answers = [accepts_only("old")]
    client.get("/x", Owner)
    write_kubeconfig({"token": "new"})
    server.answers = [accepts_only("new")]
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer old", "Bearer old", "Bearer new"]


def test_credentials_that_stay_refused_are_an_oserror_and_are_not_reloaded_for_each_request(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient
) -> None:
    server.answers = [accepts_only("another")]
    client = open_client(write_kubeconfig({"token": "old"}))
    for _ in range(5):
        with pytest.raises(OSError, match="401"):
            client.get("/x", Owner)
    assert len(server.requests) == 6


def test_a_kubeconfig_that_becomes_invalid_is_an_oserror(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient
) -> None:
    path = write_kubeconfig({"token": "old"})
    client = open_client(path)
    server.answers = [accepts_only("another")]
    path.write_text("{}")
    with pytest.raises(OSError, match="kubeconfig"):
        client.get("/x", Owner)


def test_a_server_with_a_token_file_needs_no_kubeconfig(
    server: ScriptedServer, open_client: OpenClient, authority: Authority, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("first")
    client = open_client(TokenFile(f"{server.url}/behind", tmp_path / "token", authority.path))
    client.get("/x", Owner)
    assert (server.requests[0][1], credentials(server)) == ("/behind/x", ["Bearer first"])


def test_a_missing_ca_file_is_refused_when_the_client_is_opened(open_client: OpenClient, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="CA certificates"):
        open_client(TokenFile("https://localhost", tmp_path / "token", tmp_path / "ca.crt"))


# -- exec plugins


@pytest.fixture
def plugin(tmp_path: Path) -> Callable[[str], dict[str, Any]]:
    """Return a function that writes an exec plugin, which counts its runs, and returns its kubeconfig entry."""

    def make(script: str) -> dict[str, Any]:
        program = tmp_path / "login"
        program.write_text(f"#!/bin/sh\necho run >> {tmp_path}/count\n{script}\n")
        program.chmod(0o755)
        return {"apiVersion": V1, "command": "./login", "env": [{"name": "WORD", "value": "printed-token"}]}

    return make


def prints_credential(**status: str) -> str:
    credential = json.dumps({"apiVersion": V1, "kind": "ExecCredential", "status": status})
    return f"cat <<EOF\n{credential}\nEOF"


def time_in(seconds: float) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).isoformat().replace("+00:00", "Z")


@pytest.mark.parametrize(("seconds", "runs"), [(3600, 1), (180, 1), (30, 3)])
def test_an_exec_plugin_is_run_again_a_minute_before_its_token_expires(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    plugin: Callable[[str], Any],
    tmp_path: Path,
    seconds: int,
    runs: int,
) -> None:
    entry = plugin(prints_credential(token="$WORD", expirationTimestamp=time_in(seconds)))
    client = open_client(write_kubeconfig({"exec": entry}))
    assert not (tmp_path / "count").exists(), "the plugin is not run before the first request"
    for _ in range(2):
        client.get("/x", Owner)
    assert credentials(server) == ["Bearer printed-token"] * 2
    assert (tmp_path / "count").read_text().count("run") == runs


def test_an_exec_plugin_s_token_without_expiry_is_used_until_it_is_refused(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    plugin: Callable[[str], Any],
    tmp_path: Path,
) -> None:
    client = open_client(write_kubeconfig({"exec": plugin(prints_credential(token="first"))}))
    client.get("/x", Owner)
    plugin(prints_credential(token="second"))
    client.get("/x", Owner)
    server.answers = [accepts_only("second")]
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer first"] * 3 + ["Bearer second"]


def test_an_exec_plugin_s_certificate_is_presented(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    plugin: Callable[[str], Any],
    authority: Authority,
) -> None:
    certificate, key = (path.read_text() for path in authority.issue("bob"))
    entry = plugin(prints_credential(clientCertificateData=certificate, clientKeyData=key))
    open_client(write_kubeconfig({"exec": entry})).get("/x", Owner)
    assert server.client_names == ["bob"]


def test_an_exec_plugin_receives_the_cluster_info(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    plugin: Callable[[str], Any],
    tmp_path: Path,
) -> None:
    entry = plugin(f'echo "$KUBERNETES_EXEC_INFO" > {tmp_path}/info\n{prints_credential(token="word")}')
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"audience": "cluster"}}
    open_client(write_kubeconfig({"exec": entry | {"provideClusterInfo": True}}, extensions=[extension])).get(
        "/x", Owner
    )
    info = json.loads((tmp_path / "info").read_text())
    assert (info["apiVersion"], info["kind"], info["spec"]["interactive"]) == (V1, "ExecCredential", False)
    assert info["spec"]["cluster"]["server"] == server.url
    assert info["spec"]["cluster"]["config"] == {"audience": "cluster"}


@pytest.mark.parametrize(
    "script",
    [
        "echo a-secret; echo a-secret >&2; exit 3",
        "echo a-secret",
        "echo '[\"a-secret\"]'",
        prints_credential(other="a-secret"),
        prints_credential(token="a-secret").replace("/v1", "/v1beta1"),
        "sleep 30; echo a-secret",
    ],
)
def test_a_failed_exec_plugin_is_an_oserror_that_does_not_quote_its_output(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    plugin: Callable[[str], Any],
    script: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    import kube.configuration

    monkeypatch.setattr(kube.configuration, "EXEC_TIMEOUT", 1.0)
    client = open_client(write_kubeconfig({"exec": plugin(script)}))
    with caplog.at_level(logging.DEBUG), pytest.raises(OSError, match=r"exec plugin \./login") as caught:
        client.get("/x", Owner)
    assert "a-secret" not in str(caught.value) + caplog.text
    assert server.requests == [], "no request is sent without credentials"


def test_a_repaired_exec_plugin_is_used_at_the_next_request(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient, plugin: Callable[[str], Any]
) -> None:
    client = open_client(write_kubeconfig({"exec": plugin("exit 1")}))
    with pytest.raises(OSError):
        client.get("/x", Owner)
    plugin(prints_credential(token="word"))
    client.get("/x", Owner)
    assert credentials(server) == ["Bearer word"]


# -- OIDC


def id_token(seconds: float) -> str:
    parts = ({"alg": "none"}, {"exp": int(time.time() + seconds)})
    text = [base64.urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=").decode() for part in parts]
    return ".".join([*text, "signature"])


class Issuer:
    """An OpenID issuer that exchanges its last refresh token for an id token and a new refresh token."""

    def __init__(self, server: ScriptedServer) -> None:
        self.server, self.refresh_token = server, "refresh-1"
        server.answers = [self.answer]
        self.token = id_token(3600)

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        if request.path == "/.well-known/openid-configuration":
            return response(200, {"token_endpoint": f"{self.server.url}/token"})(request)
        assert f"refresh_token={self.refresh_token}".encode() in self.server.requests[-1][3]
        self.refresh_token = f"refresh-{len(self.server.requests)}"
        document = {
            "id_token": self.token,
            "refresh_token": self.refresh_token,
            "access_token": "a",
            "token_type": "Bearer",
        }
        return response(200, document, Content_Type="application/json")(request)


@pytest.fixture
def issuer(tls: ssl.SSLContext) -> Iterator[Issuer]:
    server = ScriptedServer(tls)
    yield Issuer(server)
    server.close()


def oidc(issuer: Issuer, token: str, **options: str) -> dict[str, Any]:
    config = {"client-id": "c", "client-secret": "s", "refresh-token": issuer.refresh_token, "id-token": token}
    return {"auth-provider": {"name": "oidc", "config": config | {"idp-issuer-url": issuer.server.url} | options}}


def test_an_expired_oidc_token_is_refreshed_and_saved(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    issuer: Issuer,
    authority: Authority,
) -> None:
    authorities = {"idp-certificate-authority-data": encoded(authority.path)}
    path = write_kubeconfig(oidc(issuer, id_token(-60), **authorities))
    open_client(path).get("/x", Owner)
    assert credentials(server) == [f"Bearer {issuer.token}"]
    saved = yaml.safe_load(path.read_text())["users"][0]["user"]["auth-provider"]["config"]
    assert (saved["id-token"], saved["refresh-token"]) == (issuer.token, issuer.refresh_token)


def test_a_refused_oidc_token_is_refreshed_by_a_running_process(
    server: ScriptedServer,
    write_kubeconfig: WriteKubeconfig,
    open_client: OpenClient,
    issuer: Issuer,
    authority: Authority,
) -> None:
    first = id_token(310)  # refreshed from five minutes before its expiry on
    path = write_kubeconfig(oidc(issuer, first, **{"idp-certificate-authority-data": encoded(authority.path)}))
    client = open_client(path)
    client.get("/x", Owner)
    document = yaml.safe_load(path.read_text())
    document["users"][0]["user"]["auth-provider"]["config"]["id-token"] = id_token(-1)
    path.write_text(yaml.safe_dump(document))
    server.answers = [accepts_only(issuer.token)]
    client.get("/x", Owner)
    assert credentials(server) == [f"Bearer {first}"] * 2 + [f"Bearer {issuer.token}"]


def test_an_issuer_without_a_configured_authority_is_verified(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient, issuer: Issuer
) -> None:
    path = write_kubeconfig(oidc(issuer, id_token(-60)))
    before = path.read_text()
    with pytest.raises(OSError):
        open_client(path).get("/x", Owner)
    assert issuer.server.requests == [] and server.requests == []
    assert path.read_text() == before


# -- a pod


def test_a_pod_s_service_account_is_used(
    server: ScriptedServer,
    open_client: OpenClient,
    authority: Authority,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    from kubernetes.config import incluster_config

    (tmp_path / "token").write_text("the-pod-s")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(authority.path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", str(server.port))
    client = open_client(access_of())
    client.get("/x", Owner)
    (tmp_path / "token").write_text("replaced")
    server.answers = [accepts_only("replaced")]
    client.get("/x", Owner)  # the package reads the token each minute; a refused token is read again at once
    assert [(value or "").partition(" ")[2] for value in credentials(server)] == ["the-pod-s", "the-pod-s", "replaced"]


def test_outside_of_a_pod_the_error_asks_for_a_kubeconfig(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(ValueError, match="name a kubeconfig"):
        KubernetesClient(InCluster()).check()


# -- invalid kubeconfigs


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
def test_an_invalid_kubeconfig_is_refused_when_the_client_is_opened(tmp_path: Path, content: str, message: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ValueError, match=message) as caught:
        KubernetesClient(Kubeconfig(path)).check()
    assert str(path) in str(caught.value)


def test_an_error_about_an_incomplete_kubeconfig_names_the_fault_and_no_secret(
    write_kubeconfig: WriteKubeconfig, tmp_path: Path
) -> None:
    with pytest.raises(ValueError, match="elsewhere"):
        KubernetesClient(Kubeconfig(write_kubeconfig({}), "elsewhere")).check()
    with pytest.raises(ValueError, match="http or https URL"):
        KubernetesClient(Kubeconfig(write_kubeconfig({}, server="nonsense"))).check()
    with pytest.raises(ValueError, match="cannot be read"):
        KubernetesClient(Kubeconfig(tmp_path / "nothing")).check()
    path = write_kubeconfig({"token": "a-secret"})
    path.write_text(path.read_text().replace("  user:\n    token", "  token"))
    with pytest.raises(ValueError) as caught:
        KubernetesClient(Kubeconfig(path)).check()
    assert "a-secret" not in str(caught.value)


def test_a_403_is_a_refusal_and_does_not_reload_credentials(
    server: ScriptedServer, write_kubeconfig: WriteKubeconfig, open_client: OpenClient
) -> None:
    server.answers = [response(403, {"reason": "Forbidden", "message": "no"})]
    with pytest.raises(ApiRefused):
        open_client(write_kubeconfig({"token": "word"})).get("/x", Owner)
    assert len(server.requests) == 1
