"""Environment: a dataset as OpenEnv sees it, with one object per client and at most one session process per object."""

import threading
from collections.abc import Mapping
from typing import Any

from openenv.core.env_server.interfaces import Environment
from openenv.core.env_server.types import EnvironmentMetadata

from local_play.openenv_server.actions import action_values
from local_play.openenv_server.schemas import FlexibleAction, ScenarioState, WorldObservation, readme
from local_play.scenario_choice import Chosen, InvalidReset, ScenarioChoice
from local_play.served_world import ServedWorld
from local_play.session_process import ScenarioFailed, SessionEnded, SessionProcess
from runtimes.harness.session.session_messages import Observed

#: The one split of OpenEnv's task API: all scenarios of the dataset.
SPLIT = "scenarios"
#: The most characters of an episode's id, as in OpenEnv's own requests over HTTP.
LONGEST_ID = 255
#: The most scenarios that one request of the task API lists.
LISTED = 10_000


class NoScenario(RuntimeError):
    """No scenario is under way."""


class NoFreeSession(RuntimeError):
    """Every session of this server has a process."""


class SessionClosed(RuntimeError):
    """The server has closed the session, because it was idle for too long."""


class Sessions:
    """The processes of all sessions of a server, at most ``world.sessions`` at a time."""

    def __init__(self, world: ServedWorld) -> None:
        self.world = world
        self._free = threading.BoundedSemaphore(world.sessions)
        self._running: set[SessionProcess] = set()

    def start(self) -> SessionProcess:
        """Start a process; raise NoFreeSession if there are as many as allowed, SessionEnded if it does not start."""
        if not self._free.acquire(blocking=False):
            raise NoFreeSession(
                f"All {self.world.sessions} sessions of this server are in use: close one, or start the server with "
                "a larger --sessions."
            )
        try:
            process = SessionProcess(self.world)
        except SessionEnded as error:
            self._free.release()
            raise SessionEnded(f"The simulator cannot be started: {error}.") from None
        except BaseException:
            self._free.release()
            raise
        self._running.add(process)
        return process

    def end(self, process: SessionProcess) -> None:
        """End a process that `start` returned; call it once for each."""
        self._running.discard(process)
        process.close()
        self._free.release()

    def kill(self) -> None:
        """Kill every process, so that no thread waits for one when the server stops."""
        for process in tuple(self._running):
            process.kill()


