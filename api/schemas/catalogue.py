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
