"""Node agent: when it starts warm runners."""

import asyncio
from pathlib import Path
from typing import Any

from datasets.catalogue import datasets
from runtimes.catalogue import runtimes, simulators
from tests.contracts.harness_processes import SITE
from tests.waiting import TIMEOUT
from workers.node_agent import Agent, WarmRunnerOptions
from workers.warm_runners import WarmKind


def test_a_warm_runner_is_replaced_after_the_refill_delay_and_not_at_the_next_check(tmp_path: Path) -> None:
    noop = WarmKind(runtime="python", format="python", dataset="noop", version=datasets()["noop"].version)
    environments = (runtimes()["python"].formats["python"].environment, simulators()["noop"])
    for digest in {environment.digest for environment in environments}:
        (tmp_path / "environments" / digest).mkdir(parents=True)
        (tmp_path / "environments" / digest / "site").symlink_to(SITE)
    models: Any = None  # no launch is submitted
    options = WarmRunnerOptions(refill=0.01, check=3600.0)
    agent = Agent(home=tmp_path, models=models, cores=1, sandbox=None, refusal=None, warm=options)

    async def request_warm_runner() -> None:
        stop = asyncio.Event()
        serving = asyncio.create_task(agent.serve(stop))
        await asyncio.sleep(0)
        assert not agent.warm_kinds, "no kind has been used yet"
        agent.record_use(noop)
        async with asyncio.timeout(TIMEOUT):
            while not agent.warm_kinds:
                await asyncio.sleep(0.01)
        assert agent.warm_kinds == [noop]
        stop.set()
        await serving

    asyncio.run(request_warm_runner())
