"""Schemathesis against a running platform: no server error and no response missing from the OpenAPI document."""

import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from tests.system.conftest import StartPlatform

#: A request can be valid by the document and still name a missing resource or an unsupported representation.
CONFIGURATION = """
hooks = "{hooks}"

[checks]
positive_data_acceptance.expected-statuses = [
    "2xx", "304", "401", "403", "404", "406", "409", "410", "412", "416", "422",
]
# a body that violates the schema may be too large first
negative_data_rejection.expected-statuses = [
    "400", "401", "403", "404", "405", "406", "409", "413", "415", "422", "428", "429", "5xx",
]

# tus has its own statuses for refusals, ignores unknown headers, and answers OPTIONS at any address; and the format of
# its headers is stricter than a schema can express
[[operations]]
include-path-regex = "/v1/uploads"
checks.negative_data_rejection.enabled = false
checks.missing_required_header.enabled = false
checks.positive_data_acceptance.enabled = false
checks.use_after_free.enabled = false

# the document declares streams as bytes, as generated clients need; schemathesis holds each event to the schema
[[operations]]
include-operation-id = "watch_simulation_events"
checks.response_schema_conformance.enabled = false

[[operations]]
include-operation-id = "watch_comparison_events"
checks.response_schema_conformance.enabled = false

[[operations]]
include-operation-id = "watch_pipeline_events"
checks.response_schema_conformance.enabled = false

# a stream that does not end: tests/api/test_simulation_lists.py
[[operations]]
include-operation-id = "watch_simulations"
enabled = false
"""
#: Operations that the configuration leaves out.
LEFT_OUT = 1
#: The content type of bytes in tus.
HOOKS = """
import schemathesis

schemathesis.serializer.alias("application/offset+octet-stream", "application/octet-stream")
"""
#: Fixed, so that a failure is repeatable.
SEED = 20_240_601
#: Seconds for one request: a check of a model with all datasets plays each of them. Seconds for all of them.
REQUEST, LIMIT = 90, 600

METHODS = frozenset({"get", "head", "put", "post", "patch", "delete", "options"})


@pytest.mark.timeout(LIMIT + 60)
@pytest.mark.parametrize(("phases", "cases"), [("fuzzing", 3), ("all", 15)])
def test_no_request_gets_a_server_error_or_an_undocumented_response(
    start_platform: StartPlatform, tmp_path: Path, phases: str, cases: int
) -> None:
    platform = start_platform()
    platform.run(dataset="noop", runtime="python", scenarios={"range": [0, 3]})
    configuration = tmp_path / "schemathesis.toml"
    configuration.write_text(CONFIGURATION.format(hooks=tmp_path / "hooks.py"))
    (tmp_path / "hooks.py").write_text(HOOKS)
    tool = Path(sys.executable).parent / "schemathesis"
    command = [
        str(tool), "--config-file", str(configuration), "--no-color", "run", f"{platform.url}/openapi.json",
        "--max-examples", str(cases), "--seed", str(SEED), "--request-timeout", str(REQUEST), "--continue-on-failure",
        "--warnings", "off", *(() if phases == "all" else ("--phases", phases)),
    ]  # fmt: skip
    process = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=LIMIT)
    assert process.returncode == 0, process.stdout[-8000:] + process.stderr[-2000:]
    documented = httpx.get(f"{platform.url}/openapi.json", trust_env=False).json()["paths"].values()
    operations = sum(len(methods.keys() & METHODS) for methods in documented)
    assert f"Tested: {operations - LEFT_OUT}" in process.stdout, process.stdout[-2000:]
    # the same server still runs and is ready
    assert httpx.get(f"{platform.url}/readyz", trust_env=False).json()["ready"] is True
    assert "500" not in {
        line.partition('status="')[2].partition('"')[0]
        for line in platform.http.get("/metrics").text.splitlines()
        if line.startswith("windtunnel_http_requests_total")
    }
