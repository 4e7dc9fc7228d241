"""OpenID Connect: sign-in by an identity provider, with an authorization code and PKCE (OpenID Connect Core 1.0).

The issuer is the one that the operator has named, and its discovery document has to name itself so; the keys and the
algorithms are those that it publishes, never `none` and never a shared secret (RFC 8725).
"""

import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import msgspec
from authlib.integrations.base_client.errors import OAuthError
from authlib.integrations.httpx_client import OAuth2Client
from authlib.oauth2.base import OAuth2Error
from authlib.oidc.core.util import create_half_hash
from joserfc import jwe, jwt
from joserfc.errors import JoseError
from joserfc.jwk import KeySet, OctKey

from common.errors import ProviderUnavailable, SignInRefused
from core.domain.access.identity_providers import IdentityProvider, ProvidedPerson, person_of

#: Errors of a provider that are about the person; others are about this client, or the provider itself.
PERSONAL_ERRORS = {"invalid_grant", "access_denied", "login_required", "consent_required", "interaction_required"}
#: What a provider that does not work raises.
PROVIDER_FAULTS = (
    httpx2.HTTPError,
    httpx2.InvalidURL,
    OSError,
    ValueError,
    KeyError,
    JoseError,
    msgspec.MsgspecError,
)
#: Accepted algorithms: those of public keys.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519")
#: Seconds that discovery and keys are used, and between two requests for unknown keys at least.
METADATA_TTL, MIN_REFETCH = 3600.0, 10.0
#: Seconds that an answer of the provider may take, and by which clocks may differ.
TIMEOUT, LEEWAY = 10.0, 60
#: Oldest ID token that is accepted, in seconds.
OLDEST_TOKEN = 600
_MOST_BYTES = 4 << 20


class ProviderMetadata(msgspec.Struct, frozen=True):
    """A provider's description of itself (OpenID Connect Discovery 1.0, section 3)."""

    issuer: str
    authorization_endpoint: str
    token_endpoint: str
    jwks_uri: str
    userinfo_endpoint: str | None = None
    id_token_signing_alg_values_supported: tuple[str, ...] = ("RS256",)
    token_endpoint_auth_methods_supported: tuple[str, ...] = ("client_secret_basic",)
    authorization_response_iss_parameter_supported: bool = False


class TokenAnswer(msgspec.Struct, frozen=True):
    """The answer of a token endpoint (OpenID Connect Core 1.0, section 3.1.3.3)."""

    access_token: str = ""
    id_token: str = ""
    refresh_token: str | None = None


class IdTokenClaims(msgspec.Struct, frozen=True):
    """The claims of an ID token that are checked (Core 1.0, section 2); ``all``: those that describe the person too."""

    sub: str
    iat: float = 0.0
    aud: str | list[str] = ""
    azp: str | None = None
    at_hash: str | None = None
    all: dict[str, object] = msgspec.field(default_factory=dict, name="-")


class _TokenHeader(msgspec.Struct):
    """The header of a signed token."""

    alg: str


