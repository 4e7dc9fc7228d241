"""Play without a server: a model on the scenarios of a dataset, on this machine, with the results of a simulation.

    from windtunnel import local

    played = local.play("model.py", "car_street", scenarios=[0])
    assert played.results[0].metrics["collision"] == 0

The evaluator, the sandbox and the model servers are the platform's own; the package `windtunnel-server` has them.
"""

import os
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from windtunnel import submissions
from windtunnel.conversations import Conversation, LocalError
from windtunnel.errors import WindtunnelError
from windtunnel.model_sources import LocalModel, ReferencedModel, pack, source_of
from windtunnel.records import Check, Result, Simulation, read
from windtunnel.submissions import Scenarios

__all__ = ["LocalError", "Played", "check", "play"]

#: The most characters of the output of models that are kept, the last ones.
KEPT = 64 << 10
#: Gets what is going on, as a sentence, or the numbers of tasks that have a result and of all.
OnProgress = Callable[[str, int | None, int | None], None]


@dataclass(frozen=True, slots=True)
class Played:
    """What was played: the simulation as a platform describes it, a result per task, and what the model printed."""

    simulation: Simulation
    results: Sequence[Result]
    output: str

    @property
    def ok(self) -> bool:
        """Whether there is a result that is `ok` for every task."""
        return self.simulation.ok

    def __str__(self) -> str:
        reasons = [self.simulation.reason, *(result.error for result in self.results)]
        return "\n".join([repr(self.simulation), *dict.fromkeys(filter(None, reasons)), self.output]).strip()


def play(
    model: str | os.PathLike[str] | None,
    dataset: str,
    *,
    scenarios: Scenarios | None = None,
    sample: int | None = None,
    params: Mapping[str, Any] | None = None,
    sweep: Mapping[str, Sequence[Any]] | None = None,
    repeat: int | None = None,
    seed: int | None = None,
    workers: int | None = None,
    worlds: int | Literal["auto"] | None = None,
    trusted: bool | None = None,
    runtime: str | None = None,
    format: str | None = None,
    server: str | None = None,
    progress: OnProgress | None = None,
) -> Played:
    """Play a model: a file, a folder, or the name of a baseline, such as `idm`; None: the baseline of ``runtime``.

    Arguments are those of ``Client.run``. ``server``: URL of the platform that the dataset is registered on. A model
    that fails is not an error: `Played.ok` is false then. Raise LocalError, with the next step, if nothing can be
    played.
    """
    document = submissions.document(
        dataset,
        scenarios_=scenarios,
        sample=sample,
        params=dict(params or {}),
        sweep={name: list(values) for name, values in (sweep or {}).items()},
        repeat=repeat,
        seed=seed,
        workers=workers,
        worlds=worlds,
        trusted=trusted,
    )
    results: list[Result] = []
    output = ""
    with _conversation(model, document, runtime=runtime, format=format, server=server) as messages:
        for kind, body in messages:
            if kind == "result":
                results.append(read(Result, body))
            elif kind == "output":
                output = (output + body["text"])[-KEPT:]
            elif kind == "progress" and progress is not None:
                progress(body.get("message", ""), body.get("done"), body.get("total"))
            elif kind == "simulation":
                results.sort(key=lambda result: result.task)
                return Played(read(Simulation, body), results, output)
    raise AssertionError("the messages end with an error or with the simulation")


def check(
    model: str | os.PathLike[str] | None,
    dataset: str,
    *,
    params: Mapping[str, Any] | None = None,
    runtime: str | None = None,
    format: str | None = None,
    server: str | None = None,
    progress: OnProgress | None = None,
) -> Check:
    """Load a model and act for a few real steps of a dataset; return whether it fits. Arguments and errors: `play`."""
    document = submissions.document(dataset, params=dict(params or {}))
    options = {"runtime": runtime, "format": format, "server": server}
    with _conversation(model, document, "--check", **options) as messages:
        for kind, body in messages:
            if kind == "check":
                return read(Check, body)
            if kind == "progress" and progress is not None:
                progress(body.get("message", ""), body.get("done"), body.get("total"))
    raise AssertionError("the messages end with an error or with the check")


@contextmanager
def _conversation(
    model: str | os.PathLike[str] | None, document: dict[str, Any], *flags: str, **options: str | None
) -> Iterator[Iterator[tuple[str, Any]]]:
    """Start playing, and give the messages of it."""
    with tempfile.TemporaryDirectory(prefix="windtunnel-") as folder:
        arguments = [_model(model, Path(folder), options["runtime"]), document.pop("dataset"), "--submission", *flags]
        arguments += [f"--{name}={value}" for name, value in options.items() if value is not None]
        with Conversation("play", arguments) as conversation:
            conversation.send(document)
            yield conversation.messages()


def _model(model: str | os.PathLike[str] | None, folder: Path, runtime: str | None) -> str:
    """Return the model as the process takes it: the path of a file, the name of a baseline, or `-`."""
    if model is None:
        if runtime is None:
            raise WindtunnelError("Name a model, or a runtime that has a baseline.")
        return "-"
    source = source_of(model)
    if isinstance(source, ReferencedModel):
        raise WindtunnelError(f"{source.reference} is read by a platform only: download the model, and name its file.")
    if not isinstance(source, LocalModel):
        return source.name
    path = source.path.absolute()
    return str(pack(path, folder / f"{path.name}.zip") if path.is_dir() else path)
