"""Documents of comparisons: what clients read, from rows."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

from core.domain.comparisons.claims import Decision, Design, Fact, Method, claims_of, refuted_claims
from core.domain.comparisons.comparison_questions import design_of
from core.domain.submissions.provenance import provenance_of

#: Members of a comparison's request that its document repeats.
_REPEATED = ("metric", "error_rate", "bound", "play_all", "params", "sweep", "repeat", "seed")
#: Members that comparisons lack which began before claims were kept, and their meaning then.
_FORMER = {"margin": 0.0, "margin_from": "default", "method": Method.ANYTIME.value, "until": None, "family": False}
#: The same of their verdicts.
_FORMER_VERDICT: dict[str, Any] = {
    "method": Method.ANYTIME.value,
    "margin": 0.0,
    "decided_by": None,
    "biased": False,
    "smallest_margin": None,
    "pairs_for_margin": None,
}


def comparison_document(row: Any, models: Sequence[Any], plays: Sequence[Any], *, details: bool) -> dict[str, Any]:
    """Return a comparison. ``details``: with groups, scenarios and the course of each verdict, which lists leave out.

    ``plays``: its simulations, by batch.
    """
    spec = json.loads(row.spec)
    document: dict[str, Any] = {
        "id": row.id,
        "state": row.state,
        "reason": row.reason,
        "dataset": {"name": row.dataset, "version": row.dataset_version, "digest": row.dataset_digest or None},
        **{name: spec[name] for name in _REPEATED},
        **{name: spec.get(name, former) for name, former in _FORMER.items()},
        "design": design_of(spec).value,
        "selection": spec["scenarios"],
        "scenarios": row.scenarios,
        "labels": json.loads(row.labels),
        "submitted_by": row.submitted_by or None,
        "created_at": _moment(row.created_at),
        "ended_at": _moment(row.ended_at) if row.ended_at is not None else None,
    }
    [reference] = [model for model in models if model.ordinal == row.reference]
    document["reference"] = _model(reference) | {"simulations": _simulations(plays, reference.ordinal)}
    document["models"] = [_compared(model, plays, details=details) for model in models if model is not reference]
    return document


def _compared(model: Any, plays: Sequence[Any], *, details: bool) -> dict[str, Any]:
    """Return a model that is compared with the reference."""
    verdict = _verdict(json.loads(model.verdict)) if model.verdict else None
    document = _model(model) | {
        "state": model.state,
        "reason": model.reason,
        "batch": model.batch,
        "played": verdict["count"] if verdict else 0,
        "ended_at": _moment(model.ended_at) if model.ended_at is not None else None,
        "verdict": verdict,
        "simulations": _simulations(plays, model.ordinal),
    }
    if not details:
        return document
    shown: dict[str, Any] = json.loads(model.details) if model.details else {}
    empty: dict[str, Any] = {"looks": [], "groups": {}, "scenarios": {"better": [], "worse": []}, "flips": None}
    return document | empty | shown


def _verdict(stored: dict[str, Any]) -> dict[str, Any]:
    """Return a verdict; one that was stored before claims were kept has those that follow from its decision."""
    if "claims" in stored:
        return stored
    decision = Decision(stored["decision"])
    fact = {Decision.BETTER: Fact.ABOVE_ZERO, Decision.WORSE: Fact.BELOW_ZERO}.get(decision)
    facts = {fact} if fact else set()
    refuted = refuted_claims(facts, stored["low"], stored["high"], 0.0)
    return (
        _FORMER_VERDICT
        | {"tasks": stored["count"]}
        | stored
        | {
            "saving": _saving(stored.get("saving")),
            "design": (Design.EXACT if stored["design"] == Design.LIST.value else Design.POPULATION).value,
            "claims": {claim.value: holds for claim, holds in claims_of(facts).items()},
            "refuted": {claim.value: holds for claim, holds in refuted.items()},
        }
    )


def _saving(stored: dict[str, Any] | None) -> dict[str, Any] | None:
    return None if stored is None else stored | {"needed_at_most": stored["needed"]}


def _model(model: Any) -> dict[str, Any]:
    provenance = provenance_of(model.provenance)
    described = {name: getattr(provenance.model, name) for name in ("name", "digest", "version", "format")}
    return described | {"runtime": provenance.runtime.name}


def _simulations(plays: Sequence[Any], ordinal: int) -> list[dict[str, Any]]:
    """Return the simulations of a model's batches; the state of one that was deleted is None."""
    return [
        {"id": play.simulation_id, "batch": play.batch, "state": play.state}
        for play in plays
        if play.ordinal == ordinal
    ]


def _moment(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat()
