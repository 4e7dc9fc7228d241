"""Contract of the authenticators. Another adapter is tested by an additional `AuthenticatorCase` in `case` below.

The TokenReview adapter runs against an HTTPS server that answers a TokenReview as an API server does; tests/cluster
runs it against a real API server.
"""

import base64
import datetime
import http.server
import json
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from datasets.scs.authenticators import Authenticator, Identity, Unavailable, open_authenticator
from datasets.scs.authenticators.kubernetes import identity_from_review
from datasets.scs.authenticators.signed_tokens import (
    KEYS_TTL,
    MIN_REFETCH,
    MIN_RETRY_WITHOUT_KEYS,
    JwtAuthenticator,
    jwks_fetcher,
)
from datasets.scs.token_cache import ACCEPTED_TTL, REJECTED_TTL, TokenCache

AUDIENCE, ISSUER = "scs", "https://issuer.example"
CACHE_TOKEN = "the-caches-own-token"


@dataclass
class AuthenticatorCase:
    """An authenticator, and a function that issues its tokens: by namespace, account, audience and seconds to live."""

    authenticator: Authenticator
    token: Callable[[str, str, str, float], str]


class Issuer:
    """Signs service accounts' tokens as Kubernetes does, and publishes its keys."""

    def __init__(self) -> None:
        self.keys: dict[str, ec.EllipticCurvePrivateKey] = {}
        self.rotate("first")

    def rotate(self, kid: str) -> None:
        self.keys = {**self.keys, kid: ec.generate_private_key(ec.SECP256R1())}
        self.kid = kid

    def published(self) -> bytes:
        keys = []
        for kid, key in self.keys.items():
            document = json.loads(jwt.algorithms.ECAlgorithm.to_jwk(key.public_key()))
            keys.append(document | {"kid": kid, "use": "sig", "alg": "ES256"})
        return json.dumps({"keys": keys}).encode()

    def token(
        self, namespace: str, account: str, audience: str = AUDIENCE, ttl: float = 600.0, **claim_overrides: Any
    ) -> str:
        now = time.time()
        claims = {
            "aud": [audience],
            "exp": int(now + ttl),
            "iat": int(now),
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": {"namespace": namespace, "pod": {"name": "p"}, "serviceaccount": {"name": account}},
        }
        return jwt.encode(claims | claim_overrides, self.keys[self.kid], algorithm="ES256", headers={"kid": self.kid})


