"""OpenID Connect against a provider that lies: no forged, foreign, stale or unsigned token tells who a person is."""

import base64
import hmac
import json
import time
from collections.abc import Callable, Iterator
from threading import Thread

import pytest
from flask import Flask, Response, request
from joserfc import jwt
from joserfc.jwk import KeySet, OctKey, RSAKey
from werkzeug.serving import make_server

from common.errors import PlatformError, ProviderUnavailable, SignInRefused
from core.authenticators.openid_connect import MIN_REFETCH, OLDEST_TOKEN, OpenIdConnect
from core.domain.access.identity_providers import IdentityProvider, ProvidedPerson
from tests.ports import free_ports

NONCE, VERIFIER, SECRET = "the nonce", "v" * 50, "the secret of the client"
KEY, OTHER_KEY = (RSAKey.generate_key(2048, {"kid": kid, "use": "sig"}) for kid in ("one", "two"))
CALLBACK = "http://localhost/sign-in/callback/company"


class HostileProvider:
    """A provider whose tokens and documents a test may forge."""

    def __init__(self) -> None:
        self.port = free_ports(1)[0]
        self.issuer = f"http://127.0.0.1:{self.port}"
        self.key = KEY
        self.published = [self.key]
        self.discovery: dict[str, object] = {}
        self.token: dict[str, object] = {"access_token": "a", "token_type": "Bearer"}
        self.claims = {
            "iss": self.issuer, "aud": "windtunnel", "sub": "a1", "nonce": NONCE, "iat": time.time(),
            "exp": time.time() + 300, "groups": ["drivers"], "preferred_username": "ada",
        }  # fmt: skip
        self.sign: Callable[[dict[str, object]], str] = self.signed
        self.keys_fetched = 0
        self.more: dict[str, object] = {"sub": "a1", "groups": ["admins"]}
        self.status = 200

    def signed(self, claims: dict[str, object]) -> str:
        return jwt.encode({"alg": "RS256", "kid": self.key.kid}, claims, self.key)

    def application(self) -> Flask:
        app = Flask("hostile")

        @app.get("/.well-known/openid-configuration")
        def discovery() -> dict[str, object]:
            ends = {name: f"{self.issuer}/{name}" for name in ("token_endpoint", "jwks_uri", "authorization_endpoint")}
            return {"issuer": self.issuer, "userinfo_endpoint": f"{self.issuer}/userinfo", **ends} | self.discovery

        @app.get("/jwks_uri")
        def keys() -> object:
            self.keys_fetched += 1
            return KeySet(self.published).as_dict(private=False)

        @app.post("/token_endpoint")
        def token() -> Response:
            assert request.form.get("code_verifier") == VERIFIER or request.form["grant_type"] == "refresh_token"
            body = {"id_token": self.sign(dict(self.claims))} | self.token
            return Response(json.dumps(body), self.status, content_type="application/json")

        @app.get("/userinfo")
        def userinfo() -> object:
            return self.more

        return app


@pytest.fixture
def hostile() -> Iterator[HostileProvider]:
    provider = HostileProvider()
    server = make_server("127.0.0.1", provider.port, provider.application(), threaded=True)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield provider
    server.shutdown()
    thread.join()
    server.server_close()


def client_of(provider: HostileProvider, clock: Callable[[], float] = time.monotonic) -> OpenIdConnect:
    return OpenIdConnect(IdentityProvider("company", provider.issuer, "windtunnel", client_secret=SECRET), clock=clock)


def enter(provider: HostileProvider) -> ProvidedPerson:
    return client_of(provider).redeem(CALLBACK, "code", nonce=NONCE, verifier=VERIFIER)


def test_an_honest_answer_is_a_person(hostile: HostileProvider) -> None:
    person = enter(hostile)
    assert (person.subject, person.names[0], person.groups) == ("a1", "ada", {"drivers"})


def unsigned(claims: dict[str, object]) -> str:
    return f"{part({'alg': 'none'})}.{part(claims)}."


def with_public_key_as_secret(claims: dict[str, object]) -> str:
    """Sign with HMAC and what everybody knows, for a client that takes the algorithm from the token."""
    text = f"{part({'alg': 'HS256', 'kid': 'one'})}.{part(claims)}"
    return f"{text}.{encoded(hmac.digest(KEY.as_pem(private=False), text.encode(), 'sha256'))}"


def part(document: object) -> str:
    return encoded(json.dumps(document).encode())


