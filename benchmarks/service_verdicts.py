"""Verdicts on the service: nine copies of one noisy policy, compared on a running platform, which are equal.

`python -m benchmarks.service_verdicts` plays every copy with every seed on CartPole, compares eight of them with the
ninth, and counts the decisions. Three kinds of noise: from `numpy.random`, which the platform seeds, so that copies
which differ by a comment are equal to the bit; from a generator that the copy's number salts, which repeats to the
digest and differs between copies; and from `default_rng()`, which does not repeat. Of 160 verdicts at most 14 may be
better or worse at an error rate of 5 % (99 % of the binomial distribution); at a margin of 4.2 standard errors at least
80 % end equivalent, and at 1 at most 14.
"""

import argparse
import json
import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.platform_client import PlatformClient
from benchmarks.platform_process import PlatformProcess

COPIES, SEEDS = 9, 20
POLICY = """# copy {copy}
import numpy as np


class Model:
    def reset(self, info):
        self.noise = {noise}

    def act(self, observation):
        push = float(observation[2] + 0.5 * observation[3] > 0)
        return [float(self.noise.random() < 0.5) if self.noise.random() < 0.4 else push]
"""
NOISES: Mapping[str, str] = {
    "seeded": "np.random",
    "salted": 'np.random.default_rng([info["seed"], {copy}])',
    "unseeded": "np.random.default_rng()",
}
#: What is played of each scenario, with 100 tasks each.
PLANS: Mapping[str, Mapping[str, Any]] = {
    "once": {"scenarios": {"range": [0, 100]}},
    "repeat 5": {"scenarios": {"range": [0, 20]}, "repeat": 5},
    "sweep of 2": {"scenarios": {"range": [0, 50]}, "sweep": {"latency_steps": [0, 1]}},
}
#: Margins in standard errors of the mean difference.
MARGINS = (1.0, 4.2)


def upload(client: PlatformClient, noise: str) -> list[str]:
    """Upload the copies of the policy; return their names."""
    names = []
    for copy in range(COPIES):
        source = POLICY.format(copy=copy, noise=NOISES[noise].format(copy=copy))
        client.open("PUT", f"/v1/models/{noise}{copy}?filename=model.py", source.encode()).read()
        names.append(f"{noise}{copy}")
    return names


def play(client: PlatformClient, names: Sequence[str], plan: Mapping[str, Any]) -> dict[tuple[str, int], str]:
    """Play each model with each seed; return the simulations."""
    runs = {
        (name, seed): client.submit({"model": name, "dataset": "cartpole", "seed": seed, "record": "none", **plan})[
            "id"
        ]
        for seed in range(SEEDS)
        for name in names
    }
    for id in runs.values():
        client.until(id, every=0.2, limit=3600)
    return runs


def decisions(
    client: PlatformClient, runs: Mapping[tuple[str, int], str], names: Sequence[str], errors: float | None
) -> Counter[str]:
    """Return how often each decision was made; ``errors``: margin in standard errors, None for the default."""
    counts: Counter[str] = Counter()
    *copies, reference = names
    for seed in range(SEEDS):
        for name in copies:
            address = f"/v1/simulations/{runs[name, seed]}/comparison?to={runs[reference, seed]}"
            verdict = client.get(address)["verdict"]
            if errors is not None:
                # about the standard error, from the interval of a look at 4 % of both sides together
                error = (verdict["high"] - verdict["low"]) / 2 / 2.2
                verdict = client.get(f"{address}&margin={max(errors * error, 1e-6):.6g}")["verdict"]
            assert verdict["count"] * (verdict["tasks"] // verdict["count"]) == 100, verdict
            counts[verdict["decision"]] += 1
    return counts


def main() -> None:
    """Print a row for each kind of noise and plan."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--noises", nargs="*", default=list(NOISES))
    parser.add_argument("--plans", nargs="*", default=list(PLANS))
    options = parser.parse_args()
    home = Path(tempfile.mkdtemp(prefix="verdicts-"))
    platform = PlatformProcess(home)
    try:
        client = platform.connect()
        for noise in options.noises:
            names = upload(client, noise)
            for plan in options.plans:
                began = time.monotonic()
                runs = play(client, names, PLANS[plan])
                found = {str(errors): decisions(client, runs, names, errors) for errors in (None, *MARGINS)}
                row = {"noise": noise, "plan": plan, "seconds": round(time.monotonic() - began), "margins": found}
                print(json.dumps(row), flush=True)
    finally:
        platform.stop()
        shutil.rmtree(home, ignore_errors=True)


if __name__ == "__main__":
    main()
