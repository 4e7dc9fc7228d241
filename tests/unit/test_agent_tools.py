"""Arguments of the tools of agents: those of the schema alone, of its types and within its bounds."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError

from windtunnel import AsyncClient
from windtunnel.mcp_server import server


@pytest.fixture
def tools(tmp_path: Path) -> MCPServer[Any]:
    """The tools of a platform that does not answer."""
    return server(AsyncClient("http://127.0.0.1:9", patience=0.0), changes=True, folder=tmp_path)


def refusal(tools: MCPServer[Any], name: str, **arguments: Any) -> str:
    with pytest.raises(ToolError) as refused:
        asyncio.run(tools.call_tool(name, arguments))
    return str(refused.value)


def test_every_tool_refuses_an_unknown_argument_with_its_name_and_the_known_ones(tools: MCPServer[Any]) -> None:
    for tool in asyncio.run(tools.list_tools()):
        assert tool.input_schema["additionalProperties"] is False
        told = refusal(tools, tool.name, budget=1)
        assert "budget: unknown argument" in told
        assert (", ".join(tool.input_schema["properties"]) or "the arguments are: none") in told, told


@pytest.mark.parametrize(
    ("argument", "value"),
    [("repeat", "2"), ("repeat", True), ("timeout", "5"), ("seed", -1), ("max_failures", 2**53), ("labels", {"a": 1})],
)
def test_an_argument_of_another_type_or_beyond_the_bounds_is_refused(
    tools: MCPServer[Any], argument: str, value: Any
) -> None:
    told = refusal(tools, "run_simulation", model="zero", dataset="noop", **{argument: value})
    assert told.startswith(f"The arguments of run_simulation are not valid: {argument}"), told


def test_arguments_of_a_submission_reach_the_platform(tools: MCPServer[Any]) -> None:
    options = {"timeout": 5, "params": {"a": 1}, "sweep": {"b": [1, 2]}, "labels": {"a": "b"}, "record": "all"}
    assert "No platform answers" in refusal(tools, "run_simulation", model="zero", dataset="noop", **options)
