"""`windtunnel mcp`: serve the platform's verbs to a coding agent by the Model Context Protocol."""

from pathlib import Path

import click

from windtunnel.commands.options import context_names, project_option


@click.command()
@click.option("--allow-changes", is_flag=True, help="Also submit, upload, compare, repeat and cancel.")
@click.option(
    "--folder",
    type=click.Path(exists=True, file_okay=False, path_type=Path),
    default=".",
    show_default="the current folder",
    help="Folder whose files an agent may send as models; paths are relative to it.",
)
@click.option("--context", metavar="NAME", shell_complete=context_names, help="Context instead of the current one.")
@click.option("--url", metavar="URL", help="Address of the platform, instead of a context.")
@project_option()
def command(allow_changes: bool, folder: Path, context: str | None, url: str | None, project: str | None) -> None:
    """Serve this platform to a coding agent over the Model Context Protocol (MCP), on stdin and stdout.

    Read-only unless --allow-changes is given. The configuration of an agent:

    \b
    {"mcpServers": {"windtunnel": {"command": "windtunnel", "args": ["mcp"]}}}
    """
    from windtunnel import AsyncClient
    from windtunnel.tables import library

    library("mcp", "mcp")
    from windtunnel.mcp_server import server

    server(AsyncClient(url, context=context, project=project), changes=allow_changes, folder=folder).run("stdio")
