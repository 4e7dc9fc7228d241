"""Connected model: the model server that an evaluator has, with the model loaded.

A trusted model is loaded in the evaluator's process besides. Its model server has refused it, or has not, like any
other's, and plays the scenarios of spot checks (spot_checks.py).
"""

import os
import socket
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from ..forking.scratch import TMP, Scratch
from ..model_server.bare_zygote import read_model
from ..model_server.model_faults import ModelFault
from ..model_server.model_protocol import describe
from ..model_server.model_server_client import ModelServerClient
from ..models.base import Assignment
from ..models.wrapped_zip import unwrapped
from ..simulators.base import Interface
from .confined_start import World
from .result_batch import LoadedModel
from .runner_connection import EvaluationSetup, ModelServerOrder, RunnerConnection
from .trusted_model import TrustedModel


class LoadRefused(Exception):
    """The model does not load; the text says why. ``status``: of a result with this fault."""

    def __init__(self, fault: ModelFault) -> None:
        super().__init__(str(fault))
        self.status = fault.status


@dataclass(frozen=True, kw_only=True, slots=True)
class ConnectedModel:
    """``description``: of a dry run, but for the memory. ``trusted``: the model in this process, None: it has none."""

    server: ModelServerClient
    description: LoadedModel
    trusted: TrustedModel | None = None

    @property
    def acting(self) -> ModelServerClient | TrustedModel:
        """Which of the two plays scenarios."""
        return self.server if self.trusted is None else self.trusted

    def close(self) -> None:
        """Close both."""
        self.server.close()
        if self.trusted is not None:
            self.trusted.close()


def connect(
    order: ModelServerOrder,
    runner: RunnerConnection,
    setup: EvaluationSetup,
    world: World,
    interface: Interface,
    *,
    rows: int,
) -> ConnectedModel:
    """Connect to the order's model server and load the model; ``rows``: how many scenarios it may serve at once.

    The order's descriptors are closed. Raises LoadRefused.
    """
    server_socket, *models = runner.rights
    server = ModelServerClient(
        socket.socket(fileno=server_socket),
        interface,
        batch=max(1, setup.batch),
        deadline=setup.deadline,
        per_scenario=setup.isolation == "scenario",
        rows=rows,
        read_times=runner.server_times,
    )
    server.describe_end = runner.model_server_end
    try:
        greeting = server.hello()
        model, step = models[0] if models else str(order.folder), setup.definition.dt
        started = time.perf_counter()
        info = server.load(setup.format, setup.params, model, step=step)
        description = LoadedModel({**greeting, **info}, time.perf_counter() - started, None)
        trusted = _load_trusted(order, models, setup, world, interface, rows) if setup.trusted else None
    except ModelFault as fault:
        explained = server.explain_fault(fault)
        server.close()
        raise LoadRefused(explained) from None
    finally:
        for descriptor in models:
            os.close(descriptor)
    if trusted is not None and setup.dry_run:  # which is about the model, in a process of its own
        trusted.close()
        trusted = None
    return ConnectedModel(server=server, description=description, trusted=trusted)


def _load_trusted(
    order: ModelServerOrder, models: list[int], setup: EvaluationSetup, world: World, interface: Interface, rows: int
) -> TrustedModel:
    """Load the model in this process; raise ModelFault if it does not load here."""
    packages = world.trusted
    assert packages is not None  # the runner has started this process for trusted models
    scratch = TMP if world.level == 3 else Path(tempfile.gettempdir()) / f"model-{os.getpid()}"
    assignment = Assignment(
        source=unwrapped(read_model(os.dup(models[0])), packages.format) if models else b"",
        files=Path(str(order.folder)) if not models else None,
        interface=Interface.of(
            {"observation": describe(interface.observation), "action": describe(interface.action)}
        ),  # as a model server has it
        batch=max(1, setup.batch),
        params=setup.params,
        step=setup.definition.dt,
        scratch=scratch if world.level in {0, 3} else None,
        confined=world.level > 1,
        packages=Path(packages.declared) if packages.declared else None,
    )
    return TrustedModel(
        packages,
        assignment,
        deadline=setup.deadline,
        renewed=setup.isolation == "scenario",
        most_rows=rows,
        # Programs of a simulator may have files there.
        clearing=Scratch(scratch) if assignment.scratch is not None and not world.processes else None,
    )
