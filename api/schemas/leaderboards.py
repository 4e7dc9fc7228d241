"""Schemas of the leaderboards of datasets."""

from marshmallow import validate

from api.schemas.fields import Flag, Open, Strict, Whole
from api.schemas.members import boolean, count_of_each, document, documents, integer, moment, real, string


class LeaderboardQuery(Strict):
    """Length of a leaderboard, and what counts on it."""

    limit = Whole(1, 100, text=True, load_default=20, description="Most places that are listed.")
    trusted = Flag(
        text=True,
        load_default=False,
        description="Count trusted simulations too, whose models could have changed their own scores.",
    )


class RankedModelSchema(Open):
    """The model of a place."""

    name = string("Name of the model.")
    version = integer(
        "Version of the model, from 1; null for a baseline of the platform that an earlier release has recorded.",
        allow_none=True,
    )
    digest = string("Digest of its content.")


class PlaceSchema(Open):
    """A place: a model with its pooled simulations. Models are told apart by name; of versions the newest counts."""

    place = integer("Number of the place, from 1.")
    simulation = string("Id of the first simulation.")
    pooled = integer(
        "Number of simulations that the mean is of: all of the model's newest version with the same repetitions,"
        " which differ in their seeds. They are not selected by their scores."
    )
    model = document(RankedModelSchema, "The model.")
    tasks = count_of_each("Number of tasks: `total`, `done`, `failed` (not `ok`).")
    mean = real("Mean score, in the unit of the score; a task that is not `ok` counts with the worst value.")
    low = real(
        "Lower end of the 95 % interval of the mean score, in its unit; null for the mean of a single task.",
        allow_none=True,
    )
    high = real(
        "Upper end of the 95 % interval of the mean score, in its unit; null for the mean of a single task.",
        allow_none=True,
    )
    better_than_next = boolean(
        "Whether its interval is beyond that of the next place; null for the last model, and if one of the two has"
        " no interval.",
        allow_none=True,
    )
    trusted = boolean("Whether any of them is trusted: its model ran in the evaluator's process.")
    ended_at = moment("When the last of them ended.")


class LeaderboardSchema(Open):
    """The pooled simulations of each model on a dataset's version, the best mean first."""

    dataset = string("Name of the dataset.")
    version = string("Version of the dataset.")
    digest = string("Digest of that version.")
    metric = string("Name of the dataset's score.")
    better = string("Whether a higher or a lower score is better.", validate=validate.OneOf(("higher", "lower")))
    searched = integer("Number of simulations that were searched: the newest that have succeeded.")
    complete = boolean("Whether there are no older simulations of the version.")
    trusted_left_out = integer("Number of trusted simulations that would be ranked with `trusted=true`.")
    items = documents(PlaceSchema, "The places, the best first.")
