"""Token check of the gateway: delays requests with a token of callers that guess, in the event loop.

A token that this process has not seen is looked up in the database. The look-up waits too if its caller has
sent many wrong ones, so that guesses cost two look-ups a second for each address, however many are sent.
"""

import asyncio
from collections import Counter
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from weakref import WeakValueDictionary

from api.credentials import credential_of
from api.identification import Identification
from common.client_addresses import Network, address_of
from common.errors import PlatformError, TooManyGuesses
from server.token_guesses import LONGEST, MOST_WAITING, TokenGuesses

#: Tokens that are looked up in the database at the same time; of those of a caller that this process has not seen.
LOOKUPS, UNSEEN_LOOKUPS = 4, 2


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
        self._turns: WeakValueDictionary[str, asyncio.Semaphore] = WeakValueDictionary()

    async def __call__(self, environ: Mapping[str, Any]) -> PlatformError | None:
        """Return the error that refuses the request unseen, because too many of its caller wait."""
        if self._identification.open_to_all:
            return None
        sent = credential_of(environ)
        by_form = environ["REQUEST_METHOD"] == "POST" and environ["PATH_INFO"] in self._forms
        if not (sent.value or by_form):
            return None
        caller = address_of(environ["REMOTE_ADDR"], environ.get("HTTP_X_FORWARDED_FOR", ""), self._proxies)
        try:
            if by_form:
                return await self._wait(caller, b"", right=False)
            known = self._identification.recall(environ)
            if known is None and not self._guesses.is_proven(caller, sent.value):
                return await self._check_unseen(environ, caller, sent.value)
            right = (known[0] if known is not None else await self._identify(environ)) is not None
        except PlatformError as error:
            return error
        if (refusal := await self._wait(caller, sent.value, right=right)) is None:
            self._guesses.checked(caller, sent.value, right=right)
        return refusal

    async def _check_unseen(self, environ: Mapping[str, object], caller: str, token: bytes) -> PlatformError | None:
        """Look up a token of which nothing is known: at once, or after a wait if its caller has sent many wrong ones.

        Few at a time of each caller, so that each look-up knows what those before it were.
        """
        turn = self._turns.get(caller)
        if turn is None:
            turn = self._turns[caller] = asyncio.Semaphore(UNSEEN_LOOKUPS)
        async with turn:
            if at_once := not self._guesses.is_guessing(caller, token, asyncio.get_running_loop().time()):
                right = await self._identify(environ) is not None
                self._guesses.delay(caller, token, asyncio.get_running_loop().time(), right=right)
        if not at_once:
            if (refusal := await self._wait(caller, token, right=False)) is not None:
                return refusal
            right = await self._identify(environ) is not None
        self._guesses.checked(caller, token, right=right)
        return None

    async def _wait(self, caller: str, token: bytes, *, right: bool) -> PlatformError | None:
        """Wait as long as the check of a token is delayed; return the refusal if too many of its caller wait."""
        delay = self._guesses.delay(caller, token, asyncio.get_running_loop().time(), right=right)
        if delay:
            if self._waiting[caller] >= MOST_WAITING:
                return TooManyGuesses(retry_after=int(LONGEST))
            self._waiting[caller] += 1
            try:
                await asyncio.sleep(delay)
            finally:
                self._waiting[caller] -= 1
                if not self._waiting[caller]:
                    del self._waiting[caller]
        return None

    async def _identify(self, environ: Mapping[str, object]) -> object | None:
        """Look a credential up, outside of the event loop."""
        return await asyncio.get_running_loop().run_in_executor(self._lookups, self._identification.identify, environ)
