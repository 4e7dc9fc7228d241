"""What comes out of a simulation, on the wire."""

from marshmallow import fields

from api.schemas.fields import Choice, Flag, Headers, Open, Strict, Text, Whole
from api.schemas.pages import PageQuery, PageSchema

SIMULATION_ID = r"^[0-9a-z]{26}$"


class ResultSchema(Open):
    """The result of one task: a line of the NDJSON."""

    task = fields.Integer(required=True)
    status = fields.String(required=True, metadata={"enum": ["ok", "failed", "crashed", "timed_out", "invalid"]})
    scenario = fields.Dict(required=True)
    metrics = fields.Dict(required=True)
    error = fields.String(required=True, allow_none=True)
    artifacts = fields.List(fields.Raw(), required=True)
    timing = fields.Dict(required=True, metadata={"description": "Seconds; all that may differ between two runs."})


class ResultsQuery(Strict):
    """Which results, in which format."""

    format = Choice("ndjson", "csv", "parquet", metadata={"description": "Goes before what Accept says."})
    start = Whole(0, text=True, data_key="from", metadata={"description": "Begin with this task; in task order only."})
    follow = Flag(
        text=True,
        load_default=False,
        metadata={
            "description": "Stream until the end, in order of arrival; blank lines keep the line open.",
        },
    )
    skip = Whole(0, text=True, metadata={"description": "Resume a followed stream behind so many lines."})


class EventsQuery(Strict):
    """Where to begin."""

    after = Whole(0, text=True, metadata={"description": "The number of the last event received."})


def _last(description: str) -> Whole:
    """Return the header by which a browser that comes back says how far it has come."""
    return Whole(0, text=True, data_key="Last-Event-ID", metadata={"description": description})


class EventsHeaders(Headers):
    """What a browser sends when it comes back."""

    last_event_id = _last("The number of the last event received; goes before `after`.")


class RangeHeaders(Headers):
    """Which bytes are wanted."""

    range = fields.String(data_key="Range", metadata={"description": "One range, `bytes=0-1023`."})
    if_range = fields.String(data_key="If-Range", metadata={"description": "The ETag of the part one has already."})
    if_match = fields.String(data_key="If-Match", metadata={"description": "The ETag that the content must have."})
    if_none_match = fields.String(data_key="If-None-Match", metadata={"description": "The ETag of what one has."})


class ResultsHeaders(RangeHeaders):
    """Which bytes of a table are wanted, or where a browser's stream goes on."""

    last_event_id = _last("How many results were received of a followed stream of events; goes before `skip`.")


class LogsQuery(Strict):
    """How the logs are given."""

    follow = Flag(text=True, load_default=False, metadata={"description": "Stream until the end."})
    raw = Flag(
        text=True,
        load_default=False,
        metadata={
            "description": "As the model wrote them, with control characters: dangerous on a terminal.",
        },
    )


class ComparisonQuery(Strict):
    """What is compared with."""

    to = Text(SIMULATION_ID, longest=26, required=True, metadata={"description": "The other simulation's id."})


class ReplayQuery(Strict):
    """How a replay is drawn."""

    format = Choice("json", "svg", metadata={"description": "Goes before what Accept says."})


class ArtifactSchema(Open):
    """A file that a task left."""

    task = fields.Integer(required=True, metadata={"description": "-1: of the simulation as a whole."})
    name = fields.String(required=True)
    media_type = fields.String(required=True)
    size = fields.Integer(required=True, attribute="bytes", metadata={"description": "Bytes."})


class ArtifactPageSchema(PageSchema):
    """Artifacts, by task and name."""

    items = fields.List(fields.Nested(ArtifactSchema), required=True)


class ArtifactQuery(PageQuery):
    """Which artifacts are listed."""

    after = Text(
        r"^-?[0-9]{1,17}(/[^\x00-\x1f\x7f]+)?$", longest=300, metadata={"description": "The last page's `next`."}
    )


class SummarySchema(Open):
    """A simulation that has ended, summed up: failures first."""

    tasks = fields.Dict(required=True)
    metrics = fields.Dict(
        required=True, metadata={"description": "`mean_ok` over successes, `mean_penalised` over all."}
    )


class ComparisonSchema(Open):
    """Paired differences between two simulations, by metric, each with its interval."""


class HealthSchema(Open):
    """Whether this process is alive."""

    status = fields.String(required=True)


class ReadinessSchema(Open):
    """Whether this process can serve, and how well models are confined on this machine."""

    ready = fields.Boolean(required=True)
    checks = fields.Dict(required=True, metadata={"description": "`ok`, or what is wrong, by part."})
    sandbox = fields.Dict(required=True, metadata={"description": "The level, and each layer that is missing."})
