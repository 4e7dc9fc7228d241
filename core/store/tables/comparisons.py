"""Tables of what submits simulations itself: comparisons of models, and pipelines."""

from sqlalchemy import BigInteger, Column, Float, Index, Integer, Table, Text

from core.store.tables.schema import metadata, partial_index

comparisons = Table(
    "comparisons",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("state", Text, nullable=False),  # see core/domain/comparisons/comparison_states.py
    Column("event_seq", Integer, nullable=False, server_default="0"),
    Column("spec", Text, nullable=False),  # JSON: the normalised request, without its models
    Column("dataset", Text, nullable=False),
    Column("dataset_version", Text, nullable=False),
    Column("dataset_digest", Text, nullable=False),
    Column("reference", Integer, nullable=False),  # ordinal of the model that the others are compared with
    Column("scenarios", BigInteger, nullable=False),
    Column("groups", Text),  # JSON: number of scenarios by grouping and group; null until a job has counted them
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("submitted_by", Text, nullable=False, server_default=""),
    Column("reason", Text),
    Column("failures", Integer, nullable=False, server_default="0"),  # of its job, in a row
    Column("not_before", Float(53), nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Index("comparisons_unended", "id", **partial_index("state IN ('running', 'cancelling')")),
    Index("comparisons_listed", "project", "dataset", "id"),
    Index("comparisons_paged", "project", "id"),
)

comparison_models = Table(
    "comparison_models",
    metadata,
    Column("comparison_id", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("digest", Text, nullable=False),
    Column("spec", Text, nullable=False),  # JSON: the submission of its simulations
    Column("provenance", Text, nullable=False),  # JSON: everything resolved to digests
    Column("state", Text, nullable=False),
    Column("batch", Integer, nullable=False, server_default="0"),  # the first that its verdict does not have
    Column("running_verdict", Text),  # JSON: state of its tests; null: before the first batch, or the reference
    Column("verdict", Text),  # JSON: as clients see it
    Column("details", Text),  # JSON: groups, scenarios and looks, which lists do not show
    Column("reason", Text),
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Index("comparison_models_digest", "digest"),
)

comparison_simulations = Table(
    "comparison_simulations",
    metadata,
    Column("comparison_id", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("batch", Integer, primary_key=True),
    Column("simulation_id", Text, nullable=False),
    Index("comparison_simulations_simulation", "simulation_id"),
)

pipelines = Table(
    "pipelines",
    metadata,
    Column("id", Text, primary_key=True),
    Column("project", Text, nullable=False),
    Column("name", Text, nullable=False, server_default=""),
    Column("state", Text, nullable=False),  # see core/domain/pipelines/pipeline_states.py
    Column("event_seq", Integer, nullable=False, server_default="0"),
    Column("labels", Text, nullable=False, server_default="{}"),
    Column("submitted_by", Text, nullable=False, server_default=""),
    Column("reason", Text),
    Column("failures", Integer, nullable=False, server_default="0"),  # of its job, in a row
    Column("not_before", Float(53), nullable=False, server_default="0"),
    Column("claim", Text),
    Column("claim_until", Float(53), nullable=False, server_default="0"),
    Column("created_at", Float(53), nullable=False),
    Column("ended_at", Float(53)),
    Index("pipelines_paged", "project", "id"),
    Index("pipelines_unended", "id", **partial_index("state IN ('running', 'cancelling')")),
)

pipeline_steps = Table(
    "pipeline_steps",
    metadata,
    Column("pipeline_id", Text, primary_key=True),
    Column("ordinal", Integer, primary_key=True),
    Column("name", Text, nullable=False),
    Column("kind", Text, nullable=False),  # submission | comparison
    Column("document", Text, nullable=False),  # JSON: what it submits, with references to outputs of other steps
    Column("waits_for", Text, nullable=False),  # JSON: ordinals
    Column("retries", Integer, nullable=False, server_default="0"),
    Column("fresh", Integer, nullable=False, server_default="0"),
    Column("state", Text, nullable=False),
    Column("attempt", Integer, nullable=False, server_default="1"),
    Column("run_id", Text),  # its simulation or comparison; if it is skipped, that of an earlier step
    Column("digest", Text),  # of what it submits, resolved to digests; null: not resolved, or nothing equals it
    Column("outputs", Text),  # JSON, as those of its simulation
    Column("reason", Text),
    Column("started_at", Float(53)),
    Column("ended_at", Float(53)),
    Index("pipeline_steps_run", "run_id", **partial_index("run_id IS NOT NULL")),
    Index("pipeline_steps_digest", "digest", **partial_index("digest IS NOT NULL")),
)
