"""What every reviewer of tokens promises. Another adapter joins by one more `Office` in `office` below.

The Kubernetes adapter is run against a server of HTTPS that answers a TokenReview as an API server does; the same
promises are to be asked of a real one where a cluster is at hand.
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

from datasets.scs.authenticators import Identity, TokenReviewer, Unavailable, open_reviewer
from datasets.scs.authenticators.jwt import KEEP, PAUSE, SOON, JwtReviewer, published
from datasets.scs.authenticators.kubernetes import verdict
from datasets.scs.token_cache import NO, YES, Verdicts

AUDIENCE, ISSUER = "scs", "https://issuer.example"
OURS = "the-caches-own-token"


@dataclass
class Office:
    """A reviewer, and who gives out tokens for it: by namespace, account, audience and seconds to live."""

    reviewer: TokenReviewer
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

    def token(self, namespace: str, account: str, audience: str = AUDIENCE, lives: float = 600.0, **more: Any) -> str:
        now = time.time()
        claims = {
            "aud": [audience],
            "exp": int(now + lives),
            "iat": int(now),
            "iss": ISSUER,
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "kubernetes.io": {"namespace": namespace, "pod": {"name": "p"}, "serviceaccount": {"name": account}},
        }
        return jwt.encode(claims | more, self.keys[self.kid], algorithm="ES256", headers={"kid": self.kid})


class ApiServer(http.server.BaseHTTPRequestHandler):
    """Answers TokenReviews, and publishes its issuer's keys, to whoever shows the cache's own token."""

    issuer: Issuer
    gone: set[str]

    def do_POST(self) -> None:
        asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if self.headers["Authorization"] != f"Bearer {OURS}":
            self._say(401, {"kind": "Status", "reason": "Unauthorized", "code": 401})
            return
        assert self.path == "/apis/authentication.k8s.io/v1/tokenreviews" and asked["kind"] == "TokenReview"
        self._say(201, asked | {"status": self._status(**asked["spec"])})

    def _status(self, token: str, audiences: list[str]) -> dict[str, Any]:
        if token in self.gone:
            return {"user": {}, "error": "[invalid bearer token, service account token is not valid yet]"}
        try:
            key = jwt.PyJWKSet.from_json(self.issuer.published().decode())[jwt.get_unverified_header(token)["kid"]]
            claims = jwt.decode(token, key, algorithms=["ES256"], audience=audiences)
        except (jwt.PyJWTError, KeyError):
            return {"user": {}, "error": "invalid bearer token"}
        groups = ["system:serviceaccounts", "system:authenticated"]
        return {"authenticated": True, "user": {"username": claims["sub"], "groups": groups}, "audiences": audiences}

    def do_GET(self) -> None:
        self._say(200, json.loads(self.issuer.published()))

    def _say(self, status: int, document: dict[str, Any]) -> None:
        body = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        pass


def certified(folder: Path) -> ssl.SSLContext:
    """Return a server's context with a certificate of its own, for localhost, left as ca.crt."""
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
    form = serialization.PrivateFormat.PKCS8
    plain = serialization.NoEncryption()
    (folder / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, form, plain))
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(folder / "ca.crt", folder / "key.pem")
    return context


@contextmanager
def api_server(folder: Path, issuer: Issuer) -> Iterator[tuple[str, set[str]]]:
    """Serve; yield the address, and the set of tokens whose account or pod is gone."""
    gone: set[str] = set()
    handler = type("Served", (ApiServer,), {"issuer": issuer, "gone": gone})
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.socket = certified(folder).wrap_socket(server.socket, server_side=True)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05})
    thread.start()
    try:
        yield f"https://localhost:{server.server_address[1]}", gone
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@pytest.fixture
def issuer() -> Issuer:
    return Issuer()


@pytest.fixture(params=["static", "jwt", "kubernetes"])
def office(request: pytest.FixtureRequest, tmp_path: Path, issuer: Issuer) -> Iterator[Office]:
    if request.param == "static":
        tokens = [{"Token": f"for-{account}", "Namespace": "team"} for account in ("a", "b")]
        given: dict[str, Any] = {"Kind": "static", "Tokens": tokens}
        yield Office(
            open_reviewer(given),
            lambda namespace, account, audience, lives: f"for-{account if audience == AUDIENCE and lives > 0 else '?'}",
        )
    elif request.param == "jwt":
        (tmp_path / "keys.json").write_bytes(issuer.published())
        given = {"Kind": "jwt", "KeysFile": "keys.json", "Audience": AUDIENCE, "Issuer": ISSUER, "base": tmp_path}
        yield Office(open_reviewer(given), issuer.token)
    else:
        (tmp_path / "token").write_text(OURS + "\n")
        with api_server(tmp_path, issuer) as (address, _):
            given = {"Kind": "kubernetes", "Server": address, "Audience": AUDIENCE, "base": tmp_path}
            given |= {"CAFile": "ca.crt", "TokenFile": "token"}
            yield Office(open_reviewer(given), issuer.token)