def encoded(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


FORGERIES: dict[str, Callable[[HostileProvider], object]] = {
    "another issuer": lambda one: one.claims.update(iss="https://id.example.com"),
    "another audience": lambda one: one.claims.update(aud="another client"),
    "no audience": lambda one: one.claims.pop("aud"),
    "several audiences and nobody authorized": lambda one: one.claims.update(aud=["windtunnel", "other"]),
    "another authorized party": lambda one: one.claims.update(azp="other"),
    "another nonce": lambda one: one.claims.update(nonce="another"),
    "no nonce": lambda one: one.claims.pop("nonce"),
    "expired": lambda one: one.claims.update(exp=time.time() - 61),
    "never expires": lambda one: one.claims.pop("exp"),
    "old": lambda one: one.claims.update(iat=time.time() - OLDEST_TOKEN - 1),
    "from the future": lambda one: one.claims.update(iat=time.time() + 120),
    "not valid yet": lambda one: one.claims.update(nbf=time.time() + 120),
    "nobody": lambda one: one.claims.update(sub=""),
    "a number": lambda one: one.claims.update(sub=7),
    "no subject": lambda one: one.claims.pop("sub"),
    "another access token": lambda one: one.claims.update(at_hash="77QmUPtjPfzWtF2AnpK9RQ"),
    "unsigned": lambda one: setattr(one, "sign", unsigned),
    "none offered and unsigned": lambda one: (
        one.discovery.update(id_token_signing_alg_values_supported=["none", "RS256"]), setattr(one, "sign", unsigned)
    ),
    "signed with the client's secret": lambda one: setattr(
        one, "sign", lambda claims: jwt.encode({"alg": "HS256"}, claims, OctKey.import_key(SECRET + "x" * 40))
    ),
    "signed with the public key as a secret": lambda one: setattr(one, "sign", with_public_key_as_secret),
    "signed with an unpublished key": lambda one: setattr(
        one, "sign", lambda claims: jwt.encode({"alg": "RS256", "kid": "one"}, claims, OTHER_KEY)
    ),
    "an algorithm that is not offered": lambda one: setattr(
        one, "sign", lambda claims: jwt.encode({"alg": "PS256", "kid": "one"}, claims, one.key, algorithms=["PS256"])
    ),
    "no token": lambda one: one.token.update(id_token=""),
    "nonsense": lambda one: one.token.update(id_token="a.b.c"),
    "another person in the user information": lambda one: (
        one.claims.pop("groups"), one.more.update(sub="x9")
    ),
}  # fmt: skip


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_answer_is_refused(hostile: HostileProvider, forgery: str) -> None:
    FORGERIES[forgery](hostile)
    with pytest.raises(SignInRefused):
        enter(hostile)


BREAKAGES: dict[str, Callable[[HostileProvider], object]] = {
    "another issuer of itself": lambda one: one.discovery.update(issuer="https://id.example.com"),
    "no token endpoint": lambda one: one.discovery.update(token_endpoint=None),
    "keys that are none": lambda one: one.discovery.update(jwks_uri=f"{one.issuer}/userinfo"),
    "a refusal of the client": lambda one: (one.token.update(error="invalid_client"), setattr(one, "status", 401)),
    "an error of its own": lambda one: setattr(one, "status", 500),
    "an address that does not answer": lambda one: one.discovery.update(token_endpoint="http://127.0.0.1:9/token"),
}


@pytest.mark.parametrize("breakage", BREAKAGES)
def test_a_broken_provider_is_said_to_be_broken(hostile: HostileProvider, breakage: str) -> None:
    BREAKAGES[breakage](hostile)
    with pytest.raises(ProviderUnavailable) as raised:
        enter(hostile)
    assert SECRET not in str(raised.value)


def test_the_answer_of_another_provider_is_refused(hostile: HostileProvider) -> None:
    client = client_of(hostile)
    client.check_issuer(None)
    client.check_issuer(hostile.issuer)
    with pytest.raises(SignInRefused):
        client.check_issuer("https://id.example.com")
    hostile.discovery["authorization_response_iss_parameter_supported"] = True
    with pytest.raises(SignInRefused):
        client_of(hostile).check_issuer(None)


def test_a_new_key_is_fetched_and_unknown_keys_do_not_make_it_busy(hostile: HostileProvider) -> None:
    now = [0.0]
    client = client_of(hostile, clock=lambda: now[0])

    def try_enter() -> PlatformError | None:
        try:
            client.redeem(CALLBACK, "code", nonce=NONCE, verifier=VERIFIER)
        except PlatformError as error:
            return error
        return None

    assert try_enter() is None and hostile.keys_fetched == 1
    hostile.key = OTHER_KEY
    for _ in range(20):
        assert isinstance(try_enter(), SignInRefused)  # it is not published yet
    assert hostile.keys_fetched == 1, "keys were fetched just now"
    hostile.published = [hostile.key]
    now[0] += MIN_REFETCH
    assert try_enter() is None and hostile.keys_fetched == 2


def test_a_person_is_read_again_by_what_only_this_client_can_open(hostile: HostileProvider) -> None:
    hostile.token["refresh_token"] = "the token for later"
    sealed = enter(hostile).refresh
    assert sealed is not None and "later" not in sealed
    del hostile.claims["nonce"]
    hostile.claims["groups"] = ["cooks"]
    assert client_of(hostile).read_again(sealed, "a1").groups == {"cooks"}
    with pytest.raises(SignInRefused):
        client_of(hostile).read_again(sealed, "b2")
    other = OpenIdConnect(IdentityProvider("company", hostile.issuer, "windtunnel", client_secret="another secret"))
    with pytest.raises(ProviderUnavailable):
        other.read_again(sealed, "a1")
    hostile.claims["exp"] = time.time() - 100
    with pytest.raises(ProviderUnavailable):
        client_of(hostile).read_again(sealed, "a1")  # a clock is wrong: nobody is put away for that
    hostile.token["error"] = "invalid_grant"
    hostile.status = 400
    with pytest.raises(SignInRefused):
        client_of(hostile).read_again(sealed, "a1")