class ApiServer(http.server.BaseHTTPRequestHandler):
    """Answers TokenReviews, and publishes its issuer's keys, to requests with the cache's own token."""

    issuer: Issuer
    invalid: set[str]

    def do_POST(self) -> None:
        review = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {CACHE_TOKEN}":
            self._respond(401, {"kind": "Status", "reason": "Unauthorized", "code": 401})
            return
        assert self.path == "/apis/authentication.k8s.io/v1/tokenreviews" and review["kind"] == "TokenReview"
        self._respond(201, review | {"status": self._status(**review["spec"])})

    def _status(self, token: str, audiences: list[str]) -> dict[str, Any]:
        if token in self.invalid:
            return {"user": {}, "error": "[invalid bearer token, service account token is not valid yet]"}
        try:
            key = jwt.PyJWKSet.from_json(self.issuer.published().decode())[jwt.get_unverified_header(token)["kid"]]
            claims = jwt.decode(token, key, algorithms=["ES256"], audience=audiences)
        except (jwt.PyJWTError, KeyError):
            return {"user": {}, "error": "invalid bearer token"}
        groups = ["system:serviceaccounts", "system:authenticated"]
        return {"authenticated": True, "user": {"username": claims["sub"], "groups": groups}, "audiences": audiences}

    def do_GET(self) -> None:
        self._respond(200, json.loads(self.issuer.published()))

    def _respond(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def server_context(folder: Path) -> ssl.SSLContext:
    """Return a server's TLS context with a self-signed certificate for localhost, written to ca.crt."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    now = datetime.datetime.now(datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(now - datetime.timedelta(days=1)).not_valid_after(
        now + datetime.timedelta(days=1)
    )
    builder = builder.add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
    builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
    (folder / "ca.crt").write_bytes(builder.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM))
    key_format = serialization.PrivateFormat.PKCS8
    encryption = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, key_format, encryption))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    return context


@contextmanager
def api_server(folder: Path, issuer: Issuer) -> Iterator[tuple[str, set[str]]]:
    """Serve; yield the address, and a set to which tests add the tokens whose account or pod is deleted."""
    invalid: set[str] = set()
    handler = type("Served", (ApiServer,), {"issuer": issuer, "invalid": invalid})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = server_context(folder).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"https://localhost:{server.server_address[1]}", invalid
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(params=["static", "jwt", "kubernetes"])
def case(request: pytest.FixtureRequest, tmp_path: Path, issuer: Issuer) -> Iterator[AuthenticatorCase]:
    if request.param == "static":
        tokens = [{"Token": f"for-{account}", "Namespace": "team"} for account in ("a", "b")]
        config: dict[str, Any] = {"Kind": "static", "Tokens": tokens}
        yield AuthenticatorCase(
            open_authenticator(config),
            lambda namespace, account, audience, ttl: f"for-{account if audience == AUDIENCE and ttl > 0 else '?'}",
        )
    elif request.param == "jwt":
        (tmp_path / "keys.json").write_bytes(issuer.published())
        config = {"Kind": "jwt", "KeysFile": "keys.json", "Audience": AUDIENCE, "Issuer": ISSUER, "base": tmp_path}
        yield AuthenticatorCase(open_authenticator(config), issuer.token)
    else:
        (tmp_path / "token").write_text(CACHE_TOKEN + "\n")
        with api_server(tmp_path, issuer) as (address, _):
            config = {"Kind": "kubernetes", "Server": address, "Audience": AUDIENCE, "base": tmp_path}
            config |= {"CAFile": "ca.crt", "TokenFile": "token"}
            yield AuthenticatorCase(open_authenticator(config), issuer.token)


# -- every authenticator


def test_a_valid_token_gives_its_namespace(case: AuthenticatorCase) -> None:
    identity = case.authenticator.authenticate(case.token("team", "a", AUDIENCE, 600.0))
    assert identity is not None and identity.namespace == "team"


def test_a_token_for_another_audience_is_rejected(case: AuthenticatorCase) -> None:
    assert case.authenticator.authenticate(case.token("team", "a", "another-audience", 600.0)) is None


def test_an_expired_token_is_rejected(case: AuthenticatorCase) -> None:
    assert case.authenticator.authenticate(case.token("team", "a", AUDIENCE, -60.0)) is None


def test_a_token_with_a_changed_letter_is_rejected(case: AuthenticatorCase) -> None:
    token = case.token("team", "a", AUDIENCE, 600.0)
    middle = len(token) // 2
    assert (
        case.authenticator.authenticate(token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :])
        is None
    )


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.b.c", "....", "e30.e30.", "=", "0" * 8000, "ä"])
def test_a_malformed_token_is_rejected(case: AuthenticatorCase, token: str) -> None:
    assert case.authenticator.authenticate(token) is None


# -- JWT


@pytest.fixture
def authenticator(issuer: Issuer) -> JwtAuthenticator:
    return JwtAuthenticator(issuer.published, audience=AUDIENCE, issuer=ISSUER)


def base64_of(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def test_a_token_cannot_choose_its_algorithm(authenticator: JwtAuthenticator, issuer: Issuer) -> None:
    _, claims, _ = issuer.token("team", "a").split(".")
    assert authenticator.authenticate(f"{base64_of({'alg': 'none', 'kid': 'first'})}.{claims}.") is None
    public = issuer.keys["first"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    import hmac

    signed = f"{base64_of({'alg': 'HS256', 'kid': 'first'})}.{claims}"
    mac = base64.urlsafe_b64encode(hmac.digest(pem, signed.encode(), "sha256")).rstrip(b"=").decode()
    assert authenticator.authenticate(f"{signed}.{mac}") is None
    with pytest.raises(ValueError, match="HS256"):
        JwtAuthenticator(issuer.published, audience=AUDIENCE, algorithms=["HS256"])


@pytest.mark.parametrize(
    "claims",
    [
        {"iss": "https://other.example"},
        {"sub": "system:node:n"},
        {"sub": "system:serviceaccount:team"},
        {"sub": 5},
        {"kubernetes.io": {"namespace": "other"}},
        {"aud": None},
        {"exp": None},
        {"nbf": int(time.time()) + 86_400},  # evaluated when tests are collected, long before the test runs
    ],
)
def test_a_token_with_a_wrong_claim_is_rejected(authenticator: JwtAuthenticator, issuer: Issuer, claims: Any) -> None:
    token = issuer.token("team", "a")
    document = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==")) | claims
    document = {key: value for key, value in document.items() if value is not None}
    assert authenticator.authenticate(token) is not None
    assert (
        authenticator.authenticate(
            jwt.encode(document, issuer.keys["first"], algorithm="ES256", headers={"kid": "first"})
        )
        is None
    )


def test_rotated_keys_are_fetched_but_not_for_every_unknown_key(issuer: Issuer) -> None:
    fetches: list[float] = []
    now = [1000.0]

    def fetch() -> bytes:
        fetches.append(now[0])
        return issuer.published()

    authenticator = JwtAuthenticator(fetch, audience=AUDIENCE, issuer=ISSUER, clock=lambda: now[0])
    assert authenticator.authenticate(issuer.token("team", "a")) is not None
    issuer.rotate("second")
    for _ in range(5):
        assert authenticator.authenticate(issuer.token("team", "a")) is None, "the keys were fetched a moment ago"
    now[0] += MIN_REFETCH + 1
    assert authenticator.authenticate(issuer.token("team", "a")) is not None
    assert len(fetches) == 2


def test_unavailable_keys_are_not_a_rejection(issuer: Issuer) -> None:
    def fetch() -> bytes:
        raise ConnectionRefusedError

    with pytest.raises(Unavailable):
        JwtAuthenticator(fetch, audience=AUDIENCE).authenticate(issuer.token("team", "a"))


class FlakyIssuer:
    """Publishes an issuer's keys, or times out while `silent`; tests advance its clock."""

    def __init__(self, issuer: Issuer, *, silent: bool = False) -> None:
        self.issuer, self.silent = issuer, silent
        self.now, self.fetches = 1000.0, 0
        self.authenticator = JwtAuthenticator(self.keys, audience=AUDIENCE, issuer=ISSUER, clock=lambda: self.now)

    def keys(self) -> bytes:
        self.fetches += 1
        if self.silent:
            self.now += 5.0
            raise TimeoutError
        return self.issuer.published()

    def accepts(self) -> bool:
        return self.authenticator.authenticate(self.issuer.token("team", "a")) is not None


def test_known_keys_stay_valid_while_the_issuer_is_silent_and_fetches_are_spaced(issuer: Issuer) -> None:
    flaky_issuer = FlakyIssuer(issuer)
    assert flaky_issuer.accepts()
    flaky_issuer.silent, flaky_issuer.now, flaky_issuer.fetches = True, flaky_issuer.now + KEYS_TTL + 1, 0
    assert all(flaky_issuer.accepts() for _ in range(10))
    assert flaky_issuer.fetches == 1
    flaky_issuer.now += MIN_REFETCH + 1
    assert all(flaky_issuer.accepts() for _ in range(10))
    assert flaky_issuer.fetches == 2


def test_without_any_key_the_issuer_is_retried_soon_but_not_for_each_token(issuer: Issuer) -> None:
    flaky_issuer = FlakyIssuer(issuer, silent=True)
    for _ in range(10):
        with pytest.raises(Unavailable):
            flaky_issuer.accepts()
    assert flaky_issuer.fetches == 1
    flaky_issuer.silent, flaky_issuer.now = False, flaky_issuer.now + MIN_RETRY_WITHOUT_KEYS + 0.1
    assert flaky_issuer.accepts()
    assert flaky_issuer.fetches == 2


def test_an_unknown_key_of_a_silent_issuer_is_not_a_rejection(issuer: Issuer) -> None:
    flaky_issuer = FlakyIssuer(issuer)
    assert flaky_issuer.accepts()
    issuer.rotate("second")
    flaky_issuer.silent, flaky_issuer.now = True, flaky_issuer.now + MIN_REFETCH + 1
    for _ in range(3):
        with pytest.raises(Unavailable):
            flaky_issuer.accepts()
    assert flaky_issuer.fetches == 2
    flaky_issuer.silent, flaky_issuer.now = False, flaky_issuer.now + MIN_REFETCH + 1
    assert flaky_issuer.accepts()


def test_keys_are_fetched_from_where_the_issuer_publishes_them(issuer: Issuer, tmp_path: Path) -> None:
    with api_server(tmp_path, issuer) as (address, _):
        fetch = jwks_fetcher(
            f"{address}/openid/v1/jwks", authority=str(tmp_path / "ca.crt"), bearer=lambda: CACHE_TOKEN
        )
        authenticator = JwtAuthenticator(fetch, audience=AUDIENCE, issuer=ISSUER)
        assert authenticator.authenticate(issuer.token("team", "a")) is not None
        with pytest.raises(Unavailable):
            JwtAuthenticator(jwks_fetcher(f"{address}/openid/v1/jwks"), audience=AUDIENCE).authenticate(
                issuer.token("team", "a")
            )


# -- Kubernetes


def test_a_token_of_a_deleted_pod_is_rejected(issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(CACHE_TOKEN)
    with api_server(tmp_path, issuer) as (address, invalid):
        config = {"Kind": "kubernetes", "Server": address, "Audience": AUDIENCE, "base": tmp_path}
        authenticator = open_authenticator(config | {"CAFile": "ca.crt", "TokenFile": "token"})
        token = issuer.token("team", "a")
        assert authenticator.authenticate(token) == Identity("team", "a")
        invalid.add(token)
        assert authenticator.authenticate(token) is None
        (tmp_path / "token").write_text("a revoked token")
        with pytest.raises(Unavailable) as caught:
            authenticator.authenticate(token)
        assert token not in str(caught.value)
    with pytest.raises(Unavailable):
        authenticator.authenticate(token)


@pytest.mark.parametrize(
    "status",
    [
        None,
        {},
        {"authenticated": False, "user": {"username": "system:serviceaccount:a:b"}, "audiences": [AUDIENCE]},
        {"authenticated": "true", "user": {"username": "system:serviceaccount:a:b"}, "audiences": [AUDIENCE]},
        {"authenticated": True, "user": {"username": "system:serviceaccount:a:b"}},
        {"authenticated": True, "user": {"username": "system:serviceaccount:a:b"}, "audiences": ["other"]},
        {"authenticated": True, "user": {"username": "kubernetes-admin"}, "audiences": [AUDIENCE]},
        {"authenticated": True, "user": None, "audiences": [AUDIENCE]},
        {"authenticated": True, "user": {"username": "system:serviceaccount:a:b:c"}, "audiences": [AUDIENCE]},
    ],
)
def test_a_status_that_does_not_clearly_accept_is_a_rejection(status: Any) -> None:
    assert identity_from_review({"status": status}, AUDIENCE) is None


# -- token cache


def test_an_authentication_is_cached_briefly_and_never_beyond_its_expiry() -> None:
    cache = TokenCache()
    without_expiry, with_expiry = cache.key(b"lasting"), cache.key(b"ending")
    rejected = cache.key(b"refused")
    cache.store(without_expiry, Identity("n", "a"), 1000.0)
    cache.store(with_expiry, Identity("n", "a", expires=1010.0), 1000.0)
    cache.store(rejected, None, 1000.0)
    assert cache.get(without_expiry, 1000.0 + ACCEPTED_TTL - 1) and not cache.get(without_expiry, 1000.0 + ACCEPTED_TTL)
    assert cache.get(with_expiry, 1009.0) and not cache.get(with_expiry, 1010.0)
    assert cache.get(rejected, 1000.0 + REJECTED_TTL - 1) and not cache.get(rejected, 1000.0 + REJECTED_TTL)


def test_the_token_cache_is_bounded_and_holds_no_token() -> None:
    cache = TokenCache()
    for number in range(25_000):
        cache.store(cache.key(b"token-%d" % number), None, float(number))
    assert 0 < len(cache) <= 10_000
    assert "token" not in repr(vars(cache))
