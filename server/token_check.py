"""Token check of the gateway: delays requests with a token of callers that guess, in the event loop."""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from api.credentials import credential_of
from api.identification import Identification
from common.client_addresses import Network, address_of
from common.errors import PlatformError, TooManyGuesses
from server.token_guesses import LONGEST, MOST_WAITING, TokenGuesses

#: Tokens that are looked up in the database at the same time.
LOOKUPS = 4


class TokenCheck:
    """Waits for as long as the check of a request's token is delayed; the request is checked and served afterwards.

    ``forms``: the paths of the forms by which a browser sends a token or a password in a body. Their content is not
    known here, so each attempt counts as a wrong token.
    """

    def __init__(
        self, identification: Identification, proxies: Collection[Network] = (), forms: Collection[str] = ()
    ) -> None:
        self._identification = identification
        self._proxies = proxies
        self._forms = forms
        self._guesses = TokenGuesses()
        self._lookups = ThreadPoolExecutor(LOOKUPS, "token")
        self._waiting: Counter[str] = Counter()

    async def __call__(self, environ: Mapping[str, Any]) -> PlatformError | None:
        """Return the error that refuses the request unseen, because too many of its caller wait."""
        if self._identification.open_to_all:
            return None
        sent = credential_of(environ)
        by_form = environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] in self._forms
        if not (sent.value or by_form):
            return None
        loop = asyncio.get_running_loop()
        try:
            right = not by_form and await self._is_valid(environ, loop)
        except PlatformError as error:
            return error
        now = loop.time()
        caller = address_of(environ["REMOTE_ADDR"], environ.get("HTTP_X_FORWARDED_FOR", ""), self._proxies)
        if delay := self._guesses.delay(caller, b"" if by_form else sent.value, now, right=right):
            if self._waiting[caller] >= MOST_WAITING:
                return TooManyGuesses(retry_after=int(LONGEST))
            self._waiting[caller] += 1
            try:
                await asyncio.sleep(delay)
            finally:
                self._waiting[caller] -= 1
                if not self._waiting[caller]:
                    del self._waiting[caller]
        if not by_form:
            self._guesses.checked(caller, sent.value, right=right)
        return None

    async def _is_valid(self, environ: Mapping[str, object], loop: asyncio.AbstractEventLoop) -> bool:
        """Return whether a credential is valid; the database is asked for it outside of the event loop."""
        known = self._identification.recall(environ)
        if known is None:
            known = (await loop.run_in_executor(self._lookups, self._identification.identify, environ),)
        return known[0] is not None
