"""Schemas of a simulation's outputs: results, events, logs, artifacts, summary; and of the health checks."""

from marshmallow import fields, validate

from api.schemas.fields import LARGEST_COUNTED, LARGEST_INTEGER, Choice, Flag, Headers, Open, Strict, Text, Whole
from api.schemas.members import array, boolean, dictionary, documents, integer, moment, string
from api.schemas.pages import NumberedPageQuery, NumberedPageSchema, PageQuery, PageSchema
from core.domain.results.result_conditions import CONDITIONS
from core.domain.results.result_selection import PAGE

#: Statuses of tasks.
STATUSES = ("ok", "failed", "crashed", "timed_out", "invalid")
SIMULATION_ID = r"^[0-9a-z]{26}$"


class ResultSchema(Open):
    """Result of one task: a line of the NDJSON."""

    task = integer("Number of the task, from 0.")
    status = string("Outcome of the task.", enum=list(STATUSES))
    scenario = dictionary("The task's scenario, with its index and parameters.")
    metrics = dictionary("Values of the dataset's metrics, by name, in the units that the dataset declares.")
    error = string("Error message; null for `ok`.", allow_none=True)
    artifacts = array(fields.Raw(), "Artifacts of the task.")
    timing = dictionary(
        "Durations in seconds, and how the model was asked; only these may differ between two runs. `worlds`: the most"
        " scenarios that one request for actions was for, 1 if the scenario was played by itself. `kernel`: how their"
        " actions were computed, `rows` (all by one call of the model) or `one` (by a call each). Results of earlier"
        " releases have neither."
    )


class ResultsQuery(Strict):
    """Selection and format of results."""

    format = Choice("ndjson", "csv", "parquet", description="Takes precedence over `Accept`.")
    start = Whole(0, text=True, data_key="from", description="First task, from 0; not with `follow`.")
    status = array(
        Choice(*STATUSES),
        "Only results with this status; may be repeated. Not with `follow`.",
        required=False,
        validate=validate.Length(1, len(STATUSES)),
    )
    where = array(
        Text(r"^[^\x00-\x1f\x7f]+$", longest=300),
        "Only results that meet this condition; may be repeated, and all have to be met, but several `=` of one"
        " name are alternatives. `NAME=VALUE`, or `!=`, `<`, `<=`, `>`, `>=`; the name is a column"
        " (`metrics.score`), a parameter (`street`, `params.delay`) or `failed` (`true`, `false`). Not with"
        " `follow`.",
        required=False,
        validate=validate.Length(1, CONDITIONS),
    )
    sort = Text(
        r"^-?[^\x00-\x1f\x7f]+$",
        longest=300,
        description="Column or parameter to sort by, such as `metrics.score`; with `-` in front, the largest first."
        " Numbers precede texts, and results without the value are last. `worst`: tasks that are not `ok`,"
        " then the worst scores. More than 10,000 results need a `limit`.",
    )
    limit = Whole(
        1,
        PAGE,
        text=True,
        description="Most results that are sent; the header `Link` has the address of the next ones.",
    )
    after = Text(r"^[A-Za-z0-9_-]+$", longest=8000, description="Cursor, from the header `Link`.")
    count = Flag(
        text=True,
        load_default=False,
        description="Whether the header `Total-Count` has the number of results on all pages; needs a `limit`.",
    )
    follow = Flag(
        text=True,
        load_default=False,
        description="Stream until the end, in order of arrival; blank lines are heartbeats.",
    )
    skip = Whole(0, text=True, description="Number of results to skip when resuming a followed stream.")


class SweepQuery(Strict):
    """Format of a sweep's rows."""

    format = Choice("json", "csv", "parquet", description="Takes precedence over `Accept`.")


class SweepRowSchema(Open):
    """One combination of the swept parameters."""

    params = dictionary("Values of the swept parameters, by name.")
    tasks = dictionary("Number of tasks, by status.")
    statuses = dictionary("Number of tasks by status, failures first.")
    outcomes = dictionary("Number of tasks by value, of each text metric.")
    metrics = dictionary(
        "Statistics by metric, in its unit. `low` and `high` are the ends of the 95 % interval of the mean, null"
        " for the mean of a single task."
    )


class SweepSchema(Open):
    """All combinations of the swept parameters, in the order of their tasks."""

    parameters = array(fields.String(), "Names of the parameters.")
    rows = documents(SweepRowSchema, "The combinations, in the order of their tasks.")


#: Types of events that simulations have.
EVENT_TYPES = ("state", "progress", "staging", "launch", "workers", "storage", "run_log")


class EventsQuery(Strict):
    """Position in a simulation's events."""

    after = Whole(
        0, LARGEST_COUNTED, text=True, description="Number of the last event received, from 1; 0 for all events."
    )


