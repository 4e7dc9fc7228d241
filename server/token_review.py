"""Token review: asks an API server about service-account tokens, as the cache service does."""

from common.errors import ProviderUnavailable
from core.domain.access.cluster_accounts import ClusterAccount
from datasets.scs.authenticators import Unavailable
from datasets.scs.authenticators.kubernetes import TokenReviewAuthenticator
from kube.access import access_of

#: The audience for which a token has to be made (`kubectl create token --audience`, or a projected volume): one for the
#: API server, which every pod has, is not accepted, so that nobody collects those.
AUDIENCE = "windtunnel"


class TokenReview:
    """Reviews tokens; ``kubeconfig``: of the API server, empty: of its own pod."""

    def __init__(self, kubeconfig: str = "") -> None:
        self._authenticator = TokenReviewAuthenticator(access_of(kubeconfig), audience=AUDIENCE)

    def __call__(self, token: str) -> ClusterAccount | None:
        """Return the account of a token, None if it is not valid here. Raise ProviderUnavailable."""
        try:
            known = self._authenticator.authenticate(token)
        except Unavailable:
            raise ProviderUnavailable(
                "The API server that reviews tokens of the cluster does not answer. Try again shortly."
            ) from None
        return None if known is None else ClusterAccount(known.namespace, known.account)
