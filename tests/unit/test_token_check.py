"""Token check: what wrong tokens cost, and that those who have right ones do not wait for them."""

import asyncio
from collections.abc import Mapping

from api.credentials import credential_of
from api.identification import OneToken
from common.errors import PlatformError, TooManyGuesses
from core.domain.access.credentials import new_credential
from core.domain.access.identities import UserIdentity
from server.token_check import TokenCheck
from server.token_guesses import BURST


class SlowTokens(OneToken):
    """Identities of tokens that have to be looked up each time, as in a database; counts how often."""

    def __init__(self, *right: str) -> None:
        super().__init__("of-nobody")
        self.accounts = True
        self._right = {token.encode() for token in right}
        self.lookups = 0

    def recall(self, environ: Mapping[str, object]) -> None:  # type: ignore[override]
        """Know nothing."""

    def identify(self, environ: Mapping[str, object]) -> UserIdentity | None:
        self.lookups += 1
        return UserIdentity("ada") if credential_of(environ).value in self._right else None


def request(token: str, address: str = "10.0.0.1") -> dict[str, str]:
    return {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": "/v1/models",
        "REMOTE_ADDR": address,
        "HTTP_AUTHORIZATION": f"Bearer {token}",
    }


def test_wrong_tokens_are_not_looked_up_as_fast_as_they_come() -> None:
    tokens = SlowTokens()
    check = TokenCheck(tokens)

    async def attack() -> list[PlatformError | None]:
        guesses = [asyncio.ensure_future(check(request(new_credential()))) for _ in range(300)]
        await asyncio.wait(guesses, timeout=0.5)
        waiting = [each for each in guesses if not each.done()]
        for each in waiting:
            each.cancel()
        await asyncio.gather(*waiting, return_exceptions=True)
        return [each.result() for each in guesses if not each.cancelled()]

    answers = asyncio.run(attack())
    assert tokens.lookups <= BURST + 3
    assert sum(isinstance(answer, TooManyGuesses) for answer in answers) >= 250


def test_who_has_had_his_token_checked_never_waits_behind_guesses_at_his_address() -> None:
    right = new_credential()
    tokens = SlowTokens(right)
    check = TokenCheck(tokens)

    async def use() -> float:
        assert await check(request(right)) is None
        guesses = [asyncio.ensure_future(check(request(new_credential()))) for _ in range(100)]
        await asyncio.sleep(0)
        loop = asyncio.get_running_loop()
        began = loop.time()
        for address in ("10.0.0.1", "10.0.0.2"):
            assert await check(request(right, address)) is None
        elapsed = loop.time() - began
        for each in guesses:
            each.cancel()
        await asyncio.gather(*guesses, return_exceptions=True)
        return elapsed

    assert asyncio.run(use()) < 1.0, "a wrong one waits for longer"


def test_many_right_tokens_of_one_address_are_checked_at_once() -> None:
    right = [new_credential() for _ in range(100)]
    check = TokenCheck(SlowTokens(*right))

    async def use() -> list[PlatformError | None]:
        return await asyncio.wait_for(asyncio.gather(*(check(request(token)) for token in right)), 5.0)

    assert asyncio.run(use()) == [None] * 100
