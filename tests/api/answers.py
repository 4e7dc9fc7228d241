"""Helpers of API tests: a model, result lines, and an assertion about problem documents."""

import json
from typing import Any

from werkzeug.test import TestResponse

MODEL = b"class Model:\n    def act(self, observation):\n        return [0.0]\n"


def line(task: int, status: str = "ok", **metrics: Any) -> bytes:
    """Return a result line in an evaluator's format, with ``timing`` last."""
    result = {
        "task": task,
        "status": status,
        "scenario": {"index": task, "repeat": 0, "seed": task, "name": f"s{task}"},
        "metrics": {"steps": task, "return": task / 2, **metrics},
        "error": None if status == "ok" else "the model raised",
        "artifacts": [],
        "timing": {"seconds": 0.5},
    }
    return json.dumps(result, separators=(",", ":")).encode() + b"\n"


def problem(response: TestResponse, status: int, slug: str) -> dict[str, Any]:
    """Assert that a response is a complete problem document, and return it."""
    assert response.status_code == status, response.data
    assert response.content_type == "application/problem+json"
    body: dict[str, Any] = response.json
    assert body["type"] == f"/problems/{slug}", body
    assert body["status"] == status and body["title"] and body["detail"]
    return body
