"""Runtimes, simulators and datasets on the wire."""

from marshmallow import fields

from api.schemas.fields import Open
from api.schemas.pages import NumberedPageSchema


class FormatSchema(Open):
    """A format that a runtime takes."""

    name = fields.String(required=True)
    environment = fields.String(required=True)
    ready = fields.Boolean(required=True, metadata={"description": "Whether its environment lies prepared here."})


class RuntimeSchema(Open):
    """How a model is loaded and called."""

    name = fields.String(required=True)
    formats = fields.List(fields.Nested(FormatSchema), required=True)


class RuntimeListSchema(Open):
    """Every runtime."""

    items = fields.List(fields.Nested(RuntimeSchema), required=True)


class SimulatorSchema(Open):
    """A world that plays scenarios."""

    name = fields.String(required=True)
    ready = fields.Boolean(required=True, metadata={"description": "Whether its environment lies prepared here."})
    datasets = fields.List(fields.String(), required=True, metadata={"description": "The datasets it plays."})


class SimulatorListSchema(Open):
    """Every simulator."""

    items = fields.List(fields.Nested(SimulatorSchema), required=True)


class DatasetBriefSchema(Open):
    """A dataset, in short."""

    name = fields.String(required=True)
    version = fields.String(required=True)
    digest = fields.String(required=True)
    title = fields.String(required=True)
    description = fields.String(required=True)
    simulator = fields.String(required=True)
    tasks = fields.Integer(
        required=True, allow_none=True, metadata={"description": "Scenarios; null where any number can be had."}
    )


class DatasetListSchema(Open):
    """Every dataset."""

    items = fields.List(fields.Nested(DatasetBriefSchema), required=True)


class DatasetSchema(DatasetBriefSchema):
    """A dataset with what a model sees and answers in it, its metrics and its parameters."""

    interface = fields.Dict(
        required=True,
        allow_none=True,
        metadata={"description": "Observation and action: dtype, shape, and a name, unit and range for each entry."},
    )
    metrics = fields.List(fields.Dict(), required=True, metadata={"description": "Each with its formula and source."})
    params = fields.Dict(required=True, metadata={"description": "What `params` and `sweep` may set, by name."})
    score = fields.Dict(required=True, allow_none=True)


class ScenarioPageSchema(NumberedPageSchema):
    """Scenarios of a dataset, in order."""

    items = fields.List(fields.Dict(), required=True)
