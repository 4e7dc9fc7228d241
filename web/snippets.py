"""Snippets of pages: the same request or result by command line, curl and Python, ready to be copied."""

import json
import shlex
from collections.abc import Mapping
from typing import Any

from web.command_line import run_line
from web.declared_metrics import score_of

PANDAS = """\
import os, urllib.request
import pandas, pyarrow

address = "{address}v1/simulations/{id}/results?format=parquet"
headers = {{"Authorization": "Bearer " + os.environ.get("WINDTUNNEL_TOKEN", "")}}
with urllib.request.urlopen(urllib.request.Request(address, headers=headers)) as answer:
    content = pyarrow.BufferOutputStream()
    content.write(answer.read())
results = pandas.read_parquet(pyarrow.BufferReader(content.getvalue()))
print({expression})
"""
POST = """\
import os
import httpx

submission = {body}
token = os.environ.get("WINDTUNNEL_TOKEN")
headers = {{"Authorization": f"Bearer {{token}}"}} if token else {{}}
answer = httpx.post("{address}v1/simulations", json=submission, headers=headers)
print(answer.raise_for_status().json()["id"])
"""


def of_results(address: str, simulation: Mapping[str, Any], dataset: Mapping[str, Any]) -> dict[str, str]:
    """Return snippets that load the results of a simulation; ``address``: of the server, with a slash at its end."""
    score = score_of(dataset)
    groups = dataset.get("group_by") or []
    expression = "results.describe()"
    if score and groups:
        expression = f'results.groupby("scenario.{groups[0]}")["metrics.{score}"].describe()'
    elif score:
        expression = f'results["metrics.{score}"].describe()'
    path = f"v1/simulations/{simulation['id']}/results"
    return {
        "Python": PANDAS.format(address=address, id=simulation["id"], expression=expression),
        "curl": f'curl -H "Authorization: Bearer $WINDTUNNEL_TOKEN" {shlex.quote(f"{address}{path}?follow=true")}\n',
    }


def curl_of(address: str, body: Mapping[str, Any], path: str = "v1/simulations") -> str:
    """Return the curl command that posts a document; of a submission, unless another path is named."""
    return (
        f"curl -X POST {shlex.quote(address + path)} \\\n"
        '  -H "Authorization: Bearer $WINDTUNNEL_TOKEN" -H "Content-Type: application/json" \\\n'
        f"  -d {shlex.quote(json.dumps(body))}\n"
    )


def of_submission(address: str, body: Mapping[str, Any]) -> dict[str, str]:
    """Return the lines that submit a simulation, by tool."""
    line = run_line(address, body)
    others = {"curl": curl_of(address, body), "Python": POST.format(address=address, body=_python(body))}
    return others if line is None else {"Command line": line, **others}


def _python(body: Mapping[str, Any]) -> str:
    """Return a document as a Python expression with a member per line."""
    members = "".join(f"    {name!r}: {value!r},\n" for name, value in body.items())
    return f"{{\n{members}}}" if members else "{}"
