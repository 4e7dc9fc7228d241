"""Server of the Model Context Protocol: the platform's verbs as tools of a coding agent, read-only unless allowed.

https://modelcontextprotocol.io; the package `mcp` speaks the protocol. Documents are shortened to what an agent can
use: the context of a language model is small, and the whole is one more call away.
"""

import functools
import re
from collections.abc import Iterable, Mapping
from importlib import metadata
from operator import itemgetter
from pathlib import Path
from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.server.mcpserver.tools import Tool as McpTool
from mcp_types import ToolAnnotations
from pydantic import ConfigDict, ValidationError

from windtunnel import AsyncClient, WindtunnelError
from windtunnel.mcp_server.changing import Changing
from windtunnel.mcp_server.documents import Tool
from windtunnel.mcp_server.reading import Reading
from windtunnel.visible_text import visible

INSTRUCTIONS = """\
Windtunnel simulates a model (a controller, a policy, a neural network) in many scenarios of a dataset and scores it.
Begin with list_datasets and get_dataset, which has the observations and actions of a model, its metrics and their
units. A simulation is named by its id, by the first letters of it, or as `last`, the newest one: after a
comparison, that of any of its models.
"""
CHANGES = """\
run_simulation uploads a model file and simulates it; read its state with wait_for_simulation. worst_tasks says where a
model fails, compare_models whether one is better than another, with a bounded error rate.
"""
READ_ONLY = (
    "This server is read-only: it was started without --allow-changes, so it submits, cancels and uploads nothing.\n"
)
#: How the client and the platform name the ways to a list, whose tools here are named after them.
LISTS = re.compile(r"`(?:GET /v1/(\w+)|windtunnel (\w+) list)` lists them")


class Server(MCPServer[Any]):
    """A server that answers wrong arguments with a sentence. ``arguments``: of its tools, by name."""

    arguments: Mapping[str, Iterable[str]]

    async def call_tool(self, name: str, *rest: Any, **options: Any) -> Any:
        """Call a tool."""
        try:
            return await super().call_tool(name, *rest, **options)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            faults = [
                f"{'.'.join(map(str, path))}: {text[:1].lower()}{text[1:]}"
                for path, text in map(itemgetter("loc", "msg"), error.__cause__.errors())
            ]
            known = f"unknown argument; the arguments are: {', '.join(self.arguments[name]) or 'none'}"
            text = "; ".join(faults).replace("extra inputs are not permitted", known)
            raise ToolError(visible(f"The arguments of {name} are not valid: {text}.")) from None


def server(client: AsyncClient, *, changes: bool, folder: Path) -> MCPServer[Any]:
    """Return a server with the tools of a platform; with ``changes`` also those that change something.

    ``folder``: the files that tools read are in it.
    """
    reading, changing = Reading(client), Changing(client, folder.resolve())
    read_only = ToolAnnotations(read_only_hint=True, open_world_hint=False)
    tools = [strict(tool, read_only) for tool in reading.tools()]
    for tool, destructive in changing.tools() if changes else ():
        annotations = ToolAnnotations(read_only_hint=False, destructive_hint=destructive, open_world_hint=False)
        tools.append(strict(tool, annotations))
    made = Server(
        "windtunnel",
        tools=tools,
        title="Windtunnel",
        version=metadata.version("windtunnel"),
        instructions=INSTRUCTIONS + (CHANGES if changes else READ_ONLY),
        log_level="WARNING",
    )
    made.arguments = {tool.name: tool.fn_metadata.arg_model.model_fields for tool in tools}
    return made


def strict(tool: Tool, annotations: ToolAnnotations) -> McpTool:
    """Return a tool that takes the arguments of its signature alone, of exactly their types."""
    made = McpTool.from_function(answering(tool), annotations=annotations)
    arguments = made.fn_metadata.arg_model
    arguments.model_config = ConfigDict(extra="forbid", strict=True, allow_inf_nan=False)
    arguments.model_rebuild(force=True)
    made.parameters = arguments.model_json_schema(by_alias=True)
    return made


def answering(tool: Tool) -> Tool:
    """Return a tool whose errors tell the agent what to do next."""

    @functools.wraps(tool)
    async def answer(*args: Any, **options: Any) -> Any:
        try:
            return await tool(*args, **options)
        except (WindtunnelError, OSError) as error:
            raise ToolError(LISTS.sub(lambda match: f"list_{match[1] or match[2]} lists them", str(error))) from None

    return answer
