"""Schemas of a simulation's outputs: results, events, logs, artifacts, summary; and of the health checks."""

from marshmallow import fields, validate

from api.schemas.fields import LARGEST_COUNTED, LARGEST_INTEGER, Choice, Flag, Headers, Open, Strict, Text, Whole
from api.schemas.pages import NumberedPageQuery, NumberedPageSchema, PageQuery, PageSchema
from core.domain.results.result_conditions import CONDITIONS
from core.domain.results.result_selection import PAGE

#: Statuses of tasks.
STATUSES = ("ok", "failed", "crashed", "timed_out", "invalid")
SIMULATION_ID = r"^[0-9a-z]{26}$"


class ResultSchema(Open):
    """Result of one task: a line of the NDJSON."""

    task = fields.Integer(required=True, metadata={"description": "Number of the task, from 0."})
    status = fields.String(
        required=True,
        metadata={
            "enum": list(STATUSES),
            "description": "Outcome of the task.",
        },
    )
    scenario = fields.Dict(
        required=True, metadata={"description": "The task's scenario, with its index and parameters."}
    )
    metrics = fields.Dict(
        required=True,
        metadata={"description": "Values of the dataset's metrics, by name, in the units that the dataset declares."},
    )
    error = fields.String(required=True, allow_none=True, metadata={"description": "Error message; null for `ok`."})
    artifacts = fields.List(
        fields.Raw(),
        required=True,
        metadata={"description": "Artifacts of the task."},
    )
    timing = fields.Dict(
        required=True, metadata={"description": "Durations in seconds; only these may differ between two runs."}
    )


class ResultsQuery(Strict):
    """Selection and format of results."""

    format = Choice("ndjson", "csv", "parquet", metadata={"description": "Takes precedence over `Accept`."})
    start = Whole(0, text=True, data_key="from", metadata={"description": "First task, from 0; not with `follow`."})
    status = fields.List(
        Choice(*STATUSES),
        validate=validate.Length(1, len(STATUSES)),
        metadata={"description": "Only results with this status; may be repeated. Not with `follow`."},
    )
    where = fields.List(
        Text(r"^[^\x00-\x1f\x7f]+$", longest=300),
        validate=validate.Length(1, CONDITIONS),
        metadata={
            "description": "Only results that meet this condition; may be repeated, and all have to be met, but "
            "several `=` of one name are alternatives. `NAME=VALUE`, or `!=`, `<`, `<=`, `>`, `>=`; the name is a "
            "column (`metrics.score`), a parameter (`street`, `params.delay`) or `failed` (`true`, `false`). Not with "
            "`follow`."
        },
    )
    sort = Text(
        r"^-?[^\x00-\x1f\x7f]+$",
        longest=300,
        metadata={
            "description": "Column or parameter to sort by, such as `metrics.score`; with `-` in front, the largest "
            "first. Numbers precede texts, and results without the value are last. `worst`: tasks that are not `ok`, "
            "then the worst scores. More than 10,000 results need a `limit`."
        },
    )
    limit = Whole(
        1,
        PAGE,
        text=True,
        metadata={"description": "Most results that are sent; the header `Link` has the address of the next ones."},
    )
    after = Text(r"^[A-Za-z0-9_-]+$", longest=8000, metadata={"description": "Cursor, from the header `Link`."})
    count = Flag(
        text=True,
        load_default=False,
        metadata={
            "description": "Whether the header `Total-Count` has the number of results on all pages; needs a `limit`."
        },
    )
    follow = Flag(
        text=True,
        load_default=False,
        metadata={
            "description": "Stream until the end, in order of arrival; blank lines are heartbeats.",
        },
    )
    skip = Whole(0, text=True, metadata={"description": "Number of results to skip when resuming a followed stream."})


class SweepQuery(Strict):
    """Format of a sweep's rows."""

    format = Choice("json", "csv", "parquet", metadata={"description": "Takes precedence over `Accept`."})


