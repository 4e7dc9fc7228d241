"""Vectors of environments of datasets: `gymnasium.make_vec("windtunnel/cartpole", num_envs=16)`.

Worlds that can be side by side in a process are, and are stepped by one exchange with it; the others have a process
each, and are stepped at the same time.
"""

import weakref
from collections.abc import Mapping
from typing import Any

import numpy as np
from gymnasium.vector import AutoresetMode, SyncVectorEnv, VectorEnv
from gymnasium.vector.utils import batch_space
from numpy.typing import NDArray

from windtunnel.errors import WindtunnelError
from windtunnel.gym import MASK, DatasetEnv
from windtunnel.gym_spaces import ActionCheck, Array, Element, Info, codec_of
from windtunnel.local_sessions import LocalSession
from windtunnel.scenario_order import ScenarioOrder
from windtunnel.step_memory import CUT_OFF, GOES_ON, Document
from windtunnel.submissions import Scenarios

#: Types of which Gymnasium makes an array of numbers.
NUMBERS = frozenset({bool, int, float})


def make_vector(num_envs: int, *, url: str | None = None, **options: Any) -> VectorEnv:
    """Return a vector of environments on this machine; with ``url``, Gymnasium's own, of environments on a server.

    ``options``: arguments of `DatasetVectorEnv`, or of `DatasetEnv`.
    """
    if url is None:
        return DatasetVectorEnv(num_envs, **options)
    mode = AutoresetMode(options.pop("autoreset_mode", AutoresetMode.NEXT_STEP))
    environments = [lambda: DatasetEnv(url=url, **options)] * num_envs
    return SyncVectorEnv(environments, autoreset_mode=mode)


