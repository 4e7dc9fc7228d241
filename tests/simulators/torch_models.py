"""Modules of PyTorch for cartpole, saved with the library of an environment: python torch_models.py NAME PATH."""

import sys

import torch

#: Weights with which the sign of the sum balances the pole.
BALANCING = (0.02, 0.05, 1.0, 0.5)
State = tuple[torch.Tensor, torch.Tensor]


class Linear(torch.nn.Module):
    """Answers the push."""

    def __init__(self) -> None:
        super().__init__()
        self.weights = torch.nn.Parameter(torch.tensor(BALANCING))

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return (observation @ self.weights > 0).to(torch.int64)


class Counting(Linear):
    """Pushes to the left from its hundredth step on: state in an attribute."""

    def __init__(self) -> None:
        super().__init__()
        self.steps = 0

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        self.steps += 1
        push = (observation @ self.weights > 0).to(torch.int64)
        return push if self.steps < 100 else torch.zeros_like(push)


class Noisy(Linear):
    """Adds noise of PyTorch's generator."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return (observation @ self.weights + torch.randn(observation.shape[0]) > 0).to(torch.int64)


class Recurrent(Linear):
    """Feeds the state of an LSTM back, which is None when a scenario begins; pushes by it."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)
        self.lstm = torch.nn.LSTM(4, 4)

    def forward(
        self, observation: torch.Tensor, state: torch.Tensor | None = None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        hidden = torch.zeros(1, observation.shape[0], 4) if state is None else state
        answer, (following, _) = self.lstm(observation.unsqueeze(0), (hidden, torch.zeros_like(hidden)))
        return (answer[0].sum(dim=1) > 0).to(torch.int64), following


class FedBack(Linear):
    """Counts its steps in a state of three numbers, and pushes to the left from the hundredth on."""

    def forward(self, observation: torch.Tensor, steps: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        push = (observation @ self.weights > 0).to(torch.int64)
        return push * (steps[:, 0] < 100).to(torch.int64), steps + 1


class Scores(Linear):
    """Answers the scores of both actions."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        score = observation @ self.weights
        return torch.stack((-score, score), dim=1)


class TwoInputs(Linear):
    """Takes an observation and something else that nothing gives."""

    def forward(self, observation: torch.Tensor, goal: torch.Tensor) -> torch.Tensor:
        return (observation @ self.weights + goal > 0).to(torch.int64)


class ThreeFeatures(Linear):
    """Takes three numbers."""

    def forward(self, observation: torch.Tensor) -> torch.Tensor:
        return (observation @ self.weights[:3] > 0).to(torch.int64)


def save(name: str, path: str) -> None:
    """Save the example of this name: `script CLASS`, `trace CLASS`, `export CLASS`, `state CLASS` or an algorithm."""
    kind, _, made = name.partition(" ")
    if kind == "agent":
        save_agent(made, path)
        return
    module = globals()[made]().eval()
    examples = (torch.zeros(1, 3 if made == "ThreeFeatures" else 4),)
    if made in {"FedBack", "TwoInputs"}:
        examples += (torch.zeros(1, 3) if made == "FedBack" else torch.zeros(1),)
    if kind == "script":
        torch.jit.save(torch.jit.script(module), path)
    elif kind == "trace":
        torch.jit.save(torch.jit.trace(module, examples), path)
    elif kind == "export":
        with open(path, "wb") as file:
            torch.export.save(torch.export.export(module, examples), file)
    else:
        torch.save(module.state_dict(), path)


def save_agent(algorithm: str, path: str) -> None:
    """Train an agent for a moment with a fixed seed, and save it; "Gym" before its name: as one with spaces of Gym."""
    import sb3_contrib
    import stable_baselines3

    if of_gym := algorithm.startswith("Gym"):
        algorithm = algorithm.removeprefix("Gym")
    kind = getattr(stable_baselines3, algorithm, None) or getattr(sb3_contrib, algorithm)
    policy = {"RecurrentPPO": "MlpLstmPolicy", "ARS": "LinearPolicy"}.get(algorithm, "MlpPolicy")
    environment = "Pendulum-v1" if algorithm in {"SAC", "TD3"} else "CartPole-v1"
    options = {"n_steps": 64} if algorithm in {"PPO", "RecurrentPPO"} else {}
    agent = kind(policy, environment, seed=1, device="cpu", **options)
    agent.learn(128)
    if of_gym:
        import gymnasium
        from gymnasium.spaces import Box, Discrete, box, discrete

        sys.modules["gym"] = gymnasium
        for space, module in ((Box, box), (Discrete, discrete)):
            space.__module__ = module.__name__.replace("gymnasium", "gym")
            sys.modules[space.__module__] = module
    with open(path, "wb") as file:
        agent.save(file)


if __name__ == "__main__":
    save(sys.argv[1], sys.argv[2])
