"""Local simulation: a submission from its acceptance to its end, on this machine, in this process and its children.

Processes, protocols and sandbox are those of the platform: only what a server needs besides (queue, web, executors)
is left out. The main thread runs the runner, because only it may start processes.
"""

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import msgspec

from core.domain.access.scopes import LOCAL_CALLER
from core.domain.scheduling.launches import Launch
from core.domain.scheduling.preparation import Missing, Preparation, PreparationStep, doing
from core.domain.scheduling.states import State
from core.domain.submissions.records import Model, Simulation
from core.domain.submissions.submission import Submission
from core.services.scheduling.compiled_models import stored_model
from core.services.scheduling.dispatch import Dispatch
from core.services.simulations.dry_runs import check_of
from core.store import simulations as rows
from local_play import messages
from local_play.direct_runner_api import DirectRunnerApi
from local_play.private_platform import EXECUTOR, PrivatePlatform
from runtimes.harness.model_server.deadlines import LOAD
from runtimes.harness.runner import model_folder
from runtimes.harness.runner.processes import LocalSpawner
from runtimes.harness.runner.runner import DONE, LaunchDocument, Runner
from runtimes.harness.runner.runner_api_client import Credentials
from workers.warm_runners import PreparedFolders, WarmKind, worker_spec_for

#: Seconds between two looks at what is finished; a report of the last task is noticed at once.
TICK = 0.5
#: Seconds after which it is said that the model is still loading.
LOADING_NOTICE = 5.0


