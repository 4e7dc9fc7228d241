"""TokenReview authenticator: asks a Kubernetes API server about tokens (authentication.k8s.io/v1).

Only the API server can check that the account, and the pod that a token is bound to, still exist.
"""

import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from datasets.scs.authenticators.base import Identity, Unavailable, service_account

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_TIMEOUT = 5.0
_MAX_BYTES = 1 << 20


class TokenReviewAuthenticator:
    """Calls the API server with the token that ``bearer`` returns, read for every call, because it is rotated."""

    def __init__(self, server: str, *, audience: str, authority: str | None, bearer: Callable[[], str]) -> None:
        parts = urlsplit(server)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"Reviewer: Server begins with https://, not {server!r}")
        self._host, self._port = parts.hostname, parts.port or 443
        self._path = parts.path.rstrip("/") + PATH
        self._audience, self._bearer = audience, bearer
        self._context = ssl.create_default_context(cafile=authority)

    def authenticate(self, token: str) -> Identity | None:
        """Create a TokenReview; every response that does not clearly accept the token rejects it."""
        if not token:
            return None  # the API server would answer that the request is malformed
        document = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        return identity_from_review(self._post(document), self._audience)

    def _post(self, document: dict[str, Any]) -> Any:
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIMEOUT, context=self._context)
        try:
            headers = {"Authorization": f"Bearer {self._bearer()}", "Content-Type": "application/json"}
            connection.request("POST", self._path, json.dumps(document), headers)
            answer = connection.getresponse()
            body = answer.read(_MAX_BYTES)
            if answer.status not in (200, 201):
                raise Unavailable(f"the API server answered {answer.status} to a TokenReview")
            return json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"the API server (Reviewer: Server) cannot be reached: {type(error).__name__}") from None
        finally:
            connection.close()


def identity_from_review(review: Any, audience: str) -> Identity | None:
    """Return the identity in a TokenReview's status, None if the token is rejected.

    An API server without support for audiences returns none: it may have accepted the token for another audience, so
    the token is rejected.
    """
    status = review.get("status") if isinstance(review, dict) else None
    if not isinstance(status, dict) or status.get("authenticated") is not True or status.get("error"):
        return None
    if audience not in (status.get("audiences") or ()):
        return None
    user = status.get("user")
    account = service_account(user.get("username")) if isinstance(user, dict) else None
    return Identity(*account) if account else None
