"""Schemas of retention: rules of a project, what they would take, and the bin."""

from marshmallow import fields

from api.schemas.fields import LARGEST_INTEGER, NAME, Choice, Flag, ListField, ObjectField, Open, Strict, Text, Whole
from api.schemas.members import array, boolean, count_of_each, document, documents, integer, moment, string
from api.schemas.pages import PageSchema
from core.domain.retention.retention_rules import MOST_RULES, BinnedKind, Protection
from core.domain.scheduling.states import FINAL

_KINDS = [kind.value for kind in BinnedKind]
_END_STATES = sorted(state.value for state in FINAL)


class RetentionRuleSchema(Strict):
    """A rule: what meets all its conditions goes to the bin."""

    kind = Choice(*_KINDS, required=True, description="What it is about.")
    older_than = Whole(
        0, LARGEST_INTEGER, description="Number of seconds since a simulation has ended, or a version was registered."
    )
    unused_for = Whole(
        0,
        LARGEST_INTEGER,
        description="Number of seconds since the last simulation with a model, or on a dataset, was submitted.",
    )
    keep_last = Whole(
        1,
        LARGEST_INTEGER,
        description="Number of the newest, of those that the rule is about, that stay; of versions, of each name.",
    )
    labels = ObjectField(
        most=32,
        keys=Text(NAME, longest=63),
        values=Text(longest=200),
        description="Labels that a simulation must have, each with this value.",
    )
    states = ListField(
        Choice(*_END_STATES), longest=len(_END_STATES), description="States in which a simulation must have ended."
    )
    name = Text(NAME, longest=100, description="Name that a model or a dataset must have.")


class RetentionSchema(Strict):
    """Decisions of a project about what it keeps."""

    bin = Flag(
        load_default=False,
        description="Whether simulations, models and datasets that people delete go to the bin, or are gone at once.",
    )
    rules = ListField(
        fields.Nested(RetentionRuleSchema),
        longest=MOST_RULES,
        load_default=list,
        description="The rules. What one of them takes goes to the bin.",
    )


class RetentionTrialSchema(Strict):
    """Rules to try."""

    rules = ListField(
        fields.Nested(RetentionRuleSchema),
        longest=MOST_RULES,
        description="The rules. Those of the project, if left out.",
    )


class DecidedRetentionSchema(Open):
    """Decisions of a project about what it keeps, as they are."""

    bin = boolean("Whether simulations, models and datasets that people delete go to the bin.")
    rules = documents(RetentionRuleSchema, "The rules. What one of them takes goes to the bin.")


class TakenSchema(Open):
    """How much rules would take of a kind."""

    count = integer("Number of them.")
    bytes = integer("Number of bytes that are stored for them.")


class TakenByKindSchema(Open):
    """How much rules would take of each kind."""

    simulations = document(TakenSchema, "Of simulations.")
    models = document(TakenSchema, "Of versions of models.")
    datasets = document(TakenSchema, "Of versions of datasets.")


class RetainedThingSchema(Open):
    """Something that a rule is about."""

    kind = string("What it is.", enum=_KINDS)
    id = string("Its id.")
    name = string("Its name; of a simulation, that of its model.")
    bytes = integer("Number of bytes that are stored for it.")
    rule = integer("Number of the rule, from 1.")
    spared = array(
        fields.String(metadata={"enum": [each.value for each in Protection]}), "Why it stays; empty: it would go."
    )


class RetentionPreviewSchema(Open):
    """The effect that rules would have now."""

    taken = document(TakenByKindSchema, "What would go to the bin, by kind.")
    spared = count_of_each("Number of things that stay though a rule is about them, by reason; one may have several.")
    first = documents(RetainedThingSchema, "The first 100 that would go, the newest first.")
    first_spared = documents(RetainedThingSchema, "The first 100 that stay though a rule is about them.")


class BinItemSchema(Open):
    """Something in the bin."""

    kind = string("What it is.", enum=_KINDS)
    id = string("Its id, by which it is restored.")
    name = string("Its name; of a simulation, that of its model.")
    version = string("The version of a model or a dataset; null: a simulation.", allow_none=True)
    bytes = integer("Number of bytes that are stored for it.")
    made_by = string("Whose it is.")
    binned_by = string("Who has deleted it; null: a rule, or not known.", allow_none=True)
    rule = string("The rule that has deleted it, in words; null: none.", allow_none=True)
    binned_at = moment("When it was deleted.")
    until = moment("Until when it may come back.")


class BinPageSchema(PageSchema):
    """A page of the bin."""

    items = documents(BinItemSchema, "What is in it, the last deleted first.")
    count = integer("Number of all things in the bin.")
    bytes = integer("Number of bytes that are stored for all things in the bin. The project is charged with them.")