class SweepRowSchema(Open):
    """One combination of the swept parameters."""

    params = fields.Dict(required=True, metadata={"description": "Values of the swept parameters, by name."})
    tasks = fields.Dict(required=True, metadata={"description": "Number of tasks, by status."})
    statuses = fields.Dict(required=True, metadata={"description": "Number of tasks by status, failures first."})
    outcomes = fields.Dict(required=True, metadata={"description": "Number of tasks by value, of each text metric."})
    metrics = fields.Dict(
        required=True,
        metadata={
            "description": (
                "Statistics by metric, in its unit. `low` and `high` are the ends of the 95 % "
                "interval of the mean, null for the mean of a single task."
            )
        },
    )


class SweepSchema(Open):
    """All combinations of the swept parameters, in the order of their tasks."""

    parameters = fields.List(fields.String(), required=True, metadata={"description": "Names of the parameters."})
    rows = fields.List(
        fields.Nested(SweepRowSchema),
        required=True,
        metadata={"description": "The combinations, in the order of their tasks."},
    )


#: Types of events that simulations have.
EVENT_TYPES = ("state", "progress", "staging", "launch", "workers", "storage", "run_log")


class EventsQuery(Strict):
    """Position in a simulation's events."""

    after = Whole(
        0,
        LARGEST_COUNTED,
        text=True,
        metadata={"description": "Number of the last event received, from 1; 0 for all events."},
    )


class HistoryQuery(NumberedPageQuery):
    """Pagination and filter of the events so far."""

    type = fields.List(
        Choice(*EVENT_TYPES),
        validate=validate.Length(max=len(EVENT_TYPES)),
        metadata={"description": "Only events of this type; may be repeated."},
    )


class EventSchema(Open):
    """An event of a simulation, with the members of its type."""

    number = fields.Integer(required=True, metadata={"description": "Number of the event, from 1."})
    type = fields.String(required=True, metadata={"enum": list(EVENT_TYPES), "description": "Type of the event."})
    at = fields.AwareDateTime(required=True, format="iso", metadata={"description": "When it happened."})


class EventPageSchema(NumberedPageSchema):
    """A page of a simulation's events, in order."""

    items = fields.List(
        fields.Nested(EventSchema), required=True, metadata={"description": "The events of the page, in order."}
    )


def _last_event_id(description: str, high: int = LARGEST_INTEGER) -> Whole:
    """Return the header in which a reconnecting browser sends its position."""
    return Whole(0, high, text=True, data_key="Last-Event-ID", metadata={"description": description})


class EventsHeaders(Headers):
    """Headers of a reconnecting event stream."""

    last_event_id = _last_event_id(
        "Number of the last event received, from 1; takes precedence over `after`.", LARGEST_COUNTED
    )


class ChangesQuery(Strict):
    """Moment since which changes are streamed."""

    after = Whole(
        0,
        text=True,
        metadata={
            "description": "Id of the last event received, or the time at which the list was read, in microseconds "
            "since 1970: changes since then are sent first, and nothing is sent before a change."
        },
    )


class ChangesHeaders(Headers):
    """Headers of a reconnecting stream of changes."""

    last_event_id = _last_event_id(
        "Id of the last event received, a time in microseconds since 1970; takes precedence over `after`."
    )


class RangeHeaders(Headers):
    """Headers of range and conditional requests."""

    range = fields.String(data_key="Range", metadata={"description": "A single range, `bytes=0-1023`."})
    if_range = fields.String(
        data_key="If-Range", metadata={"description": "ETag of the part received; if it differs, all is sent."}
    )
    if_match = fields.String(data_key="If-Match", metadata={"description": "ETag that the content must have."})
    if_none_match = fields.String(
        data_key="If-None-Match", metadata={"description": "ETag of the client's copy; 304 if it is current."}
    )


