"""Documents of comparisons: what clients read, from rows."""

import json
from collections.abc import Mapping, Sequence

import msgspec

from core.domain.comparisons.claims import Decision, Design, Fact, Method, claims_of, refuted_claims
from core.domain.comparisons.comparison_spec import comparison_spec_of
from core.domain.submissions.provenance import provenance_of
from core.services.datasets.descriptions import moment
from core.store.comparisons import BatchSimulationRow, ComparedModelRow, ComparisonRow

#: Members that verdicts lack of comparisons that began before claims were kept, and their meaning then.
_FORMER_VERDICT: Mapping[str, object] = {
    "method": Method.ANYTIME.value,
    "margin": 0.0,
    "decided_by": None,
    "biased": False,
    "smallest_margin": None,
    "pairs_for_margin": None,
}


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
        "margin": spec.margin,
        "margin_from": spec.margin_from,
        "method": (spec.method or Method.ANYTIME).value,
        "until": spec.until.value if spec.until is not None else None,
        "family": spec.family,
        "design": spec.subject.value,
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
    verdict = verdict_document(model.verdict) if model.verdict else None
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
    return document | empty | (json.loads(model.details) if model.details else {})


class _FormerVerdict(msgspec.Struct):
    """The members of a verdict that claims follow from. ``low`` and ``high``: of its interval."""

    decision: Decision
    design: Design
    count: int
    low: float
    high: float
    saving: Mapping[str, object] | None = None


def verdict_document(stored: str) -> dict[str, object]:
    """Return a verdict; one that was stored before claims were kept has those that follow from its decision."""
    document: dict[str, object] = json.loads(stored)
    if "claims" in document:
        return document
    former = msgspec.convert(document, _FormerVerdict)
    fact = {Decision.BETTER: Fact.ABOVE_ZERO, Decision.WORSE: Fact.BELOW_ZERO}.get(former.decision)
    facts = {fact} if fact else set()
    refuted = refuted_claims(facts, former.low, former.high, 0.0)
    saving = former.saving
    return (
        {**_FORMER_VERDICT, "tasks": former.count}
        | document
        | {
            "saving": None if saving is None else {**saving, "needed_at_most": saving["needed"]},
            "design": (Design.EXACT if former.design is Design.LIST else Design.POPULATION).value,
            "claims": {claim.value: holds for claim, holds in claims_of(facts).items()},
            "refuted": {claim.value: holds for claim, holds in refuted.items()},
        }
    )


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
