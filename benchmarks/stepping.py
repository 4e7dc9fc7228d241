"""Steps per second of Gymnasium environments: plain CartPole, the same world on this machine, and through a server."""

import os
import subprocess
import sys
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import gymnasium
import httpx

import windtunnel.gym  # noqa: F401 - registers the ids
from benchmarks.figures import spread
from benchmarks.results import spanned, table
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parents[1]
#: Runs of each environment in turns, and seconds of a run.
RUNS, SECONDS = 5, 2.0
PLAIN, STREET = "Gymnasium's CartPole-v1", "`windtunnel/car_street` on this machine"
HERE, THERE = "`windtunnel/cartpole` on this machine", "`windtunnel/cartpole` through an OpenEnv server"


@contextmanager
def server() -> Iterator[str]:
    """Serve cartpole, as `make openenv` does; give the address."""
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "local_play.openenv_server", "--dataset", "cartpole", "--port", str(port)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        url = f"http://127.0.0.1:{port}"

        def serves() -> bool:
            assert process.poll() is None, "the server does not start"
            try:
                return httpx.get(f"{url}/health", trust_env=False).status_code == 200
            except httpx.TransportError:
                return False

        try:
            until(serves, 300.0, lambda: "the server does not answer")  # its packages may have to be installed
            yield url
        finally:
            process.terminate()


def steps_per_second(environment: Any) -> float:
    """Step with actions of its space, which are drawn before, through as many scenarios as it takes."""
    actions = [environment.action_space.sample() for _ in range(256)]
    environment.reset(seed=0)
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < SECONDS:
        _, _, terminated, truncated, _ = environment.step(actions[count % len(actions)])
        count += 1
        if terminated or truncated:
            environment.reset()
    return count / elapsed


def measure() -> dict[str, Any]:
    """Measure every environment in turns, so that a busy moment of the machine meets all of them."""
    os.environ.setdefault("WINDTUNNEL_HOME", str(ROOT / "var"))
    with server() as url:
        environments = {
            PLAIN: gymnasium.make("CartPole-v1"),
            HERE: gymnasium.make("windtunnel/cartpole"),
            THERE: gymnasium.make("windtunnel/cartpole", url=url),
            STREET: gymnasium.make("windtunnel/car_street"),
        }
        rates: dict[str, list[float]] = {name: [] for name in environments}
        for run in range(RUNS + 1):
            for name, environment in environments.items():
                rate = steps_per_second(environment)
                if run:  # the first one starts processes
                    rates[name].append(rate)
        for environment in environments.values():
            environment.close()
    for name, values in rates.items():
        print(f"{name}: {spread(values)}", flush=True)
    return {"environments": {name: spread(values) for name, values in rates.items()}}


def section(figures: Mapping[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    rows = [[name, spanned(values, lambda rate: f"{rate:,.0f}")] for name, values in figures["environments"].items()]
    return "\n\n".join(
        [
            f"Steps per second of one environment with random actions, resets included; {RUNS} runs of {SECONDS:g} s "
            "each in turns, after one that is not counted. On this machine a step is a line of JSON to a sandboxed "
            "process and back; a server adds a WebSocket and OpenEnv's own checks.",
            table(["environment", "median (minimum to maximum)"], rows),
        ]
    )
