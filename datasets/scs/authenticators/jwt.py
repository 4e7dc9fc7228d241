"""Tokens checked here, by the keys their issuer publishes (JWT, JWKS)."""

import json
import ssl
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Sequence
from typing import Any

import jwt

from datasets.scs.authenticators.base import Identity, Unavailable, service_account

#: What may sign a token: public keys only, so that a published key can never serve as a secret.
ALGORITHMS = ("RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA")
#: Seconds that fetched keys are used, and that pass at least between two fetches, whoever asks for unknown keys.
KEEP, PAUSE = 300.0, 10.0
#: Seconds between two fetches while there is no key at all.
SOON = 1.0
#: Clocks may differ by so many seconds.
LEEWAY = 5.0
_LARGEST = 1 << 20


class JwtReviewer:
    """Knows an issuer's keys; one that is not known yet is looked for, for keys are rotated."""

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
            raise ValueError(f"algorithm {refused[0]!r} is not taken; there are {', '.join(ALGORITHMS)}")
        self._fetch, self._audience, self._issuer = keys, audience, issuer
        self._algorithms, self._clock = list(algorithms), clock
        self._keys: dict[str, jwt.PyJWK] = {}
        self._fetched_at: float | None = None
        self._tried_at: float | None = None
        self._silent = False
        self._lock = threading.Lock()

    def review(self, token: str) -> Identity | None:
        """Verify signature, audience, issuer and time, then read whose it is."""
        try:
            kid = jwt.get_unverified_header(token).get("kid")
            key = self._key(kid) if isinstance(kid, str) else None
            if key is None:
                return None
            claims = jwt.decode(
                token,
                key,
                algorithms=self._algorithms,
                audience=self._audience,
                issuer=self._issuer,
                leeway=LEEWAY,
                options={"require": ["exp", "aud"]},
            )
        except (jwt.PyJWTError, ValueError, RecursionError):
            return None
        return identity_of(claims)

    def _key(self, kid: str) -> jwt.PyJWK | None:
        with self._lock:
            now = self._clock()
            fresh = self._fetched_at is not None and now - self._fetched_at <= KEEP
            pause = PAUSE if self._keys else SOON
            if (fresh and kid in self._keys) or (self._tried_at is not None and now - self._tried_at <= pause):
                if self._silent and kid not in self._keys:
                    raise Unavailable("the issuer's keys could not be had a moment ago")
                return self._keys.get(kid)
            try:
                self._keys = _parse(self._fetch())
                self._fetched_at, self._silent = now, False
            except (OSError, ValueError, jwt.PyJWTError) as error:
                self._silent = True
                if kid not in self._keys:
                    raise Unavailable(f"the issuer's keys cannot be had: {type(error).__name__}") from None
            finally:
                self._tried_at = self._clock()  # a silent issuer is waited for once a pause, not once a token
            return self._keys.get(kid)


def identity_of(claims: dict[str, Any]) -> Identity | None:
    """Return whose claims these are: the subject's service account, which Kubernetes' own claim must not contradict."""
    account = service_account(claims.get("sub"))
    said = claims.get("kubernetes.io")
    if account is None:
        return None
    if isinstance(said, dict) and said.get("namespace", account[0]) != account[0]:
        return None
    return Identity(*account, expires=float(claims["exp"]))


def _parse(document: bytes) -> dict[str, jwt.PyJWK]:
    found = json.loads(document)
    if not isinstance(found, dict):
        raise ValueError("no key set")
    return {key.key_id: key for key in jwt.PyJWKSet.from_dict(found).keys if key.key_id}


def published(
    url: str, *, authority: str | None = None, bearer: Callable[[], str] | None = None
) -> Callable[[], bytes]:
    """Return how to fetch keys from an address, trusting ``authority`` (a file of certificates) if one is named."""
    context = ssl.create_default_context(cafile=authority) if url.startswith("https:") else None

    def fetch() -> bytes:
        request = urllib.request.Request(url, headers={"Accept": "application/jwk-set+json, application/json"})
        if bearer is not None:
            request.add_header("Authorization", f"Bearer {bearer()}")
        with urllib.request.urlopen(request, timeout=5, context=context) as answer:
            document: bytes = answer.read(_LARGEST)
        return document

    return fetch
