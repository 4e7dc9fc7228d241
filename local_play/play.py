"""Play: a model file and a dataset on this machine, with the results of a simulation on a platform."""

import argparse
import sys
import threading
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import msgspec

from common.errors import Invalid, NotFound, Unsafe
from common.near_names import near_names, suggestion
from core.domain.access.scopes import LOCAL_CALLER
from core.domain.submissions.records import Model
from core.domain.submissions.scenario_text import selection_of
from core.domain.submissions.submission import Submission
from core.services.uploads import shipped_models
from core.settings import Settings
from datasets.catalogue import datasets
from local_play import messages, worlds
from local_play.local_simulation import LocalSimulation
from local_play.private_platform import PrivatePlatform, opened, register
from runtimes.harness import sandbox
from windtunnel import submissions

#: Bytes of a model that are read at a time.
CHUNK = 1 << 20
#: Members of a submission that have no meaning on one machine.
ELSEWHERE = frozenset({"placement", "gang", "model", "model_reference", "connection", "log_to_run", "timeout"})


def play(options: argparse.Namespace, settings: Settings) -> None:
    """Simulate, or check, and send what came of it. Raise what makes that impossible."""
    level = sandbox.level() if settings.sandbox == "auto" else None  # before any thread is started
    if level is not None and level.refusal is not None:
        raise Unsafe(level.refusal)
    confinement = {"level": level.number if level else 0, "missing": list(level.missing) if level else []}
    document = _submission(options)
    dataset = worlds.find(options.dataset, options.server, settings)
    with opened(settings, confinement) as platform:
        if dataset.name not in datasets():
            register(platform.services, dataset)
        simulation = LocalSimulation(platform, level.number if level is not None else None)
        if options.submission:
            threading.Thread(target=_interrupt_at_end, args=(simulation,), daemon=True).start()
        model = _model(platform, options)
        named = options.model if model is None and options.model != "-" else None
        submission = _typed({**document, "dataset": options.dataset, "model": named, "dry_run": options.check})
        if options.check:
            messages.send("check", simulation.check(submission, model))
        else:
            messages.send("simulation", simulation.run(submission, model))


def _submission(options: argparse.Namespace) -> dict[str, Any]:
    """Return the members of the submission that the options and standard input give."""
    document: dict[str, Any] = {}
    if options.submission:
        try:
            document = msgspec.json.decode(sys.stdin.buffer.readline(), type=dict)
        except msgspec.MsgspecError as error:
            raise Invalid(f"The submission cannot be read: {error}") from None
    if refused := sorted(ELSEWHERE & document.keys()):
        raise Invalid(f"`{refused[0]}` has no effect on one machine: leave it out, or simulate on a platform.")
    if options.scenarios is not None:
        document["scenarios"] = selection_of(options.scenarios)
    if options.param:
        document["params"] = {**document.get("params", {}), **submissions.parameters(options.param)}
    given = {name: getattr(options, name) for name in ("seed", "runtime", "workers")}
    return document | {name: value for name, value in given.items() if value is not None}


def _typed(document: dict[str, Any]) -> Submission:
    known = {field.name for field in fields(Submission)}
    if unknown := sorted(document.keys() - known):
        raise Invalid(f"A submission has no member `{unknown[0][:80]}`.")
    try:
        return msgspec.convert(document, Submission)
    except msgspec.ValidationError as error:
        raise Invalid(f"The submission is not valid: {error}.") from None


def _model(platform: PrivatePlatform, options: argparse.Namespace) -> Model | None:
    """Store the model's file; None for a baseline, of the runtime or by its name."""
    path = Path(options.model)
    if options.model == "-" or options.model in shipped_models.shipped():
        return None
    if not path.is_file():
        near = near_names(options.model, shipped_models.shipped())
        raise NotFound(
            f"There is no file {path}, and no baseline of this name. {suggestion(near, 'Correct the path.')}"
        )
    return platform.services.files.models.add(
        LOCAL_CALLER, _chunks(path), filename=path.name, runtime=options.runtime, format=options.format
    )


def _chunks(path: Path) -> Iterator[bytes]:
    with open(path, "rb") as file:
        while chunk := file.read(CHUNK):
            yield chunk


def _interrupt_at_end(simulation: LocalSimulation) -> None:
    """Interrupt the simulation when standard input ends: the program that waits for it has gone, or wants no more."""
    sys.stdin.buffer.read()
    simulation.interrupt()
