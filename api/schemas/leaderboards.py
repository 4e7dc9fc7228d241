"""Schemas of the leaderboards of datasets."""

from marshmallow import fields, validate

from api.schemas.fields import Open, Strict, Whole


class LeaderboardQuery(Strict):
    """Length of a leaderboard."""

    limit = Whole(1, 100, text=True, load_default=20, metadata={"description": "Most places that are listed."})


class RankedModelSchema(Open):
    """The model of a place."""

    name = fields.String(required=True, metadata={"description": "Name of the model."})
    version = fields.Integer(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Version of the model, from 1; null for a baseline of the platform that an earlier "
                "release has recorded."
            )
        },
    )
    digest = fields.String(required=True, metadata={"description": "Digest of its content."})


class PlaceSchema(Open):
    """A place: a model with its pooled simulations. Models are told apart by name; of versions the newest counts."""

    place = fields.Integer(required=True, metadata={"description": "Number of the place, from 1."})
    simulation = fields.String(required=True, metadata={"description": "Id of the first simulation."})
    pooled = fields.Integer(
        required=True,
        metadata={
            "description": "Number of simulations that the mean is of: all of the model's newest version with the same"
            " repetitions, which differ in their seeds. They are not selected by their scores."
        },
    )
    model = fields.Nested(RankedModelSchema, required=True, metadata={"description": "The model."})
    tasks = fields.Dict(
        keys=fields.String(),
        values=fields.Integer(),
        required=True,
        metadata={"description": "Number of tasks: `total`, `done`, `failed` (not `ok`)."},
    )
    mean = fields.Float(
        required=True,
        metadata={
            "description": (
                "Mean score, in the unit of the score; a task that is not `ok` counts with the worst value."
            )
        },
    )
    low = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Lower end of the 95 % interval of the mean score, in its unit; null for the mean of a single task."
            )
        },
    )
    high = fields.Float(
        required=True,
        allow_none=True,
        metadata={
            "description": (
                "Upper end of the 95 % interval of the mean score, in its unit; null for the mean of a single task."
            )
        },
    )
    better_than_next = fields.Boolean(
        required=True,
        allow_none=True,
        metadata={
            "description": "Whether its interval is beyond that of the next place; null for the last model, and if one"
            " of the two has no interval."
        },
    )
    ended_at = fields.AwareDateTime(
        required=True, format="iso", metadata={"description": "When the last of them ended."}
    )


class LeaderboardSchema(Open):
    """The pooled simulations of each model on a dataset's version, the best mean first."""

    dataset = fields.String(required=True, metadata={"description": "Name of the dataset."})
    version = fields.String(required=True, metadata={"description": "Version of the dataset."})
    digest = fields.String(required=True, metadata={"description": "Digest of that version."})
    metric = fields.String(required=True, metadata={"description": "Name of the dataset's score."})
    better = fields.String(
        required=True,
        validate=validate.OneOf(("higher", "lower")),
        metadata={"description": "Whether a higher or a lower score is better."},
    )
    searched = fields.Integer(
        required=True,
        metadata={"description": "Number of simulations that were searched: the newest that have succeeded."},
    )
    complete = fields.Boolean(
        required=True, metadata={"description": "Whether there are no older simulations of the version."}
    )
    items = fields.List(
        fields.Nested(PlaceSchema), required=True, metadata={"description": "The places, the best first."}
    )