class HistoryQuery(NumberedPageQuery):
    """Pagination and filter of the events so far."""

    type = array(
        Choice(*EVENT_TYPES),
        "Only events of this type; may be repeated.",
        required=False,
        validate=validate.Length(max=len(EVENT_TYPES)),
    )


class EventSchema(Open):
    """An event of a simulation, with the members of its type."""

    number = integer("Number of the event, from 1.")
    type = string("Type of the event.", enum=list(EVENT_TYPES))
    at = moment("When it happened.")


class EventPageSchema(NumberedPageSchema):
    """A page of a simulation's events, in order."""

    items = documents(EventSchema, "The events of the page, in order.")


def _last_event_id(description: str, high: int = LARGEST_INTEGER) -> Whole:
    """Return the header in which a reconnecting browser sends its position."""
    return Whole(0, high, text=True, data_key="Last-Event-ID", description=description)


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
        description="Id of the last event received, or the time at which the list was read, in microseconds since 1970:"
        " changes since then are sent first, and nothing is sent before a change.",
    )


class ChangesHeaders(Headers):
    """Headers of a reconnecting stream of changes."""

    last_event_id = _last_event_id(
        "Id of the last event received, a time in microseconds since 1970; takes precedence over `after`."
    )


class RangeHeaders(Headers):
    """Headers of range and conditional requests."""

    range = string("A single range, `bytes=0-1023`.", required=False, data_key="Range")
    if_range = string("ETag of the part received; if it differs, all is sent.", required=False, data_key="If-Range")
    if_match = string("ETag that the content must have.", required=False, data_key="If-Match")
    if_none_match = string("ETag of the client's copy; 304 if it is current.", required=False, data_key="If-None-Match")


class ResultsHeaders(RangeHeaders):
    """Range of a table's bytes, or position of a reconnecting event stream."""

    last_event_id = _last_event_id("Number of results received of a followed stream; takes precedence over `skip`.")


class LogsQuery(Strict):
    """Form of the logs."""

    follow = Flag(text=True, load_default=False, description="Stream until the end.")
    raw = Flag(
        text=True,
        load_default=False,
        description="Unescaped, with the model's control characters: dangerous on a terminal.",
    )


class ReplayQuery(Strict):
    """Format of a replay."""

    format = Choice("json", "svg", description="Takes precedence over `Accept`.")


class ArtifactSchema(Open):
    """A file that a task produced."""

    task = integer("Number of the task, from 0; -1 for the simulation as a whole.")
    name = string("Name, which may contain folders.")
    media_type = string("Media type of the content.")
    size = integer("Size in bytes.", attribute="bytes")


class ArtifactPageSchema(PageSchema):
    """A page of artifacts, by task and name."""

    items = documents(ArtifactSchema, "The artifacts of the page, by task and name.")


class ArchiveQuery(Strict):
    """Content of an archive."""

    model = Flag(text=True, load_default=True, description="Whether the archive includes the model.")


class ArtifactQuery(PageQuery):
    """Pagination of artifacts."""

    after = Text(
        r"^-?[0-9]{1,17}(/[^\x00-\x1f\x7f]+)?$", longest=300, description="Cursor: the `next` of the previous page."
    )


class SummarySchema(Open):
    """Summary of a simulation that has ended: failures first."""

    tasks = dictionary("Number of tasks, by status.")
    metrics = dictionary(
        "By metric, in its unit: `mean_ok` over tasks that are `ok`, `mean_penalised` over all tasks; `low` and"
        " `high` are the ends of the 95 % interval of `mean_ok`, `low_penalised` and `high_penalised` of"
        " `mean_penalised`. Its unit is the scenario. `never`: number of tasks whose value stands for `never`,"
        " which is in no other figure."
    )
    worst = array(
        fields.Dict(), "The ten worst tasks: those that are not `ok` first, then the worst scores.", required=False
    )
    groups = dictionary(
        "The same statistics by scenario field, and by swept parameter as `params.NAME`.", required=False
    )
    sweep = dictionary("`rows`: the statistics by combination; `complete`: whether these are all.", required=False)
    score_series = dictionary(
        "`metric`, `mean` and `series` of the score, as `score` of a simulation; null without a score.",
        required=False,
        allow_none=True,
    )
    failures = dictionary(
        "Number of tasks that are `ok`, by outcome that the dataset counts as a failure; null if it names none.",
        required=False,
        allow_none=True,
    )
    columns = dictionary("Type of each column of the tables: int, float, bool or str.", required=False)
    trusted = boolean(
        "True if the model ran in the evaluator's process, where nothing keeps it from its score; absent otherwise.",
        required=False,
    )


class HealthSchema(Open):
    """Liveness of this process."""

    status = string("`ok`.")


class ReadinessSchema(Open):
    """Readiness of this process, and the sandbox level of this machine."""

    ready = boolean("Whether this process can serve requests.")
    checks = dictionary("By component: `ok`, or the problem.")
    sandbox = dictionary("Sandbox level, and the missing layers.")
