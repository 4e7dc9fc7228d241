"""Types of events that webhooks are told of, and which of them a webhook wants."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum


class EventType(StrEnum):
    """Type of an event; in a CloudEvent it follows TYPE_PREFIX."""

    SIMULATION_ENDED = "simulation.ended"
    SIMULATION_FAILED = "simulation.failed"
    COMPARISON_DECIDED = "comparison.decided"
    COMPARISON_ENDED = "comparison.ended"
    COMPARISON_FAILED = "comparison.failed"
    PIPELINE_ENDED = "pipeline.ended"
    PIPELINE_FAILED = "pipeline.failed"
    QUOTA_REACHED = "quota.reached"
    PING = "webhook.ping"


#: What is before the type of an event in a CloudEvent.
TYPE_PREFIX = "org.windtunnel."
#: When each type occurs.
MEANINGS: Mapping[EventType, str] = {
    EventType.SIMULATION_ENDED: "A simulation has ended, in any state.",
    EventType.SIMULATION_FAILED: "A simulation has ended as `failed` or `errored`.",
    EventType.COMPARISON_DECIDED: "A model of a comparison has its verdict.",
    EventType.COMPARISON_ENDED: "A comparison has ended, in any state, with the verdicts of its models.",
    EventType.COMPARISON_FAILED: "A comparison has ended as `failed`.",
    EventType.PIPELINE_ENDED: "A pipeline has ended, in any state.",
    EventType.PIPELINE_FAILED: "A pipeline has ended as `failed`.",
    EventType.QUOTA_REACHED: "The use of a quota has come to 80 % of its limit.",
    EventType.PING: "A person tests the webhook.",
}
#: Types that a webhook may want; a test is sent to each that is tested.
WANTED_TYPES = tuple(type for type in EventType if type is not EventType.PING)


@dataclass(frozen=True, kw_only=True, slots=True)
class RaisedEvent:
    """An event. ``types``: those it has, the most general first; each webhook gets one delivery, of the first it wants.

    ``subject``: what it is about, as its address below ``/v1``. ``data``: names, numbers and texts, never a secret.
    ``labels``: of the subject; None for subjects that have none.
    """

    types: Sequence[EventType]
    subject: str
    data: Mapping[str, object]
    labels: Mapping[str, str] | None = None

    def type_for(self, wanted: Sequence[str], labels: Mapping[str, str]) -> EventType | None:
        """Return the type as which a webhook gets it, None if it does not want it.

        ``labels``: those that a subject must have, with these values; a subject without labels is never left out.
        """
        if self.labels is not None and any(self.labels.get(name) != value for name, value in labels.items()):
            return None
        return next((type for type in self.types if type in wanted), None)