class LocalSimulation:
    """A simulation on this machine. ``sandbox``: level of confinement, None for none."""

    def __init__(self, platform: PrivatePlatform, sandbox: int | None) -> None:
        self._platform = platform
        self._services = platform.services
        self._simulations = platform.services.submissions.simulations
        self._results = platform.services.analysis.results
        self._sandbox = sandbox
        self._dispatch = Dispatch(
            self._services.database, self._services.notifier, executor_configs=(platform.executor,), runner_api_url=""
        )
        self._runner: Runner | None = None
        self._interrupted = threading.Event()
        self._complete = False  # every task has a result

    def interrupt(self) -> None:
        """End the simulation soon; thread-safe."""
        self._interrupted.set()
        if self._runner is not None:
            self._runner.interrupt()

    def run(self, submission: Submission, model: Model | None) -> Simulation:
        """Simulate a submission; send its progress and results as messages. Return it as it has ended.

        Raise a PlatformError for a submission that can never run.
        """
        id, _ = self._simulations.accept(LOCAL_CALLER, submission, model=model)
        with self._followed(id, results=not submission.dry_run):
            self._prepare(id)
            if self._state(id) is State.LAUNCHING and not self._interrupted.is_set():
                self._launch(id)
            if self._interrupted.is_set():
                self._simulations.cancel(LOCAL_CALLER, id)
            self._services.jobs.finalization.collect(id)
        self._services.scheduling.staging.release(id)
        return self._simulations.get(LOCAL_CALLER, id)

    def check(self, submission: Submission, model: Model | None) -> dict[str, Any]:
        """Run a few real steps; return the document of `/v1/checks`."""
        simulation = self.run(submission, model)
        line = b"".join(self._results.lines(LOCAL_CALLER, simulation.id)).partition(b"\n")[0]
        return check_of(simulation, line)

    def _state(self, id: str) -> State:
        with self._services.database.read() as c:
            return State(rows.find(c, LOCAL_CALLER.scope, id).state)

    # -- steps

    def _prepare(self, id: str) -> None:
        """Prepare packages and files; then the simulation is LAUNCHING, or its end is decided."""
        missing = Missing("its packages and files are prepared", Preparation.LONG)
        self._dispatch.prepare(self._dispatch.simulation(id), EXECUTOR, missing)
        self._services.scheduling.staging.stage(id)
        with self._services.database.read() as c:
            row = rows.find(c, LOCAL_CALLER.scope, id)
        if row.preparation == Preparation.DONE:
            self._dispatch.admit(self._dispatch.simulation(id), EXECUTOR)
        elif State(row.state) is State.QUEUED:  # a platform tries again later
            self._give_up(id, row.reason or "its packages and files cannot be prepared")

    def _launch(self, id: str) -> None:
        """Run the simulation's runner until there is no more work."""
        launch = self._dispatch.launch(self._dispatch.simulation(id))
        assert launch is not None, "nobody else launches it"
        models = self._platform.folder / "model_folders" / launch.id
        model_folder.create(str(models))
        folders = PreparedFolders(
            environments=(self._platform.folder / "environments").resolve(),
            plays=(self._platform.folder / "plays").resolve(),
            cache=self._platform.cache,
        )
        spec = worker_spec_for(WarmKind.of(launch), folders, self._sandbox, model_folder=str(models))
        assert spec is not None, "it was prepared a moment ago"
        loaded = threading.Event()
        connect = partial(DirectRunnerApi, self._services.scheduling.leases, self._send_output, loaded.set)
        self._runner = runner = Runner(spec, 1, LocalSpawner(spec), reserve=0, connect=connect)
        if self._interrupted.is_set():
            return
        document = LaunchDocument(
            credentials=Credentials(url="", launch=launch.id, token=launch.token),
            workers=min(launch.workers, self._simulations.get(LOCAL_CALLER, id).tasks.total),
            model=str(self._model(launch)),
        )
        runner.start_launch(document)
        with self._closed_when_done(id), _noticed(loaded):
            code = runner.run()
        if code != DONE and not self._interrupted.is_set():
            self._give_up(id, runner.reason)

    def _model(self, launch: Launch) -> Path:
        """Return the path of a launch's model: of its file, or of the folder of its files."""
        stored = stored_model(launch.runtime, launch.format, launch.model_digest)
        return self._platform.models.path(stored, holder=launch.simulation_id)

    @contextmanager
    def _closed_when_done(self, id: str) -> Iterator[None]:
        """Close the simulation's stage once every task has a result: the runner's workers end with it."""
        over = threading.Event()

        def look() -> None:
            while not over.is_set():
                self._services.notifier.wait("dispatch", TICK)
                simulation = self._dispatch.simulation(id)
                if simulation.state is not State.RUNNING or simulation.ending:
                    continue
                if self._dispatch.unfinished([id]):
                    self._dispatch.tick([simulation], time.time())
                else:
                    self._complete = True
                    self._dispatch.close(id)

        thread = threading.Thread(target=look, name="closing", daemon=True)
        thread.start()
        try:
            yield
        finally:
            over.set()
            self._services.notifier.wake("dispatch")
            thread.join()

    def _give_up(self, id: str, reason: str) -> None:
        self._dispatch.give_up(self._dispatch.simulation(id), State.ERRORED, reason)

    # -- messages

    @contextmanager
    def _followed(self, id: str, *, results: bool) -> Iterator[None]:
        """Send events and results as they come, until the simulation has ended."""
        threads = [threading.Thread(target=self._send_events, args=(id,), daemon=True)]
        if results:
            threads.append(threading.Thread(target=self._send_results, args=(id,), daemon=True))
        for thread in threads:
            thread.start()
        yield
        for thread in threads:
            thread.join()

    def _send_events(self, id: str) -> None:
        for event in self._results.events.follow(LOCAL_CALLER, id):
            if event is None:
                continue
            if event.type == "progress":
                messages.send("progress", {"done": event.body["done"], "total": event.body["total"]})
            elif (text := doing(msgspec.convert(event.body, PreparationStep))) is not None:
                messages.send("progress", {"message": text})

    def _send_results(self, id: str) -> None:
        for lines in self._results.follow(LOCAL_CALLER, id):
            for line in lines.splitlines():
                if not line.startswith(b'{"incomplete"'):  # the simulation's reason says why
                    messages.send_raw("result", line)

    def _send_output(self, name: str, data: bytes) -> None:
        if not (self._complete and name.startswith("evaluator")):  # which are ended, because no task is left
            messages.send("output", {"name": name, "text": data.decode(errors="replace")})


@contextmanager
def _noticed(loaded: threading.Event) -> Iterator[None]:
    """Say once that the model is loading, if it takes long: a user would take the silence for an error."""

    def notice() -> None:
        if not loaded.wait(LOADING_NOTICE):
            messages.send("progress", {"message": f"the model is loading (at most {LOAD:.0f} s) ..."})

    threading.Thread(target=notice, name="loading", daemon=True).start()
    try:
        yield
    finally:
        loaded.set()
