"""Two models compared: plays both on the same scenarios and stops when the answer is known (docs/comparisons.md).

python examples/comparison.py
"""

from pathlib import Path

from windtunnel import Client

with Client() as client:
    own = client.models.upload(Path(__file__).with_name("controller.py"), name="controller")
    started = client.comparisons.create([own.name, "idm"], "car_street", reference="idm")
    comparison = client.comparisons.wait(started.id, lambda event: print(f"  {event.type}"))

for model in comparison.models:
    if model.verdict is not None:
        print(model.verdict.sentence)