# -- every reviewer


def test_a_good_token_tells_its_namespace(office: Office) -> None:
    found = office.reviewer.review(office.token("team", "a", AUDIENCE, 600.0))
    assert found is not None and found.namespace == "team"


def test_a_token_for_another_audience_is_not_good(office: Office) -> None:
    assert office.reviewer.review(office.token("team", "a", "someone-else", 600.0)) is None


def test_a_token_past_its_end_is_not_good(office: Office) -> None:
    assert office.reviewer.review(office.token("team", "a", AUDIENCE, -60.0)) is None


def test_one_flipped_letter_makes_a_token_worthless(office: Office) -> None:
    token = office.token("team", "a", AUDIENCE, 600.0)
    middle = len(token) // 2
    assert office.reviewer.review(token[:middle] + ("A" if token[middle] != "A" else "B") + token[middle + 1 :]) is None


@pytest.mark.parametrize("token", ["", "x", "a.b", "a.b.c", "....", "e30.e30.", "=", "0" * 8000, "ä"])
def test_rubbish_is_not_good_and_breaks_nothing(office: Office, token: str) -> None:
    assert office.reviewer.review(token) is None


# -- JWT


@pytest.fixture
def keyed(issuer: Issuer) -> JwtReviewer:
    return JwtReviewer(issuer.published, audience=AUDIENCE, issuer=ISSUER)


def b64(document: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(document).encode()).rstrip(b"=").decode()


def test_no_token_chooses_how_it_is_verified(keyed: JwtReviewer, issuer: Issuer) -> None:
    _, claims, _ = issuer.token("team", "a").split(".")
    assert keyed.review(f"{b64({'alg': 'none', 'kid': 'first'})}.{claims}.") is None
    public = issuer.keys["first"].public_key()
    pem = public.public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    import hmac

    signed = f"{b64({'alg': 'HS256', 'kid': 'first'})}.{claims}"
    mac = base64.urlsafe_b64encode(hmac.digest(pem, signed.encode(), "sha256")).rstrip(b"=").decode()
    assert keyed.review(f"{signed}.{mac}") is None
    with pytest.raises(ValueError, match="HS256"):
        JwtReviewer(issuer.published, audience=AUDIENCE, algorithms=["HS256"])


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
        {"nbf": int(time.time()) + 86_400},  # this is read when tests are collected, long before it runs
    ],
)
def test_a_claim_that_does_not_fit_makes_it_worthless(keyed: JwtReviewer, issuer: Issuer, claims: Any) -> None:
    token = issuer.token("team", "a")
    document = json.loads(base64.urlsafe_b64decode(token.split(".")[1] + "==")) | claims
    document = {key: value for key, value in document.items() if value is not None}
    assert keyed.review(token) is not None
    assert keyed.review(jwt.encode(document, issuer.keys["first"], algorithm="ES256", headers={"kid": "first"})) is None


def test_rotated_keys_are_looked_for_but_not_for_whoever_invents_one(issuer: Issuer) -> None:
    fetched: list[float] = []
    now = [1000.0]

    def fetch() -> bytes:
        fetched.append(now[0])
        return issuer.published()

    reviewer = JwtReviewer(fetch, audience=AUDIENCE, issuer=ISSUER, clock=lambda: now[0])
    assert reviewer.review(issuer.token("team", "a")) is not None
    issuer.rotate("second")
    for _ in range(5):
        assert reviewer.review(issuer.token("team", "a")) is None, "looked a moment ago"
    now[0] += PAUSE + 1
    assert reviewer.review(issuer.token("team", "a")) is not None
    assert len(fetched) == 2


def test_keys_that_cannot_be_had_are_no_verdict(issuer: Issuer) -> None:
    def fetch() -> bytes:
        raise ConnectionRefusedError

    with pytest.raises(Unavailable):
        JwtReviewer(fetch, audience=AUDIENCE).review(issuer.token("team", "a"))