class DatasetVectorEnv(VectorEnv):  # type: ignore[misc]
    """The scenarios of a dataset in ``num_envs`` worlds on this machine. Other arguments are those of `DatasetEnv`.

    The worlds are dealt the scenarios in turns, in the order of `DatasetEnv`: world i of K starts with entry i of it,
    and goes on with i + K. ``autoreset_mode``: of Gymnasium; by default a world that has ended starts its next scenario
    with the next step, which ignores its action. An error loses the scenarios of all worlds: the next reset starts
    others.
    """

    def __init__(
        self,
        num_envs: int,
        dataset: str | None = None,
        *,
        scenarios: Scenarios | None = None,
        seed: int = 0,
        params: Mapping[str, object] | None = None,
        server: str | None = None,
        autoreset_mode: str | AutoresetMode = AutoresetMode.NEXT_STEP,
        render_mode: str | None = None,
    ) -> None:
        if dataset is None:
            raise WindtunnelError("Name a dataset: make_vec('windtunnel/dataset', dataset='drives@2', server=URL).")
        if num_envs < 1:
            raise WindtunnelError(f"A vector has at least one world, not {num_envs}.")
        self.autoreset_mode = AutoresetMode(autoreset_mode)
        self.metadata = {"render_modes": [], "autoreset_mode": self.autoreset_mode}
        self.num_envs, self.render_mode, self._seed = num_envs, render_mode, seed
        self._session = LocalSession(dataset, params or {}, server, num_envs)
        self._finalizer = weakref.finalize(self, self._session.close)
        world = self._session.world
        self.dataset = world.dataset
        self._observations, self._actions = codec_of(world.observation), codec_of(world.action)
        self._check = ActionCheck(world.action)
        self.single_observation_space, self.single_action_space = self._observations.space, self._actions.space
        self.observation_space = batch_space(self.single_observation_space, num_envs)
        self.action_space = batch_space(self.single_action_space, num_envs)
        try:
            self._order = ScenarioOrder(scenarios, world.scenarios, num_envs)
        except WindtunnelError:
            self.close()
            raise
        self._over = np.zeros(num_envs, np.bool_)  # worlds that have ended, and whose next scenario has not started

    def reset(self, *, seed: int | None = None, options: Mapping[str, object] | None = None) -> tuple[Element, Info]:
        """Start the next scenario in each world, or where `options["reset_mask"]` is true.

        A seed draws one order for all worlds. `options["scenario"]` and `options["repeat"]` name one for all, or one
        for each. Raise WindtunnelError if there is no such scenario, or the vector is closed.
        """
        self._check_open()
        super().reset(seed=seed)
        if seed is not None:
            self._order.begin(self.np_random)
        named = dict(options or {})
        mask = named.pop("reset_mask", None)
        worlds = range(self.num_envs) if mask is None else np.flatnonzero(np.asarray(mask)).tolist()
        chosen = self._order.tasks_of(named)
        for world in worlds:
            self._session.order_reset(world, *(chosen[world] or self._order.next(world)), self._seed)
        exchanged = self._session.exchange()
        self._over[worlds] = False
        infos = self._add_documents({}, exchanged.documents)
        return self._batch(exchanged.observations, infos)

    def step(self, actions: Element) -> tuple[Element, NDArray[np.float64], NDArray[np.bool_], NDArray[np.bool_], Info]:
        """Apply an action in each world, as `DatasetEnv.step` does. Raise Refused: then none was applied."""
        self._check_open()
        session, over = self._session, self._over
        starting = over.nonzero()[0].tolist() if self.autoreset_mode == AutoresetMode.NEXT_STEP else ()
        rows = self._actions.flats(actions, self.action_space, over)
        if not self._check.holds(rows.reshape(-1)):
            self._check_each(rows)
        session.actions[...] = rows.reshape(session.actions.shape)
        session.order_steps(starting)
        for world in starting:
            session.order_reset(world, *self._order.next(world), self._seed)
        exchanged = session.exchange()
        outcomes = np.frombuffer(exchanged.outcomes, np.uint8)
        over, truncated = outcomes != GOES_ON, outcomes == CUT_OFF
        observations, rewards = exchanged.observations, exchanged.rewards
        if self.autoreset_mode == AutoresetMode.SAME_STEP and over.any():
            infos: Info = {}
            for world, document in exchanged.documents.items():
                infos = self._add_info(infos, self._final(self._about(world, document), observations[world]), world)
                session.order_reset(world, *self._order.next(world), self._seed)
            following = session.exchange()
            observations, infos = following.observations, self._add_documents(infos, following.documents)
        else:
            self._over, infos = over, self._add_documents({}, exchanged.documents)
        element, infos = self._batch(observations, infos)
        return element, rewards, over ^ truncated, truncated, infos

    def _check_each(self, rows: NDArray[np.float64]) -> None:
        """Raise Refused for an action that is not finite, but not for a world that has ended."""
        rows[self._over] = 0.0
        for world, row in enumerate(rows):
            self._check(row, f" of world {world}")

    def _add_documents(self, infos: Info, documents: Mapping[int, Document]) -> Info:
        for world, document in documents.items():
            infos = self._add_info(infos, self._about(world, document), world)
        return infos

    def _add_info(self, vector_infos: Info, env_info: Info, env_num: int) -> Info:
        """Add what is said of a world, as Gymnasium does; values of several types have an array of objects."""
        for key, value in env_info.items():
            mask = f"_{key}"
            array = vector_infos.get(key)
            if array is None:
                array = vector_infos[key] = self._column(key, value)
                vector_infos[mask] = np.zeros(self.num_envs, np.bool_)
            elif isinstance(array, np.ndarray) and array.dtype != object and not _fits(value, array.dtype):
                array = vector_infos[key] = array.astype(object)
                array[~vector_infos[mask]] = None
            if isinstance(array, dict):
                self._add_info(array, value, env_num)
            else:
                array[env_num] = value
            vector_infos[mask][env_num] = True
        return vector_infos

    def _column(self, key: str, value: object) -> Info | Array:
        """Return a value of a key for each world: zeros if it is a number, otherwise None, or a dict for its keys."""
        if key == "final_obs":
            return np.empty(self.num_envs, object)
        if isinstance(value, dict):
            return {}
        if isinstance(value, np.ndarray | np.generic):
            return np.zeros((self.num_envs, *value.shape), value.dtype)
        return np.zeros(self.num_envs, type(value)) if type(value) in NUMBERS else np.empty(self.num_envs, object)

    def _about(self, world: int, document: Document) -> Info:
        """Return what is said of a scenario that has begun or ended."""
        about = self._session.about(world, document)
        return about if document.metrics is None else about | {"metrics": dict(document.metrics)}

    def _final(self, info: Info, observation: Array) -> Info:
        """Return what is said of a world that ends and starts in one step."""
        element = self._observations.element(observation.copy())
        if isinstance(element, dict) and MASK in element:
            info = info | {MASK: element[MASK]}
        return {"final_obs": element, "final_info": info}

    def _batch(self, observations: Array, infos: Info) -> tuple[Element, Info]:
        """Return the observations as Gymnasium batches them, and what is said, with the masks of legal actions."""
        elements = self._observations.elements(observations.reshape(self.num_envs, -1))
        if isinstance(elements, dict) and MASK in elements:
            infos |= {MASK: elements[MASK], f"_{MASK}": np.ones(self.num_envs, np.bool_)}
        return elements, infos

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise WindtunnelError("The vector is closed. Make it again.")

    def close_extras(self, **kwargs: object) -> None:
        """End the session, and its processes."""
        self._finalizer()


def _fits(value: object, dtype: "np.dtype[np.generic]") -> bool:
    """Return whether an array has room for a value as it is."""
    if dtype.kind == "i" and type(value) is int:
        return -(1 << 63) <= value < 1 << 63
    return {"b": bool, "f": float}.get(dtype.kind) is type(value) or isinstance(value, np.ndarray | np.generic)
