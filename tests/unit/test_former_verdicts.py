"""Comparisons that began before claims were kept end as they would have ended then."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from core.domain.comparisons.comparison_questions import question_of
from core.domain.comparisons.comparison_spec import comparison_spec_of
from core.domain.comparisons.pair_verdicts import Pair
from core.domain.comparisons.play_order import batches
from core.domain.comparisons.running_verdict import PlayedBatch, RunningVerdict, group_sizes
from tests.declared_metrics import declared
from tests.unit.test_stored_documents import recorded

#: Comparisons of 40 scenarios: the state that 0.2.0 stored after their first batch, and how it ended them.
STORED = json.loads((Path(__file__).parent / "former_verdicts.json").read_text())
SCORE = declared({"name": "score", "better": "higher", "low": 0, "high": 100, "unit": "%"})


@pytest.mark.parametrize("former", STORED, ids=lambda former: f"{former['design']}, {former['decision']}")
def test_a_comparison_that_began_before_ends_by_the_rules_it_began_with(former: dict[str, Any]) -> None:
    streets = ["ab"[index % 2] for index in range(former["scenarios"])]
    sizes = group_sizes([{"street": street} for street in streets])
    [text] = recorded("before-claims", "comparison_spec")[:1]
    spec = comparison_spec_of(json.dumps(json.loads(text) | {"design": former["design"]}))
    asked = question_of(spec, SCORE, former["scenarios"], sizes)
    verdict = RunningVerdict.from_json(former["stored"], asked)
    first, second = np.array(former["first"]), np.array(former["second"])
    for indexes in batches(3, range(former["scenarios"]))[1:]:
        pairs = [
            Pair(index=i, repeat=0, tasks=(at, at), statuses=("ok", "ok"), groups={"street": streets[i]})
            for at, i in enumerate(indexes)
        ]
        batch = PlayedBatch(
            scenarios=indexes, pairs=pairs, first=first[indexes], second=second[indexes], simulations=("m", "o")
        )
        verdict = RunningVerdict.from_json(json.loads(json.dumps(verdict.to_json())), asked).extend(asked, batch)
    document, details = (
        verdict.verdict(asked, ("new", "old"), over=True),
        json.loads(json.dumps(verdict.details(asked))),
    )
    names = ("decision", "low", "high", "mean", "decided_at")
    assert {name: document[name] for name in names} == {name: former[name] for name in names}
    assert [group["verdict"] for group in details["groups"]["street"]] == former["groups"]
    assert document["margin"] == 0 and details["flips"] is None
