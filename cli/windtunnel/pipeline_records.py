"""Records of pipelines, as the platform describes them."""

from datetime import datetime

import msgspec

from windtunnel.records import Record

#: States that a pipeline keeps, unless it runs again.
FINAL_PIPELINE = frozenset({"succeeded", "failed", "cancelled"})


class StepOutput(Record, frozen=True, kw_only=True):
    """A model or a dataset that a step has made: ``reference`` is its name for requests; ``digest``: of its file."""

    id: str | None = None
    name: str | None = None
    reference: str | None = None
    digest: str | None = None
    error: str | None = None


class PipelineStep(Record, frozen=True, kw_only=True):
    """A step: ``simulation_id`` or ``comparison_id`` of what it has submitted, and what its outputs became."""

    name: str
    state: str
    reason: str | None = None
    after: list[str] = msgspec.field(default_factory=list)
    attempt: int = 1
    simulation_id: str | None = None
    comparison_id: str | None = None
    outputs: dict[str, StepOutput] = msgspec.field(default_factory=dict)
    started_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def run(self) -> str | None:
        """Address on the platform of its simulation or comparison; None before it has one."""
        if self.simulation_id:
            return f"/simulations/{self.simulation_id}"
        return f"/comparisons/{self.comparison_id}" if self.comparison_id else None


class Pipeline(Record, frozen=True, kw_only=True):
    """A pipeline; ``steps`` is empty in lists, which have ``counts`` of them by state."""

    id: str
    state: str
    name: str = ""
    reason: str | None = None
    counts: dict[str, int] = msgspec.field(default_factory=dict)
    steps: list[PipelineStep] = msgspec.field(default_factory=list)
    created_at: datetime | None = None
    ended_at: datetime | None = None

    @property
    def ended(self) -> bool:
        """Whether the state is final."""
        return self.state in FINAL_PIPELINE

    def step(self, name: str) -> PipelineStep:
        """Return the step of this name; raise KeyError."""
        for step in self.steps:
            if step.name == name:
                return step
        raise KeyError(name)
