"""Steps per second of Gymnasium environments and vectors: plain CartPole, and the same world of this platform."""

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
from benchmarks.results import aim, spanned, table
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parents[1]
#: Runs of each environment in turns, and seconds of a run.
RUNS, SECONDS = 5, 2.0
PLAIN, STREET = "Gymnasium's CartPole-v1", "`windtunnel/car_street` on this machine"
HERE, THERE = "`windtunnel/cartpole` on this machine", "`windtunnel/cartpole` through an OpenEnv server"
#: Worlds of a vector.
WORLDS = 16
PLAIN_VECTOR = f"Gymnasium's SyncVectorEnv of {WORLDS} CartPole-v1"
HERE_VECTOR = f"`make_vec` of {WORLDS} `windtunnel/cartpole` on this machine"
#: What is compared with what, in the same run.
COMPARED = {HERE: PLAIN, HERE_VECTOR: PLAIN_VECTOR}
#: Aims: steps/s of one environment, and the share of the plain vector's steps/s.
ALONE, TOGETHER = 60_000, 0.8


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
    """Step with actions of its space, which are drawn before, through as many scenarios as it takes.

    A step of a vector counts once for each world; its worlds start again by themselves.
    """
    actions = [environment.action_space.sample() for _ in range(256)]
    worlds = getattr(environment, "num_envs", None)
    environment.reset(seed=0)
    count, began = 0, time.perf_counter()
    while (elapsed := time.perf_counter() - began) < SECONDS:
        _, _, terminated, truncated, _ = environment.step(actions[count % len(actions)])
        count += 1
        if worlds is None and (terminated or truncated):
            environment.reset()
    return count * (worlds or 1) / elapsed


def measure() -> dict[str, Any]:
    """Measure every environment in turns, so that a busy moment of the machine meets all of them."""
    os.environ.setdefault("WINDTUNNEL_HOME", str(ROOT / "var"))
    with server() as url:
        environments = {
            PLAIN: gymnasium.make("CartPole-v1"),
            HERE: gymnasium.make("windtunnel/cartpole"),
            THERE: gymnasium.make("windtunnel/cartpole", url=url),
            STREET: gymnasium.make("windtunnel/car_street"),
            PLAIN_VECTOR: gymnasium.make_vec("CartPole-v1", WORLDS, vectorization_mode="sync"),
            HERE_VECTOR: gymnasium.make_vec("windtunnel/cartpole", WORLDS),
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
    shares = {
        name: spread(ours / plain for ours, plain in zip(rates[name], rates[peer], strict=True))
        for name, peer in COMPARED.items()
    }
    return {"environments": {name: spread(values) for name, values in rates.items()}, "shares": shares}


def section(figures: Mapping[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    shares = figures["shares"]
    rows = [
        [
            name,
            spanned(values, lambda rate: f"{rate:,.0f}"),
            spanned(shares[name], lambda share: f"{share:.2f}") if name in shares else "",
        ]
        for name, values in figures["environments"].items()
    ]
    alone, together = figures["environments"][HERE]["median"], shares[HERE_VECTOR]["median"]
    return "\n\n".join(
        [
            f"Steps per second with random actions, resets included; {RUNS} runs of {SECONDS:g} s each in turns, after "
            "one that is not counted. A step of a vector counts once for each world. *Share*: of the rate of the plain "
            "environment, or vector, in the same run. On this machine a step is an exchange with a sandboxed process "
            "by shared memory, in a vector one for all worlds; a server adds a WebSocket and OpenEnv's own checks.",
            table(["environment", "steps/s, median (minimum to maximum)", "share"], rows),
            f"{aim(f'{ALONE:,} steps/s of one environment', alone >= ALONE)} "
            f"{aim(f'a vector has {TOGETHER:g} of the plain one', together >= TOGETHER)}",
        ]
    )
