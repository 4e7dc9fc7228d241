"""Eligibility: the executors that could run a simulation, by what they start, their capacity and their allow-lists."""

from collections.abc import Mapping, Sequence

import msgspec

from common.errors import Invalid
from core.domain.scheduling.allowed_options import named_values
from core.domain.scheduling.communications import refusal_of_shape
from core.domain.scheduling.executor_config import ExecutorConfig
from core.domain.scheduling.launches import Gang, Placement, replicas
from core.domain.scheduling.permissions import permitting


class _Wanted(msgspec.Struct):
    """The executor that a placement names; None or empty: any."""

    executor: str | None = None


class Eligibility:
    """The executors by name, and what each of them supports and allows."""

    def __init__(self, executor_configs: Sequence[ExecutorConfig]) -> None:
        self.executor_configs = {config.name: config for config in executor_configs}

    def candidates(self, placement: Mapping[str, object], gang: Mapping[str, object] | None) -> list[ExecutorConfig]:
        """Return the executors that a submission does not exclude, of a gang only those that start gangs."""
        wanted = msgspec.convert(placement, _Wanted).executor or ""
        return [
            config for name, config in self.executor_configs.items() if wanted in {"", name} and config.starts(gang)
        ]

    def with_room(self, placement: Mapping[str, object], gang: Mapping[str, object] | None) -> list[ExecutorConfig]:
        """Return the candidates, of a gang those on which all of its replicas fit."""
        return [each for each in self.candidates(placement, gang) if gang is None or each.has_room_for(gang)]

    def least_workers(self, placement: Mapping[str, object], gang: Mapping[str, object] | None) -> int:
        """Return how many workers a submission has at least, wherever it runs: of a gang, all that its replicas take.

        Replicas may share workers, where the executor lets them.
        """
        if gang is None:
            return 1
        count = replicas(gang)
        counts = [each.workers_for(count) for each in permitting(self.with_room(placement, gang), placement, gang)]
        return min(counts, default=count)

    def executors(self, placement: Mapping[str, object], gang: Mapping[str, object] | None) -> frozenset[str] | None:
        """Return the names of the executors that could run a submission; None: all.

        If no executor allows what the submission names, because an allow-list was shortened, all remain: the admission
        ends the simulation with the reason.
        """
        eligible = None if gang is None else frozenset(config.name for config in self.with_room({}, gang))
        if next(named_values(placement, gang), None) is None:
            return eligible
        candidates = self.with_room(placement, gang)
        allowing = frozenset(config.name for config in permitting(candidates, placement, gang))
        return allowing if allowing and len(allowing) < len(candidates) else eligible

    def check_placement(self, placement: Mapping[str, object]) -> None:
        """Raise Invalid for a placement that no executor can satisfy."""
        try:
            wanted = msgspec.convert(placement, Placement).executor
        except msgspec.ValidationError as error:
            raise Invalid(f"`placement`: {error}") from None
        if wanted and wanted not in self.executor_configs:
            raise Invalid(f"There is no executor {wanted!r}; there are {', '.join(self.executor_configs)}.")

    def check_gang(self, placement: Mapping[str, object], document: Mapping[str, object]) -> None:
        """Raise Invalid for a gang that no executor starts, or has capacity for."""
        gang = msgspec.convert(document, Gang)
        if (refusal := refusal_of_shape(gang)) is not None:
            raise Invalid(refusal)
        candidates = self.candidates(placement, document)
        if not candidates:
            why = "; ".join(f"`{each.name}`: {each.refusal(gang)}" for each in self.candidates(placement, None))
            raise Invalid(f"No executor here starts such a gang: {why}.")
        if not self.with_room(placement, document):
            most = max(config.workers_for(None) for config in candidates)
            raise Invalid(
                f"No executor has capacity for a gang of {replicas(document)} replicas; the maximum is {most}."
            )
