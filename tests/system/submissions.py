"""Simulations of every kind that this machine can play, each long enough to be disturbed while it is played."""

import threading
from collections.abc import Callable, Mapping
from typing import Any

from tests.system.installations import Installation
from tests.system.platform_process import FINAL, MODELS, form
from tests.system.test_datasets import dataset_json, scenarios, tar
from tests.waiting import until

TUS = {"Tus-Resumable": "1.0.0"}
#: Bytes of a model, and of each request of its upload.
PADDED, PART = 400_000, 50_000
#: The models that are sent as a file.
ECHO = (MODELS / "echo.py").read_bytes()
LATE = (MODELS / "answers_after_a_while.py").read_bytes()
#: Seconds in which a submission must have been accepted, the longest outage not included.
ACCEPTED = 240.0

#: Submits a simulation, however often requests have to be repeated; returns its id.
Submit = Callable[[Installation, str, float], str]


def submission(file: bytes | None = None, /, **fields: Any) -> Submit:
    """Return a function that submits fields, with a model as a file or named in them."""

    def submit(installation: Installation, key: str, outage: float) -> str:
        headers = {"Idempotency-Key": key}
        if file is None:
            body: dict[str, Any] = {"json": {**fields, "workers": 1}}
        else:
            body = {"data": form({**fields, "workers": 1}), "files": {"model": ("model.py", file)}}
        response = installation.answer("POST", "/v1/simulations", ACCEPTED + outage, headers=headers, **body)
        assert response.status_code == 201, response.text
        return str(response.json()["id"])

    return submit


def upload(installation: Installation, body: bytes, outage: float) -> str:
    """Upload bytes over tus in several requests, each repeated from the offset that is stored; return the address."""
    headers = TUS | {"Upload-Length": str(len(body))}
    created = installation.answer("POST", "/v1/uploads", ACCEPTED + outage, headers=headers)
    assert created.status_code == 201, created.text
    path = "/v1/uploads/" + created.headers["Location"].rpartition("/")[2]
    offset = 0
    while offset < len(body):
        headers = TUS | {"Content-Type": "application/offset+octet-stream", "Upload-Offset": str(offset)}
        installation.ask("PATCH", path, headers=headers, content=body[offset : offset + PART])
        stored = int(installation.answer("HEAD", path, ACCEPTED + outage, headers=TUS).headers["Upload-Offset"])
        assert stored >= offset, f"the upload had {offset} bytes and has {stored}"
        offset = stored
    return path


def uploaded(**fields: Any) -> Submit:
    """Return a function that uploads the slow model in parts, and submits the upload."""

    def submit(installation: Installation, key: str, outage: float) -> str:
        path = upload(installation, LATE + b"#" * PADDED, outage)
        id = path.rpartition("/")[2]
        response = installation.answer(
            "POST", "/v1/models", ACCEPTED + outage, json={"upload": id, "filename": "late.py"}
        )
        assert response.status_code == 201, response.text
        return submission(model=response.json()["digest"], **fields)(installation, key, outage)

    return submit


def registered(count: int) -> Submit:
    """Return a function that registers a dataset of its own and submits a simulation of it."""

    def submit(installation: Installation, key: str, outage: float) -> str:
        files = {"dataset.json": dataset_json("cartpole", title="Poles"), "lines.ndjson": scenarios(count)}
        body = {"name": "poles", "source": {"upload": upload(installation, tar(files), outage).rpartition("/")[2]}}
        response = installation.answer("POST", "/v1/datasets", ACCEPTED + outage, json=body)
        assert response.status_code == 202, response.text
        url = response.headers["Location"]

        def is_ready() -> bool:
            version = installation.answer("GET", url, ACCEPTED + outage).json()
            assert version["state"] in ("registering", "ready"), version
            return bool(version["state"] == "ready")

        until(is_ready, ACCEPTED + outage, "the dataset is not registered")
        return submission(LATE, dataset="poles")(installation, key, outage)

    return submit


def retried(first: Submit) -> Submit:
    """Return a function that cancels a simulation while it is played and submits the rest of it as a retry."""

    def submit(installation: Installation, key: str, outage: float) -> str:
        id = first(installation, f"{key}-first", outage)

        def simulation() -> dict[str, Any]:
            return dict(installation.answer("GET", f"/v1/simulations/{id}", ACCEPTED + outage).json())

        until(lambda: simulation()["tasks"]["done"] > 0, ACCEPTED + outage, "no task is done")
        installation.answer("POST", f"/v1/simulations/{id}/cancel", ACCEPTED + outage)
        until(lambda: simulation()["state"] in FINAL, ACCEPTED + outage, "it is not cancelled")
        return until(lambda: retry_of(installation, id), ACCEPTED + outage, "the retry is not answered", every=0.2)

    return submit


def retry_of(installation: Installation, id: str) -> str:
    """Return the retry of a simulation, after a request for it if there is none yet: such a request has no key."""
    response = installation.ask("GET", "/v1/simulations", params={"limit": 200})
    if response is None:
        return ""
    for simulation in response.json()["items"]:
        if simulation["retry_of"] == id:
            return str(simulation["id"])
    response = installation.ask("POST", f"/v1/simulations/{id}/retry")
    assert response is None or response.status_code == 201, response.text
    return str(response.json()["id"]) if response is not None else ""


NOOP: Mapping[str, Any] = {"dataset": "noop", "params": {"sleep_ms": 4}}
#: Every kind of simulation that the local executor plays; gangs need an executor that supports them (docs/gangs.md).
SUBMISSIONS: Mapping[str, Submit] = {
    "noop": submission(ECHO, scenarios={"range": [0, 3000]}, **NOOP),
    "batches": submission(
        runtime="python",
        dataset="noop",
        scenarios={"range": [0, 3200]},
        params={"sleep_ms": 4, "batch": 16},
    ),
    "street": submission(model="idm", runtime="python", dataset="car_street", scenarios={"sample": 8, "seed": 4}),
    "onnx": submission(runtime="onnx", dataset="car_street", scenarios={"sample": 8, "seed": 5}),
    "tflite": submission(runtime="tensorflow", dataset="car_street", scenarios={"sample": 8, "seed": 6}),
    "recorded": submission(runtime="python", dataset="highway", scenarios={"range": [0, 20]}, record="all"),
    "sweep": submission(
        LATE, dataset="cartpole", scenarios={"range": [0, 15]}, sweep={"latency_steps": [0, 3]}, repeat=2
    ),
    "uploaded": uploaded(dataset="cartpole", scenarios={"range": [0, 60]}, seed=7),
    "registered": registered(60),
    "retried": retried(submission(ECHO, scenarios={"range": [0, 3000]}, seed=1, **NOOP)),
}
#: A short simulation, submitted again and again during the long outage.
SHORT: Submit = submission(ECHO, dataset="noop", scenarios={"range": [0, 100]})


class Client(threading.Thread):
    """Submits a simulation in a thread of its own; ``id`` is set once it is accepted, ``error`` if it is not."""

    def __init__(self, installation: Installation, name: str, submit: Submit, key: str, outage: float) -> None:
        super().__init__(name=name, daemon=True)
        self._arguments = (installation, key, outage)
        self._submit = submit
        self.id: str | None = None
        self.error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self.id = self._submit(*self._arguments)
        except BaseException as error:
            self.error = error
