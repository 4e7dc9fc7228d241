"""When the agent makes warm runners."""

import asyncio
from pathlib import Path
from typing import Any

from datasets.catalogue import datasets
from runtimes.catalogue import runtimes, simulators
from tests.contracts.harness_processes import SITE
from tests.waiting import TIMEOUT
from workers.node_agent import Agent, WarmTimings
from workers.warm_runners import Kind


def test_a_warm_runner_that_was_taken_has_a_successor_as_soon_as_may_be(tmp_path: Path) -> None:
    """And not when somebody looks again: who submits every other second would wait for one half of the time."""
    noop = Kind("python", "python", "noop", datasets()["noop"].version)
    needed = (runtimes()["python"].formats["python"].environment, simulators()["noop"])
    for digest in {environment.digest for environment in needed}:
        (tmp_path / "environments" / digest).mkdir(parents=True)
        (tmp_path / "environments" / digest / "site").symlink_to(SITE)
    cache: Any = None  # nothing is staged
    timings = WarmTimings(refill=0.01, check=3600.0)
    one = Agent(
        home=tmp_path, cache=cache, cores=1, kinds=1, sandbox=None, refusal=None, promised=None, timings=timings
    )

    async def scene() -> None:
        stop = asyncio.Event()
        serving = asyncio.create_task(one.serve(stop))
        await asyncio.sleep(0)
        assert not one.warm_kinds, "nobody has asked for one yet"
        one.note_use(noop)
        async with asyncio.timeout(TIMEOUT):
            while not one.warm_kinds:
                await asyncio.sleep(0.01)
        assert one.warm_kinds == [noop]
        stop.set()
        await serving

    asyncio.run(scene())
