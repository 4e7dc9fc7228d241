"""Runtimes and simulators on the wire."""

from marshmallow import fields

from api.schemas.fields import Open


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


class ExecutorSchema(Open):
    """A place that simulations run in."""

    name = fields.String(required=True)
    kind = fields.String(required=True)
    workers = fields.Integer(
        required=True, metadata={"description": "Pairs of evaluator and model server at work at once."}
    )
    in_use = fields.Integer(required=True, metadata={"description": "Of those, how many are taken."})
    healthy = fields.Boolean(
        required=True, allow_none=True, metadata={"description": "Whether it answers; null before the first look."}
    )
    reason = fields.String(required=True, allow_none=True, metadata={"description": "Why it does not."})
    since = fields.AwareDateTime(required=True, allow_none=True, format="iso")


class ExecutorListSchema(Open):
    """Every place that simulations run in."""

    items = fields.List(fields.Nested(ExecutorSchema), required=True)
