"""TokenReview authenticator: asks a Kubernetes API server about tokens (authentication.k8s.io/v1).

Only the API server can check that the account, and the pod that a token is bound to, still exist.
"""

import json
from typing import Any

from datasets.scs.authenticators.base import Identity, Unavailable, service_account
from kube.access import Access
from kube.client import KubernetesClient
from kube.messages import ApiRefused, path_of

PATH = path_of("authentication.k8s.io/v1", "tokenreviews")
#: Time-out of a TokenReview in seconds.
TIMEOUT = 5.0


class TokenReviewAuthenticator:
    """Creates TokenReviews as the cache service's own account, whose rotated token is read again."""

    def __init__(self, access: Access, *, audience: str) -> None:
        self._client, self._audience = KubernetesClient(access, time_out=TIMEOUT), audience
        self._client.check()

    def authenticate(self, token: str) -> Identity | None:
        """Create a TokenReview; every response that does not clearly accept the token rejects it."""
        if not token:
            return None  # the API server would answer that the request is malformed
        document = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token, "audiences": [self._audience]},
        }
        return identity_from_review(self._create(document), self._audience)

    def _create(self, document: dict[str, Any]) -> Any:
        # Errors name no more than status or kind: the API server's message may repeat what it could not read.
        try:
            return json.loads(self._client.create(PATH, document))
        except ApiRefused as refused:
            raise Unavailable(f"the API server answered {refused.status} to a TokenReview") from None
        except (OSError, ValueError) as error:
            raise Unavailable(f"the API server (Reviewer: Server) cannot be reached: {type(error).__name__}") from None


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