class OpenIdConnect:
    """Client of one identity provider. ``clock``: monotonic, in seconds."""

    def __init__(self, provider: IdentityProvider, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.provider = provider
        self._clock = clock
        self._lock = threading.Lock()
        self._metadata: ProviderMetadata | None = None
        self._keys: KeySet | None = None
        self._known_until = self._keys_until = self._refetch_at = 0.0

    def address(self, callback: str, *, state: str, nonce: str, verifier: str) -> str:
        """Return the address to which a browser is led, and which leads it back to ``callback``.

        Raise ProviderUnavailable.
        """
        metadata = self._provider_metadata()
        with self._client(callback) as client:
            address, _ = client.create_authorization_url(
                metadata.authorization_endpoint,
                state=state,
                nonce=nonce,
                code_verifier=verifier,
                **self.provider.parameters,
            )
        return str(address)

    def check_issuer(self, sent: str | None) -> None:
        """Raise SignInRefused if an answer came from another provider than the one that was asked (RFC 9207)."""
        named = self._provider_metadata().authorization_response_iss_parameter_supported
        if (sent is None and named) or (sent is not None and sent != self.provider.issuer):
            raise SignInRefused("The answer came from another identity provider than the one that was asked.")

    def redeem(self, callback: str, code: str, *, nonce: str, verifier: str) -> ProvidedPerson:
        """Return who has signed in, for the code of the answer. Raise SignInRefused, ProviderUnavailable."""
        metadata = self._provider_metadata()
        with self._client(callback) as client:
            given = client.fetch_token(metadata.token_endpoint, code=code, code_verifier=verifier)
            token = msgspec.convert(dict(given), TokenAnswer)
            return self._person(client, token, self._claims_of(token, nonce), token.refresh_token)

    def read_again(self, sealed: str, subject: str) -> ProvidedPerson:
        """Return a person as the provider describes him now, by the token that is kept of him.

        Raise SignInRefused if the provider does not stand for him any more, ProviderUnavailable if it cannot tell.
        """
        refresh = self._unseal(sealed)
        metadata = self._provider_metadata()
        with self._client("") as client:
            given = client.refresh_token(metadata.token_endpoint, refresh_token=refresh)
            token = msgspec.convert(dict(given), TokenAnswer)
            try:
                claims = self._claims_of(token, None) if token.id_token else IdTokenClaims(sub=subject)
            except SignInRefused as error:  # a clock or a key is wrong, and not the person
                raise ProviderUnavailable(error.detail) from None
            if claims.sub != subject:
                raise SignInRefused("The identity provider describes another person.")
            return self._person(client, token, claims, token.refresh_token or refresh)

    # -- what the provider says of itself

    def _provider_metadata(self) -> ProviderMetadata:
        with self._lock:
            if self._metadata is not None and self._clock() < self._known_until:
                return self._metadata
            issuer = self.provider.issuer
            text = self._fetch(f"{issuer.rstrip('/')}/.well-known/openid-configuration")
            with _provider_errors(self.provider):
                metadata = msgspec.json.decode(text, type=ProviderMetadata)
            if metadata.issuer != issuer:
                raise ProviderUnavailable(
                    f"{self.provider.shown} describes another issuer than {issuer}; an operator corrects its address."
                )
            self._metadata, self._known_until = metadata, self._clock() + METADATA_TTL
            return metadata

    def _key_set(self, *, again: bool = False) -> KeySet:
        uri = self._provider_metadata().jwks_uri
        with self._lock:
            now, kept = self._clock(), self._keys
            if kept is not None and (now < self._refetch_at if again else now < self._keys_until):
                return kept
            with _provider_errors(self.provider):
                self._keys = KeySet.import_key_set(msgspec.json.decode(self._fetch(uri)))
            self._keys_until, self._refetch_at = now + METADATA_TTL, now + MIN_REFETCH
            return self._keys

    def _fetch(self, address: str) -> bytes:
        with _provider_errors(self.provider), httpx2.Client(timeout=TIMEOUT) as client:
            answer = client.get(address, headers={"Accept": "application/json"})
            answer.raise_for_status()
            if len(answer.content) > _MOST_BYTES:
                raise ValueError("the answer is too long")
            return answer.content

    # -- people

    def _claims_of(self, token: TokenAnswer, nonce: str | None) -> IdTokenClaims:
        """Return the claims of an ID token (Core 1.0, sections 3.1.3.7 and 12.2); ``nonce``: None if renewed."""
        supported = self._provider_metadata().id_token_signing_alg_values_supported
        algorithms = [name for name in ALGORITHMS if name in supported]
        wanted = jwt.JWTClaimsRegistry(
            leeway=LEEWAY,
            iss={"essential": True, "value": self.provider.issuer},
            aud={"essential": True, "value": self.provider.client_id},
            sub={"essential": True},
            exp={"essential": True},
            iat={"essential": True},
            nonce={"essential": False} if nonce is None else {"essential": True, "value": nonce},
        )
        try:
            try:
                decoded = jwt.decode(token.id_token, self._key_set(), algorithms=algorithms)
            except (JoseError, ValueError):  # perhaps signed with a key that is newer than the known ones
                decoded = jwt.decode(token.id_token, self._key_set(again=True), algorithms=algorithms)
            wanted.validate(decoded.claims)
            claims = msgspec.convert(decoded.claims, IdTokenClaims)
            algorithm = msgspec.convert(decoded.header, _TokenHeader).alg
        except (JoseError, ValueError, TypeError, RecursionError, msgspec.MsgspecError) as error:
            raise SignInRefused(f"The ID token of the identity provider was not accepted: {error}.") from None
        self._check_more(token, algorithm, claims)
        return msgspec.structs.replace(claims, all=decoded.claims)

    def _check_more(self, token: TokenAnswer, algorithm: str, claims: IdTokenClaims) -> None:
        """Check what a registry of claims does not: for whom it was made, when, and with which access token."""
        several = isinstance(claims.aud, list) and len(claims.aud) > 1
        if claims.azp not in (None, self.provider.client_id) or (several and claims.azp is None):
            raise SignInRefused("The ID token was made for another client of the identity provider.")
        if not 0 < len(claims.sub) <= 255:
            raise SignInRefused("The ID token names nobody.")
        if claims.iat < time.time() - OLDEST_TOKEN:
            raise SignInRefused("The ID token of the identity provider is old: compare the clocks of both servers.")
        expected = create_half_hash(token.access_token, algorithm) if claims.at_hash is not None else None
        if expected is not None and claims.at_hash != expected.decode():
            raise SignInRefused("The ID token belongs to another access token.")

    def _person(
        self, client: OAuth2Client, token: TokenAnswer, claims: IdTokenClaims, refresh: str | None
    ) -> ProvidedPerson:
        """Return who it is, with what only the endpoint of user information says (Core 1.0, section 5.3)."""
        endpoint, told = self._provider_metadata().userinfo_endpoint, claims.all
        wanted = {self.provider.groups_claim, self.provider.name_claim}
        if endpoint is not None and token.access_token and not wanted <= claims.all.keys():
            answer = client.get(endpoint)
            if answer.status_code == 401:
                raise SignInRefused("The identity provider does not stand for this person any more.")
            answer.raise_for_status()
            if msgspec.json.decode(answer.content, type=IdTokenClaims).sub != claims.sub:
                raise SignInRefused("The identity provider describes another person.")
            told = msgspec.json.decode(answer.content, type=dict[str, object]) | claims.all
        return person_of(self.provider, claims.sub, told, None if refresh is None else self._seal(refresh))

    @contextmanager
    def _client(self, callback: str) -> Iterator[OAuth2Client]:
        """Yield a client of the provider's token endpoint, whose failures are errors of the platform."""
        methods = self._provider_metadata().token_endpoint_auth_methods_supported
        method = "client_secret_basic" if "client_secret_basic" in methods else "client_secret_post"
        with (
            _provider_errors(self.provider),
            OAuth2Client(
                client_id=self.provider.client_id,
                client_secret=self._secret(),
                token_endpoint_auth_method=method,
                scope=" ".join(self.provider.scopes),
                redirect_uri=callback,
                code_challenge_method="S256",
                timeout=TIMEOUT,
            ) as client,
        ):
            yield client

    def _secret(self) -> str:
        file = self.provider.client_secret_file
        try:
            return Path(file).read_text().strip() if file else self.provider.client_secret
        except OSError as error:
            raise ProviderUnavailable(
                f"The secret of {self.provider.shown} cannot be read ({error.strerror}); an operator corrects it."
            ) from None

    # -- what is kept of people: worth nothing without the client's secret, also to who has the database

    def _seal(self, refresh: str) -> str:
        return jwe.encrypt_compact({"alg": "dir", "enc": "A256GCM"}, refresh.encode(), self._sealing_key())

    def _unseal(self, sealed: str) -> str:
        try:
            opened = jwe.decrypt_compact(sealed, self._sealing_key(), algorithms=["dir", "A256GCM"]).plaintext
        except (JoseError, ValueError):
            raise ProviderUnavailable("The client's secret was changed: nothing kept of people can be read.") from None
        return (opened or b"").decode()

    def _sealing_key(self) -> OctKey:
        return OctKey.import_key(hashlib.sha256(b"windtunnel refresh token\0" + self._secret().encode()).digest())


@contextmanager
def _provider_errors(provider: IdentityProvider) -> Iterator[None]:
    """Turn what a provider refuses into SignInRefused, and what keeps it from answering into ProviderUnavailable."""
    try:
        yield
    except (OAuthError, OAuth2Error) as error:
        if error.error in PERSONAL_ERRORS:
            raise SignInRefused(f"{provider.shown} has refused: {error.description or error.error}.") from None
        raise ProviderUnavailable(
            f"{provider.shown} does not accept this platform as its client ({error.error}); an operator mends it."
        ) from None
    except PROVIDER_FAULTS as error:
        raise ProviderUnavailable(
            f"{provider.shown} does not answer ({type(error).__name__}). Try again shortly; a token or a passkey works"
            " meanwhile."
        ) from None
