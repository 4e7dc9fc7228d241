"""Outputs of programs: what one trains is a model of the platform, which plays next."""

from tests.system.platform_process import PlatformProcess

TRAINING = """
import os, pathlib
policy = "class Model:\\n    def act(self, observation):\\n        return [0.0, 0]\\n"
pathlib.Path(os.environ["WINDTUNNEL_OUTPUT"], "policy.py").write_text(policy)
print('{"fitted": true}')
"""


def test_a_model_that_a_program_trains_is_played_next(platform: PlatformProcess) -> None:
    trained = platform.run(
        model=TRAINING.encode(),
        filename="fit.py",
        dataset="program",
        scenarios={"range": [0, 2]},
        gang={"size": 1, "command": ["python", "model.py"]},
        outputs={"policy": {"file": "policy.py", "as": "model", "name": "coasting"}},
    )
    made = trained["outputs"]["policy"]
    assert (trained["state"], made["error"], made["name"]) == ("succeeded", None, "coasting"), trained["reason"]
    played = platform.run(model=made["reference"], dataset="car_street", scenarios={"range": [0, 2]})
    assert played["state"] == "succeeded", played["reason"]
    assert played["provenance"]["model"]["source"]["simulation"] == trained["id"]
