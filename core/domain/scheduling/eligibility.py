"""Eligibility: the executors that could run a simulation, by their support of gangs and their allow-lists."""

from collections.abc import Mapping

from core.domain.scheduling.allowed_options import named_values
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.permissions import permitting


class Eligibility:
    """The executors, and what each of them supports and allows."""

    def __init__(self, executor_configs: Mapping[str, ExecutorConfig]) -> None:
        self._executor_configs = executor_configs

    def executors(self, placement: Mapping[str, object], gang: Mapping[str, object] | None) -> frozenset[str] | None:
        """Return the names of the executors that could run a submission; None: all.

        If no executor allows what the submission names, because an allow-list was shortened, all remain: the admission
        ends the simulation with the reason.
        """
        eligible = None
        if gang is not None:
            configs = self._executor_configs.values()
            eligible = frozenset(config.name for config in configs if config.starts(gang) and config.has_room_for(gang))
        if next(named_values(placement, gang), None) is None:
            return eligible
        wanted = placement.get("executor") or ""
        candidates = [
            config
            for name, config in self._executor_configs.items()
            if wanted in {"", name} and (eligible is None or name in eligible)
        ]
        allowing = frozenset(config.name for config in permitting(candidates, placement, gang))
        return allowing if allowing and len(allowing) < len(candidates) else eligible
