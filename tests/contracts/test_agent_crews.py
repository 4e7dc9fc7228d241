"""When the agent makes crews."""

import asyncio
from pathlib import Path
from typing import Any

from workers import agent
from workers.crews import Kind

NOOP = Kind("python", "python", "noop", "1")


def test_a_crew_that_was_taken_has_a_successor_as_soon_as_may_be(tmp_path: Path, monkeypatch: Any) -> None:
    """And not when somebody looks again: who submits every other second would wait for one half of the time."""
    monkeypatch.setattr(agent, "REFILL", 0.01)
    monkeypatch.setattr(agent, "LOOK", 3600.0)
    (tmp_path / "run").mkdir()
    cache: Any = None  # nothing is staged
    one = agent.Agent(home=tmp_path, cache=cache, cores=1, kinds=1, sandbox=None, refusal=None, promised=None)
    made: list[Kind] = []
    monkeypatch.setattr(one, "_muster", lambda kind, _: made.append(kind))

    async def scene() -> None:
        keeping = asyncio.create_task(one._keep_warm())
        await asyncio.sleep(0)
        assert not made, "nobody has asked for one yet"
        one._used(NOOP)
        async with asyncio.timeout(30):
            while not made:
                await asyncio.sleep(0.01)
        keeping.cancel()

    asyncio.run(scene())
    assert made == [NOOP]
