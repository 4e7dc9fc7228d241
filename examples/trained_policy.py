"""A trained policy: cross-entropy search for a linear policy of cartpole in numpy, in seconds; then 100 scenarios.

python examples/trained_policy.py            # trains, writes policy.py, sends it, prints its mean return
"""

import numpy as np

from windtunnel import Client

ROUNDS, SAMPLES, ELITE, EPISODES, STEPS = 12, 64, 8, 8, 500
MODEL = """class Model:
    weights = {weights}

    def act(self, observation):
        return [float(sum(w * x for w, x in zip(self.weights, observation)) > 0)]
"""


def returns(weights, draw):
    """Return the mean number of steps that each row of weights balances the pole, over the same random starts."""
    state = np.repeat(draw.uniform(-0.05, 0.05, (1, EPISODES, 4)), len(weights), axis=0)
    alive, lengths = np.ones(state.shape[:2], bool), np.zeros(state.shape[:2])
    for _ in range(STEPS):
        _, velocity, angle, turning = np.moveaxis(state, 2, 0)
        force = np.where(np.einsum("wi,wei->we", weights, state) > 0, 10.0, -10.0)
        pull = (force + 0.05 * turning**2 * np.sin(angle)) / 1.1  # Gymnasium's equations: a pole of 0.1 kg, 1 m long
        swing = (9.8 * np.sin(angle) - np.cos(angle) * pull) / (0.5 * (4 / 3 - 0.1 * np.cos(angle) ** 2 / 1.1))
        push = pull - 0.05 * swing * np.cos(angle) / 1.1
        state += 0.02 * np.stack([velocity, push, turning, swing], axis=2)
        alive &= (abs(state[..., 0]) < 2.4) & (abs(state[..., 2]) < 0.2095)
        lengths += alive
    return lengths.mean(axis=1)


def train(seed=0):
    """Return the mean of the best weights of the last round."""
    draw = np.random.default_rng(seed)
    mean, deviation = np.zeros(4), np.ones(4)
    for _ in range(ROUNDS):
        samples = draw.normal(mean, deviation, (SAMPLES, 4))
        best = samples[np.argsort(returns(samples, draw))[-ELITE:]]
        mean, deviation = best.mean(axis=0), best.std(axis=0) + 0.02
    return mean


if __name__ == "__main__":
    with open("policy.py", "w") as file:
        file.write(MODEL.format(weights=[round(float(weight), 4) for weight in train()]))
    with Client() as client:
        simulation = client.run("policy.py", "cartpole")
    mean = simulation.answer.score.mean
    print(f"{simulation.state}: mean return {mean:.1f} of 500 over {simulation.tasks.total} scenarios")
