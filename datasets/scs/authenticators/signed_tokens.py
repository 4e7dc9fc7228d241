"""JWT authenticator: verifies tokens with the keys that their issuer publishes (JWKS)."""

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any, cast

from joserfc import jws, jwt
from joserfc.errors import JoseError
from joserfc.jwk import Key, KeySet, KeySetSerialization

from datasets.scs.authenticators.base import Identity, Unavailable, service_account

#: Accepted algorithms: public-key ones only, so that a published key can never serve as a shared secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: Seconds that fetched keys are used, and between two fetches at least, however many tokens name unknown keys.
KEYS_TTL, MIN_REFETCH = 300.0, 10.0
#: Seconds between two fetches while there is no key at all.
MIN_RETRY_WITHOUT_KEYS = 1.0
#: Seconds by which clocks may differ.
LEEWAY = 5
_MAX_BYTES = 1 << 20


class JwtAuthenticator:
    """Authenticator with an issuer's keys; an unknown key id triggers a fetch, because keys are rotated."""

    def __init__(
        self,
        keys: Callable[[], bytes],
        *,
        audience: str,
        issuer: str | None = None,
        algorithms: Sequence[str] = ("RS256", "ES256"),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if refused := sorted(set(algorithms) - set(ALGORITHMS)):
            raise ValueError(f"algorithm {refused[0]!r} is not supported; choose from {', '.join(ALGORITHMS)}")
        self._fetch, self._clock = keys, clock
        self._algorithms = list(algorithms)
        issued: jwt.ClaimsOption = {"essential": False} if issuer is None else {"essential": True, "value": issuer}
        self._wanted = jwt.JWTClaimsRegistry(
            leeway=LEEWAY, exp={"essential": True}, aud={"essential": True, "value": audience}, iss=issued
        )
        self._keys: dict[str, Key] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._fetch_failed = False
        self._lock = threading.Lock()

    def authenticate(self, token: str) -> Identity | None:
        """Verify signature, audience, issuer and time, and return the service account."""
        try:
            kid = jws.extract_compact(token.encode()).headers().get("kid")
            key = self._key(kid) if isinstance(kid, str) else None
            if key is None:
                return None
            claims = jwt.decode(token, key, algorithms=self._algorithms).claims
            self._wanted.validate(claims)
        except (JoseError, ValueError, TypeError, RecursionError):
            return None
        return identity_of(claims)

    def _key(self, kid: str) -> Key | None:
        with self._lock:
            now = self._clock()
            fresh = self._fetched_at is not None and now - self._fetched_at <= KEYS_TTL
            pause = MIN_REFETCH if self._keys else MIN_RETRY_WITHOUT_KEYS
            if (fresh and kid in self._keys) or (self._tried_at is not None and now - self._tried_at <= pause):
                if self._fetch_failed and kid not in self._keys:
                    raise Unavailable("the issuer's keys (KeysURL) could not be fetched")
                return self._keys.get(kid)
            try:
                self._keys = _parse(self._fetch())
                self._fetched_at, self._fetch_failed = now, False
            except (OSError, ValueError, KeyError, TypeError, JoseError) as error:
                self._fetch_failed = True
                if kid not in self._keys:
                    raise Unavailable(
                        f"the issuer's keys (KeysURL) could not be fetched: {type(error).__name__}"
                    ) from None
            finally:
                self._tried_at = self._clock()  # a failing issuer is tried once per pause, not once per token
            return self._keys.get(kid)


def identity_of(claims: dict[str, Any]) -> Identity | None:
    """Return the service account in ``sub``, None if there is none or the ``kubernetes.io`` claim contradicts it."""
    account = service_account(claims.get("sub"))
    claim = claims.get("kubernetes.io")
    if account is None:
        return None
    if isinstance(claim, dict) and claim.get("namespace", account[0]) != account[0]:
        return None
    return Identity(*account, expires=float(claims["exp"]))


def _parse(document: bytes) -> dict[str, Key]:
    key_set = json.loads(document)
    if not isinstance(key_set, dict):
        raise ValueError("not a JSON Web Key Set")
    return {key.kid: key for key in KeySet.import_key_set(cast(KeySetSerialization, key_set)).keys if key.kid}


def jwks_fetcher(
    url: str, *, authority: str | None = None, bearer: Callable[[], str] | None = None
) -> Callable[[], bytes]:
    """Return a function that fetches keys from a URL, trusting ``authority`` (a file of certificates) if it is set."""
    context = ssl.create_default_context(cafile=authority) if url.startswith("https:") else None

    def fetch() -> bytes:
        request = urllib.request.Request(url, headers={"Accept": "application/jwk-set+json, application/json"})
        if bearer is not None:
            request.add_header("Authorization", f"Bearer {bearer()}")
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            document: bytes = answer.read(_MAX_BYTES)
        return document

    return fetch
