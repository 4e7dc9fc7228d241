"""Documents of comparisons: what clients read, from rows."""

from collections.abc import Sequence

from core.domain.comparisons.comparison_spec import comparison_spec_of
from core.domain.submissions.provenance import provenance_of
from core.domain.submissions.stored_documents import load_document
from core.domain.submissions.trusted_runs import trusted_notice
from core.services.datasets.descriptions import moment
from core.store.comparisons import BatchSimulationRow, ComparedModelRow, ComparisonRow


def comparison_document(
    row: ComparisonRow, models: Sequence[ComparedModelRow], plays: Sequence[BatchSimulationRow], *, details: bool
) -> dict[str, object]:
    """Return a comparison. ``details``: with groups, scenarios and the course of each verdict, which lists leave out.

    ``plays``: its simulations, by batch.
    """
    spec = comparison_spec_of(row.spec)
    [reference] = [model for model in models if model.ordinal == row.reference]
    return {
        "id": row.id,
        "state": row.state,
        "reason": row.reason,
        "dataset": {"name": row.dataset, "version": row.dataset_version, "digest": row.dataset_digest or None},
        "metric": spec.metric,
        "error_rate": spec.error_rate,
        "bound": spec.bound,
        "play_all": spec.play_all,
        "params": spec.params,
        "sweep": spec.sweep,
        "repeat": spec.repeat,
        "seed": spec.seed,
        "trusted": spec.trusted,
        "notice": trusted_notice(spec.trusted, spec.trusted),
        "margin": spec.margin,
        "margin_from": spec.margin_from,
        "method": spec.method.value,
        "until": spec.until.value if spec.until is not None else None,
        "family": spec.family,
        "design": spec.design.value,
        "selection": spec.scenarios,
        "scenarios": row.scenarios,
        "labels": row.label_values,
        "submitted_by": row.submitted_by or None,
        "created_at": moment(row.created_at),
        "ended_at": moment(row.ended_at) if row.ended_at is not None else None,
        "reference": _model(reference) | {"simulations": _simulations(plays, reference.ordinal)},
        "models": [_compared(model, plays, details=details) for model in models if model is not reference],
    }


def _compared(model: ComparedModelRow, plays: Sequence[BatchSimulationRow], *, details: bool) -> dict[str, object]:
    """Return a model that is compared with the reference."""
    verdict = load_document(model.verdict) if model.verdict else None
    document = _model(model) | {
        "state": model.state,
        "reason": model.reason,
        "batch": model.batch,
        "played": verdict["count"] if verdict else 0,
        "ended_at": moment(model.ended_at) if model.ended_at is not None else None,
        "verdict": verdict,
        "simulations": _simulations(plays, model.ordinal),
    }
    if not details:
        return document
    empty: dict[str, object] = {"looks": [], "groups": {}, "scenarios": {"better": [], "worse": []}, "flips": None}
    return document | (load_document(model.details) if model.details else empty)


def _model(model: ComparedModelRow) -> dict[str, object]:
    provenance = provenance_of(model.provenance)
    described = {name: getattr(provenance.model, name) for name in ("name", "digest", "version", "format")}
    return described | {"runtime": provenance.runtime.name}


def _simulations(plays: Sequence[BatchSimulationRow], ordinal: int) -> list[dict[str, object]]:
    """Return the simulations of a model's batches; the state of one that was deleted is None."""
    return [
        {"id": play.simulation_id, "batch": play.batch, "state": play.simulation_state}
        for play in plays
        if play.ordinal == ordinal
    ]
