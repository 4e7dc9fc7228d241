"""Cross-entropy search for a linear policy of cartpole over OpenEnv; prints the policy as a model of the platform.

python -m local_play.openenv_server --dataset cartpole &
python examples/openenv/cross_entropy.py > policy.py
curl -F model=@policy.py -F dataset=cartpole localhost:5000/v1/simulations
"""

import random
import statistics
import sys

from openenv import GenericEnvClient

SAMPLES, ELITE, ROUNDS, SCENARIOS = 24, 6, 4, 3


def episode(env, weights, **reset):
    """Play a scenario; return the sum of the rewards."""
    result, total = env.reset(**reset), 0.0
    while not result.done:
        push = sum(w * x for w, x in zip(weights, result.observation["values"], strict=True)) > 0
        result = env.step({"push": float(push)})
        total += result.reward
    return total


def search(env, seed=0):
    """Return the mean weights of the best samples of the last round."""
    draw, mean, deviation = random.Random(seed), [0.0] * 4, [1.0] * 4
    for number in range(ROUNDS):
        samples = [[draw.gauss(m, d) for m, d in zip(mean, deviation, strict=True)] for _ in range(SAMPLES)]
        returns = [
            statistics.mean(episode(env, sample, scenario=index) for index in range(SCENARIOS)) for sample in samples
        ]
        elite = [sample for _, sample in sorted(zip(returns, samples, strict=True), reverse=True)[:ELITE]]
        mean = [statistics.mean(column) for column in zip(*elite, strict=True)]
        deviation = [statistics.pstdev(column) + 0.05 for column in zip(*elite, strict=True)]
        print(f"round {number}: mean return {statistics.mean(returns):.1f}, best {max(returns):.1f}", file=sys.stderr)
    return mean


def model(weights):
    """Return the policy as a model of the platform."""
    return f"""class Model:
    weights = {weights}

    def act(self, observation):
        return [float(sum(w * float(x) for w, x in zip(self.weights, observation)) > 0)]"""


if __name__ == "__main__":
    with GenericEnvClient(base_url=sys.argv[1] if len(sys.argv) > 1 else "http://localhost:8000").sync() as env:
        weights = search(env)
        print(f"return of scenario 17: {episode(env, weights, scenario=17)}", file=sys.stderr)
    print(model(weights))
