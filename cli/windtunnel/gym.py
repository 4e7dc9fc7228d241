"""Gymnasium environments of datasets: `gymnasium.make("windtunnel/car_street")`, once this module is imported.

    import gymnasium, windtunnel.gym                                    # or, in one, which imports it:
    env = gymnasium.make("windtunnel.gym:windtunnel/car_street")

Gymnasium 1.0 has no plug-ins any more that would import it. The policy trained is the policy measured: a scenario that
is stepped through here has the seeds, the parameters and the metrics of the task of a simulation.
It needs `pip install 'windtunnel[gym]'`.
"""

import weakref
from collections.abc import Mapping

import gymnasium
import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from windtunnel.built_in_datasets import DATASETS
from windtunnel.errors import WindtunnelError
from windtunnel.gym_spaces import ActionCheck, Element, Info, codec_of
from windtunnel.local_sessions import LocalSession
from windtunnel.scenario_order import ScenarioOrder
from windtunnel.sessions import RemoteSession
from windtunnel.submissions import Scenarios

__all__ = ["ANY", "DATASETS", "DatasetEnv"]

#: Key of the legal actions in an observation, as in PettingZoo's classic games.
MASK = "action_mask"
#: Id for any other dataset, which is an argument then: `make("windtunnel/dataset", dataset="drives@2", server=URL)`.
ANY = "dataset"


class DatasetEnv(gymnasium.Env):  # type: ignore[misc]
    """The scenarios of a dataset, in a process of this machine, or by ``url`` on an OpenEnv server.

    ``scenarios``: those that are played, as in ``Client.run``; all by default. ``seed``: of the simulation whose tasks
    they are. ``params``: of the dataset, as of a simulation; on a server, they are those of the server. ``server``:
    URL of the platform that the dataset is registered on. ``token``: of the OpenEnv server. Raise WindtunnelError, with
    the next step, if there is no such dataset, or no server on this machine.

    A reset starts the next scenario, from the first to the last, then all again with the next repetition. A reset with
    a seed begins an order that the seed draws. ``options={"scenario": 17, "repeat": 0}`` names one; the order stays.
    """

    metadata: Info = {"render_modes": []}  # noqa: RUF012 - as Gymnasium declares it

    def __init__(
        self,
        dataset: str | None = None,
        *,
        scenarios: Scenarios | None = None,
        seed: int = 0,
        params: Mapping[str, object] | None = None,
        url: str | None = None,
        server: str | None = None,
        token: str | None = None,
        render_mode: str | None = None,
    ) -> None:
        if dataset is None and url is None:
            raise WindtunnelError("Name a dataset: make('windtunnel/dataset', dataset='drives@2', server=URL).")
        if url is not None and params:
            raise WindtunnelError("Parameters are those of the server: start it with --param NAME=VALUE.")
        self.render_mode = render_mode
        self._seed = seed
        self._session: LocalSession | RemoteSession
        if url is not None:
            self._session = RemoteSession(dataset, url, token)
        else:
            assert dataset is not None
            self._session = LocalSession(dataset, params or {}, server)
        self._finalizer = weakref.finalize(self, self._session.close)
        world = self._session.world
        self.dataset = world.dataset
        self._observations, self._actions = codec_of(world.observation), codec_of(world.action)
        self._check = ActionCheck(world.action)
        self.observation_space, self.action_space = self._observations.space, self._actions.space
        self._legal: NDArray[np.int8] | None = None
        try:
            self._order = ScenarioOrder(scenarios, world.scenarios)
        except WindtunnelError:
            self.close()
            raise

    def reset(self, *, seed: int | None = None, options: Mapping[str, object] | None = None) -> tuple[Element, Info]:
        """Start a scenario; the information says which.

        Raise WindtunnelError if there is no such scenario, or the environment is closed.
        """
        self._check_open()
        super().reset(seed=seed)
        if seed is not None:
            self._order.begin(self.np_random)
        [chosen] = self._order.tasks_of(options or {})
        observed = self._session.reset(*(chosen or self._order.next()), self._seed)
        return self._element_of(observed.values, dict(observed.about))

    def step(self, action: Element) -> tuple[Element, float, bool, bool, Info]:
        """Apply an action, which the simulator clips to its space; at the end, `info["metrics"]` are the metrics.

        An end by a limit of time is `truncated`, every other `terminated`. Raise Refused for an action that the dataset
        does not have: the scenario goes on. Raise WindtunnelError if the environment is closed. Floats are taken for a
        choice, too, as from a model: the simulator rounds them.
        """
        self._check_open()
        values = self._actions.flat(action)
        self._check(values)
        observed = self._session.step(values)
        information = dict(observed.about)
        if observed.metrics is not None:
            information["metrics"] = dict(observed.metrics)
        reward, cut_off = float(observed.reward or 0.0), observed.truncated
        element, information = self._element_of(observed.values, information)
        return element, reward, observed.over and not cut_off, cut_off, information

    def _element_of(self, values: Element, information: Info) -> tuple[Element, Info]:
        """Return the observation, and the information with the mask of legal actions, if the world has one."""
        element = self._observations.element(values)
        self._legal = element.get(MASK) if isinstance(element, dict) else None
        return element, information if self._legal is None else information | {MASK: self._legal}

    def action_masks(self) -> NDArray[np.bool_]:
        """Return which actions of a Discrete are legal, as sb3-contrib's MaskablePPO asks; all, if the world says none.

        Raise WindtunnelError if the actions are no Discrete.
        """
        if not isinstance(self.action_space, spaces.Discrete):
            raise WindtunnelError(f"The actions are {self.action_space}, of which none is illegal.")
        return np.ones(int(self.action_space.n), np.bool_) if self._legal is None else self._legal.astype(np.bool_)

    def _check_open(self) -> None:
        if not self._finalizer.alive:
            raise WindtunnelError("The environment is closed. Make it again.")

    def close(self) -> None:
        """End the session, and the process or the connection with it; may be called twice."""
        self._finalizer()


_ENTRIES = {"entry_point": "windtunnel.gym:DatasetEnv", "vector_entry_point": "windtunnel.gym_vector:make_vector"}
for _name in DATASETS:
    gymnasium.register(f"windtunnel/{_name}", **_ENTRIES, kwargs={"dataset": _name})
gymnasium.register(f"windtunnel/{ANY}", **_ENTRIES)
