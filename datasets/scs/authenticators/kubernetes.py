"""Tokens that a Kubernetes API server is asked about (TokenReview, authentication.k8s.io/v1).

The API server checks what only it can: that the account, and the pod a bound token was made for, still exist.
"""

import http.client
import json
import ssl
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from datasets.scs.authenticators.base import Identity, Unavailable, service_account

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_TIME = 5.0
_LARGEST = 1 << 20


class KubernetesReviewer:
    """Asks the API server, as the service account whose token ``bearer`` returns (read anew, for it is rotated)."""

    def __init__(self, server: str, *, audience: str, authority: str | None, bearer: Callable[[], str]) -> None:
        parts = urlsplit(server)
        if parts.scheme != "https" or not parts.hostname:
            raise ValueError(f"the API server's address begins with https://, not {server!r}")
        self._host, self._port = parts.hostname, parts.port or 443
        self._path = parts.path.rstrip("/") + PATH
        self._audience, self._bearer = audience, bearer
        self._context = ssl.create_default_context(cafile=authority)

    def review(self, token: str) -> Identity | None:
        """Ask; what is not plainly a yes is a no."""
        if not token:
            return None  # to which the API server answers that the question is wrong
        asked = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        return verdict(self._ask(asked), self._audience)

    def _ask(self, document: dict[str, Any]) -> Any:
        connection = http.client.HTTPSConnection(self._host, self._port, timeout=_TIME, context=self._context)
        try:
            headers = {"Authorization": f"Bearer {self._bearer()}", "Content-Type": "application/json"}
            connection.request("POST", self._path, json.dumps(document), headers)
            answer = connection.getresponse()
            body = answer.read(_LARGEST)
            if answer.status not in (200, 201):
                raise Unavailable(f"the API server answered {answer.status} to a TokenReview")
            return json.loads(body)
        except (OSError, http.client.HTTPException, ValueError) as error:
            raise Unavailable(f"the API server cannot be asked: {type(error).__name__}") from None
        finally:
            connection.close()


def verdict(review: Any, audience: str) -> Identity | None:
    """Read a TokenReview's status.

    A server that does not know audiences answers without any; its yes may be for another audience, so it is a no.
    """
    status = review.get("status") if isinstance(review, dict) else None
    if not isinstance(status, dict) or status.get("authenticated") is not True or status.get("error"):
        return None
    if audience not in (status.get("audiences") or ()):
        return None
    user = status.get("user")
    account = service_account(user.get("username")) if isinstance(user, dict) else None
    return Identity(*account) if account else None