class DatasetEnvironment(Environment[FlexibleAction, WorldObservation, ScenarioState]):  # type: ignore[misc]
    """One client's scenarios. The process starts with the first reset; HTTP requests that only describe need none."""

    SUPPORTS_CONCURRENT_SESSIONS = True

    def __init__(self, sessions: Sessions, observation: type[WorldObservation]) -> None:
        super().__init__()
        self._sessions = sessions
        self._world = sessions.world
        self._observation = observation
        self._choice = ScenarioChoice(self._world.name, self._world.total)
        self._process: SessionProcess | None = None
        self._under_way = False
        self._closed = False
        self._state = self._idle_state(None)

    def reset(
        self,
        seed: int | None = None,
        episode_id: str | None = None,
        scenario: int | None = None,
        repeat: int | None = None,
        split: str | None = None,
        index: int | None = None,
        **others: Any,
    ) -> WorldObservation:
        """Start a scenario: the named one, the next of the order, or the first of an order that ``seed`` draws.

        ``split`` and ``index`` are a task of OpenEnv's task API: ``index`` is another word for ``scenario``.
        """
        if others:
            raise InvalidReset(
                f"`reset` has no argument {sorted(others)[0]!r:.80}; it takes seed, scenario, repeat and episode_id."
            )
        if split not in (None, SPLIT):
            raise InvalidReset(f"There is one split, {SPLIT!r}, not {split!r:.80}.")
        if index is not None and scenario is not None:
            raise InvalidReset("`index` and `scenario` are the same: send one of them.")
        if episode_id is not None and not (isinstance(episode_id, str) and len(episode_id) <= LONGEST_ID):
            raise InvalidReset(f"`episode_id` is a text of up to {LONGEST_ID} characters, not {episode_id!r:.80}.")
        self._check_open()
        if self._process is None:
            self._process = self._sessions.start()
        chosen = self._choice.choose(seed=seed, scenario=index if scenario is None else scenario, repeat=repeat)
        self._under_way = False
        self._state = self._idle_state(episode_id)
        observed = self._ordered(chosen)
        self._under_way = True
        self._state.scenario, self._state.repeat, self._state.seed = chosen.scenario, chosen.repeat, chosen.seed
        self._state.name, self._state.scenario_seed = self._world.name_of(chosen.scenario), observed.seed
        return self._observed(observed)

    def step(self, action: FlexibleAction, timeout_s: float | None = None, **others: Any) -> WorldObservation:
        """Apply an action; the answer to the last one has the scenario's metrics."""
        self._check_open()
        if not self._under_way:
            raise NoScenario(
                "No scenario is under way: reset first. A scenario lasts as long as its WebSocket connection (/ws); "
                "each HTTP request to /reset or /step stands alone."
            )
        values = action_values(action.model_dump(exclude_unset=True), self._world.interface.action)
        observed = self._ordered(values)
        self._state.step_count += 1
        self._under_way = observed.metrics is None
        return self._observed(observed)

    def _ordered(self, order: Chosen | list[float]) -> Observed:
        """Return the process's answer to a reset or a step; raise an error that says what to do next."""
        assert self._process is not None
        try:
            if isinstance(order, Chosen):
                return self._process.reset(order)
            return self._process.step(order)
        except SessionEnded as error:
            self._end_process()
            raise SessionEnded(
                f"The process of the simulator has ended: {error}. The scenario is lost; reset starts another process."
            ) from None
        except ScenarioFailed as error:
            self._under_way = False
            raise ScenarioFailed(
                f"The simulator has failed, which ends the scenario: {error}. Reset goes on."
            ) from None

    def _observed(self, observed: Observed) -> WorldObservation:
        state, names = self._state, self._world.interface.observation.names
        metadata: dict[str, Any] = {}
        if state.step_count == 0 or observed.metrics is not None:
            metadata = {"scenario": state.scenario, "name": state.name, "repeat": state.repeat, "seed": state.seed}
            metadata["scenario_seed"] = state.scenario_seed
        if observed.metrics is not None:
            metadata["metrics"] = dict(observed.metrics)
            metadata["truncated"] = self._world.cut_off(observed.metrics)
        return self._observation(
            values=observed.values,
            named=dict(zip(names, observed.values, strict=True)),
            reward=observed.reward,
            done=observed.metrics is not None,
            metadata=metadata,
        )

    @property
    def state(self) -> ScenarioState:
        """The scenario under way, and the number of its steps so far."""
        return self._state

    def _idle_state(self, episode_id: str | None) -> ScenarioState:
        return ScenarioState(episode_id=episode_id, dataset=self._world.name, digest=self._world.digest)

    def get_metadata(self) -> EnvironmentMetadata:
        """Return name, version and description of the dataset; the readme has its interface and metrics."""
        definition = self._world.definition
        return EnvironmentMetadata(
            name=self._world.name,
            description=f"{definition['title']}. {definition['description']}",
            version=str(definition["version"]),
            readme_content=readme(definition, self._world.interface, reward_of(definition)),
        )

    # -- OpenEnv's task API

    def list_splits(self) -> list[str]:
        """Return the names of the splits."""
        return [SPLIT]

    def num_tasks(self, split: str) -> int:
        """Return the number of scenarios."""
        self._check_split(split)
        return self._world.total

    def list_tasks(self, split: str) -> list[dict[str, Any]]:
        """Return the scenarios, of very many the first."""
        return self.get_task_range(split)

    def get_task(self, split: str, index: int) -> dict[str, Any]:
        """Return a scenario; raise IndexError if there is no such scenario."""
        self._check_split(split)
        if not 0 <= index < self._world.total:
            raise IndexError(index)
        return self._world.scenario(index)

    def get_task_range(self, split: str, start: int | None = None, stop: int | None = None) -> list[dict[str, Any]]:
        """Return the scenarios [start, stop), of very many the first."""
        self._check_split(split)
        return [self._world.scenario(index) for index in range(self._world.total)[start:stop][:LISTED]]

    def _check_split(self, split: str) -> None:
        if split != SPLIT:
            raise IndexError(split)

    def close(self) -> None:
        """End the session and its process, if there is one. OpenEnv's server calls it when a client is gone or idle."""
        self._closed = True
        self._end_process()

    def _check_open(self) -> None:
        # OpenEnv's server forgets a session that it closes, so a process that starts now would never be ended.
        if self._closed:
            raise SessionClosed(
                f"This session was closed after {self._world.idle:g} s without a request: connect again, or start the "
                "server with a larger --idle."
            )

    def _end_process(self) -> None:
        self._under_way = False
        if self._process is not None:
            process, self._process = self._process, None
            self._sessions.end(process)


def reward_of(definition: Mapping[str, Any]) -> str:
    """Return a sentence that says what the reward of a dataset's steps is."""
    score = (definition.get("score") or {}).get("metric")
    if score is None:
        return "This dataset has neither rewards nor a score: the reward is null."
    if score == "return":
        return "The reward is that of the environment; the sum over a scenario is its metric `return`."
    return f"The reward is the change of the metric `{score}` in the step; the sum over a scenario is that metric."