class Moody:
    """Publishes an issuer's keys, or is silent for as long as anybody waits; its clock moves when told to."""

    def __init__(self, issuer: Issuer, *, silent: bool = False) -> None:
        self.issuer, self.silent = issuer, silent
        self.now, self.asked = 1000.0, 0
        self.reviewer = JwtReviewer(self.keys, audience=AUDIENCE, issuer=ISSUER, clock=lambda: self.now)

    def keys(self) -> bytes:
        self.asked += 1
        if self.silent:
            self.now += 5.0
            raise TimeoutError
        return self.issuer.published()

    def good(self) -> bool:
        return self.reviewer.review(self.issuer.token("team", "a")) is not None


def test_known_keys_stay_good_while_the_issuer_is_silent_and_it_is_waited_for_once_a_pause(issuer: Issuer) -> None:
    moody = Moody(issuer)
    assert moody.good()
    moody.silent, moody.now, moody.asked = True, moody.now + KEEP + 1, 0
    assert all(moody.good() for _ in range(10))
    assert moody.asked == 1
    moody.now += PAUSE + 1
    assert all(moody.good() for _ in range(10))
    assert moody.asked == 2


def test_without_any_key_the_issuer_is_asked_again_soon_but_not_for_each_token(issuer: Issuer) -> None:
    moody = Moody(issuer, silent=True)
    for _ in range(10):
        with pytest.raises(Unavailable):
            moody.good()
    assert moody.asked == 1
    moody.silent, moody.now = False, moody.now + SOON + 0.1
    assert moody.good()
    assert moody.asked == 2


def test_a_silent_issuers_new_key_is_no_verdict_however_often_it_is_shown(issuer: Issuer) -> None:
    moody = Moody(issuer)
    assert moody.good()
    issuer.rotate("second")
    moody.silent, moody.now = True, moody.now + PAUSE + 1
    for _ in range(3):
        with pytest.raises(Unavailable):
            moody.good()
    assert moody.asked == 2
    moody.silent, moody.now = False, moody.now + PAUSE + 1
    assert moody.good()


def test_keys_are_fetched_from_where_the_issuer_publishes_them(issuer: Issuer, tmp_path: Path) -> None:
    with api_server(tmp_path, issuer) as (address, _):
        fetch = published(f"{address}/openid/v1/jwks", authority=str(tmp_path / "ca.crt"), bearer=lambda: OURS)
        reviewer = JwtReviewer(fetch, audience=AUDIENCE, issuer=ISSUER)
        assert reviewer.review(issuer.token("team", "a")) is not None
        with pytest.raises(Unavailable):
            JwtReviewer(published(f"{address}/openid/v1/jwks"), audience=AUDIENCE).review(issuer.token("team", "a"))


# -- Kubernetes


def test_a_token_whose_pod_is_gone_is_not_good(issuer: Issuer, tmp_path: Path) -> None:
    (tmp_path / "token").write_text(OURS)
    with api_server(tmp_path, issuer) as (address, gone):
        given = {"Kind": "kubernetes", "Server": address, "Audience": AUDIENCE, "base": tmp_path}
        reviewer = open_reviewer(given | {"CAFile": "ca.crt", "TokenFile": "token"})
        token = issuer.token("team", "a")
        assert reviewer.review(token) == Identity("team", "a")
        gone.add(token)
        assert reviewer.review(token) is None
        (tmp_path / "token").write_text("no longer ours")
        with pytest.raises(Unavailable) as refused:
            reviewer.review(token)
        assert token not in str(refused.value)
    with pytest.raises(Unavailable):
        reviewer.review(token)


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
def test_what_is_not_plainly_a_yes_is_a_no(status: Any) -> None:
    assert verdict({"status": status}, AUDIENCE) is None


# -- the cache of verdicts


def test_a_verdict_is_believed_briefly_and_never_longer_than_its_token_lives() -> None:
    verdicts = Verdicts()
    lasting, ending = verdicts.key(b"lasting"), verdicts.key(b"ending")
    refused = verdicts.key(b"refused")
    verdicts.keep(lasting, Identity("n", "a"), 1000.0)
    verdicts.keep(ending, Identity("n", "a", expires=1010.0), 1000.0)
    verdicts.keep(refused, None, 1000.0)
    assert verdicts.get(lasting, 1000.0 + YES - 1) and not verdicts.get(lasting, 1000.0 + YES)
    assert verdicts.get(ending, 1009.0) and not verdicts.get(ending, 1010.0)
    assert verdicts.get(refused, 1000.0 + NO - 1) and not verdicts.get(refused, 1000.0 + NO)


def test_verdicts_are_bounded_and_hold_no_token() -> None:
    verdicts = Verdicts()
    for number in range(25_000):
        verdicts.keep(verdicts.key(b"token-%d" % number), None, float(number))
    assert 0 < len(verdicts) <= 10_000
    assert "token" not in repr(vars(verdicts))