class ResultsHeaders(RangeHeaders):
    """Range of a table's bytes, or position of a reconnecting event stream."""

    last_event_id = _last_event_id("Number of results received of a followed stream; takes precedence over `skip`.")


class LogsQuery(Strict):
    """Form of the logs."""

    follow = Flag(text=True, load_default=False, metadata={"description": "Stream until the end."})
    raw = Flag(
        text=True,
        load_default=False,
        metadata={
            "description": "Unescaped, with the model's control characters: dangerous on a terminal.",
        },
    )


class ReplayQuery(Strict):
    """Format of a replay."""

    format = Choice("json", "svg", metadata={"description": "Takes precedence over `Accept`."})


class ArtifactSchema(Open):
    """A file that a task produced."""

    task = fields.Integer(
        required=True, metadata={"description": "Number of the task, from 0; -1 for the simulation as a whole."}
    )
    name = fields.String(required=True, metadata={"description": "Name, which may contain folders."})
    media_type = fields.String(required=True, metadata={"description": "Media type of the content."})
    size = fields.Integer(required=True, attribute="bytes", metadata={"description": "Size in bytes."})


class ArtifactPageSchema(PageSchema):
    """A page of artifacts, by task and name."""

    items = fields.List(
        fields.Nested(ArtifactSchema),
        required=True,
        metadata={"description": "The artifacts of the page, by task and name."},
    )


class ArchiveQuery(Strict):
    """Content of an archive."""

    model = Flag(text=True, load_default=True, metadata={"description": "Whether the archive includes the model."})


class ArtifactQuery(PageQuery):
    """Pagination of artifacts."""

    after = Text(
        r"^-?[0-9]{1,17}(/[^\x00-\x1f\x7f]+)?$",
        longest=300,
        metadata={"description": "Cursor: the `next` of the previous page."},
    )


class SummarySchema(Open):
    """Summary of a simulation that has ended: failures first."""

    tasks = fields.Dict(required=True, metadata={"description": "Number of tasks, by status."})
    metrics = fields.Dict(
        required=True,
        metadata={
            "description": (
                "By metric, in its unit: `mean_ok` over tasks that are `ok`, `mean_penalised` over "
                "all tasks; `low` and `high` are the ends of the 95 % interval of `mean_ok`, "
                "`low_penalised` and `high_penalised` of `mean_penalised`. Its unit is the scenario. "
                "`never`: number of tasks whose value stands for `never`, which is in no other figure."
            )
        },
    )
    worst = fields.List(
        fields.Dict(),
        metadata={"description": "The ten worst tasks: those that are not `ok` first, then the worst scores."},
    )
    groups = fields.Dict(
        metadata={"description": "The same statistics by scenario field, and by swept parameter as `params.NAME`."}
    )
    sweep = fields.Dict(
        metadata={"description": "`rows`: the statistics by combination; `complete`: whether these are all."}
    )
    score_series = fields.Dict(
        allow_none=True,
        metadata={
            "description": (
                "`metric`, `mean` and `series` of the score, as `score` of a simulation; null without a score."
            )
        },
    )
    failures = fields.Dict(
        allow_none=True,
        metadata={
            "description": (
                "Number of tasks that are `ok`, by outcome that the dataset counts as a failure; null if it names none."
            )
        },
    )
    columns = fields.Dict(metadata={"description": "Type of each column of the tables: int, float, bool or str."})


class HealthSchema(Open):
    """Liveness of this process."""

    status = fields.String(required=True, metadata={"description": "`ok`."})


class ReadinessSchema(Open):
    """Readiness of this process, and the sandbox level of this machine."""

    ready = fields.Boolean(required=True, metadata={"description": "Whether this process can serve requests."})
    checks = fields.Dict(required=True, metadata={"description": "By component: `ok`, or the problem."})
    sandbox = fields.Dict(required=True, metadata={"description": "Sandbox level, and the missing layers."})
