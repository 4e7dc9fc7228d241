"""A coding agent uses a platform over the Model Context Protocol, by the client of the package `mcp`."""

import asyncio
import json
import os
import sys
from collections.abc import Awaitable, Callable
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from tests.system.platform_process import PlatformProcess

BRAKE = "class Model:\n    def act(self, seen):\n        return [1.0 if seen[2] + seen[3] > 0 else 0.0]\n"
#: Tools that change something.
CHANGING = {
    "upload_model",
    "check_model",
    "run_simulation",
    "compare_models",
    "retry_simulation",
    "cancel_simulation",
}
Talk = Callable[[Client], Awaitable[None]]


@pytest.fixture
def talk(platform: PlatformProcess, tmp_path: Path) -> Callable[..., None]:
    """A function that starts `windtunnel mcp` as an agent does, and lets a coroutine talk to it."""

    def run(talking: Talk, *options: str, url: str = platform.url) -> None:
        async def session() -> None:
            environ = {"PATH": os.environ["PATH"], "HOME": str(tmp_path), "WINDTUNNEL_URL": url}
            command = ["-m", "windtunnel", "mcp", *options]
            server = StdioServerParameters(command=sys.executable, args=command, env=environ, cwd=tmp_path)
            async with Client(stdio_client(server)) as client:
                await talking(client)

        asyncio.run(asyncio.wait_for(session(), 200))

    return run


def test_the_server_says_its_version(talk: Callable[..., None]) -> None:
    async def talking(client: Client) -> None:
        assert client.server_info.version == metadata.version("windtunnel")

    talk(talking)


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool that must succeed; return its structured result."""
    answer = await client.call_tool(tool, arguments)
    assert not answer.is_error, answer.content
    structured: Any = answer.structured_content
    return structured.get("result", structured) if set(structured) == {"result"} else structured


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that must fail; return its message."""
    answer = await client.call_tool(tool, arguments)
    assert answer.is_error
    return str(answer.content[0].text)


def test_an_agent_reads_what_there_is_and_is_told_what_it_may_not_do(
    talk: Callable[..., None], platform: PlatformProcess
) -> None:
    ended = platform.run(model="cartpole", dataset="cartpole", scenarios={"range": [0, 10]})

    async def reading(client: Client) -> None:
        tools = (await client.list_tools()).tools
        assert {tool.name for tool in tools}.isdisjoint(CHANGING) and len(tools) >= 15
        assert all(tool.annotations is not None and tool.annotations.read_only_hint for tool in tools)
        assert all(tool.description for tool in tools)
        assert "read-only" in str(client.instructions)
        names = {dataset["name"] for dataset in await call(client, "list_datasets")}
        assert {"car_street", "cartpole"} <= names
        dataset = await call(client, "get_dataset", dataset="cartpole")
        assert dataset["interface"]["observation"]["names"][2] == "angle" and dataset["metrics"][0]["name"] == "return"
        described = await call(client, "get_simulation", simulation=ended["id"])
        assert described["state"] == "succeeded" and described["metrics"]["return"]["mean"] is not None
        assert (await call(client, "list_simulations", limit=1))[0].keys() == (
            described.keys() - {"metrics", "seconds_remaining"}
        )
        worst = await call(client, "worst_tasks", simulation=ended["id"], limit=3)
        assert len(worst) == 3 and worst[0]["replay"].startswith(platform.url)
        results = await call(client, "read_results", simulation=ended["id"], sort="-metrics.return", limit=2)
        assert [result["status"] for result in results] == ["ok", "ok"]
        assert await call(client, "list_models") and await call(client, "list_runtimes")
        assert await call(client, "list_executors") and await call(client, "list_scenarios", dataset="cartpole")
        assert "parameters" in json.dumps(await call(client, "what_goes_with_failure", simulation=ended["id"]))
        assert "neither the model nor the simulator" in await call(client, "read_logs", simulation=ended["id"])
        descriptions = {tool.name: tool.description or "" for tool in tools}
        assert "such as a" in descriptions["what_goes_with_failure"]
        assert "Did you mean cartpole?" in await refused(client, "get_dataset", dataset="cartpol")
        assert "There is no simulation" in await refused(client, "get_simulation", simulation="zzz")
        assert (await client.call_tool("cancel_simulation", {"simulation": ended["id"]})).is_error

    talk(reading)


def test_an_agent_that_may_change_things_uploads_checks_simulates_and_compares(
    talk: Callable[..., None], tmp_path: Path
) -> None:
    (tmp_path / "pushes.py").write_text(BRAKE)

    async def changing(client: Client) -> None:
        tools = {tool.name: tool.annotations for tool in (await client.list_tools()).tools}
        assert tools.keys() >= CHANGING
        assert tools["cancel_simulation"] is not None and tools["cancel_simulation"].destructive_hint
        assert (await call(client, "upload_model", path="pushes.py"))["format"] == "python"
        assert (await call(client, "check_model", model="pushes.py", dataset="cartpole"))["fits"] is True
        started = await call(client, "run_simulation", model="pushes.py", dataset="cartpole", scenarios="0-19")
        ended = await call(client, "wait_for_simulation", simulation=started["id"], seconds=120)
        assert ended["state"] == "succeeded" and ended["tasks"] == {"total": 20, "done": 20, "not_ok": 0}
        again = await call(client, "retry_simulation", simulation=started["id"], all_tasks=True)
        assert (await call(client, "cancel_simulation", simulation=again["id"]))["id"] == again["id"]
        comparison = await call(client, "compare_models", models=["pushes.py", "zero"], dataset="cartpole")
        verdict = await call(client, "get_comparison", comparison=comparison["id"], seconds=120)
        assert verdict["state"] == "finished" and verdict["models"][0]["verdict"]["decision"] == "better"
        assert (await call(client, "list_comparisons"))[0]["id"] == comparison["id"]
        for name in ("last", comparison["id"][:20], comparison["id"].upper()):
            assert (await call(client, "get_comparison", comparison=name))["id"] == comparison["id"]
        both = await call(client, "compare_simulations", first=started["id"], second=started["id"])
        assert both["models"] == ["pushes", "pushes"]
        assert "There is no file" in await refused(client, "upload_model", path="./nowhere.py")

    talk(changing, "--allow-changes")


def test_what_an_agent_names_wrongly_is_answered_with_the_tool_that_lists_it(talk: Callable[..., None]) -> None:
    async def reading(client: Client) -> None:
        for name in ("../../etc/passwd", "", "a b"):
            told = await refused(client, "get_dataset", dataset=name)
            assert "There is no dataset" in told and "list_datasets lists them" in told, told
        for name in ("../models", "", "zzzzzz"):
            told = await refused(client, "get_comparison", comparison=name)
            assert "comparison" in told and "list_comparisons lists them" in told, told
        assert "list_simulations lists them" in await refused(client, "get_simulation", simulation="zzz")
        told = await refused(client, "list_models", limit=1000)
        assert "limit" in told and "100" in told and len(told.splitlines()) == 1 and "pydantic" not in told, told
        told = await refused(client, "get_dataset")
        assert "dataset" in told and "required" in told and "pydantic" not in told, told

    talk(reading)


def test_an_agent_sends_files_of_its_folder_only(talk: Callable[..., None], tmp_path: Path) -> None:
    folder = tmp_path / "project"
    folder.mkdir()
    for place in (tmp_path, folder):
        (place / "pushes.py").write_text(BRAKE)
    (folder / "linked.py").symlink_to(tmp_path / "pushes.py")

    async def changing(client: Client) -> None:
        assert (await call(client, "upload_model", path="pushes.py"))["format"] == "python"
        for path in ("../pushes.py", str(tmp_path / "pushes.py"), "linked.py", "/dev/zero", "/", "/etc/shadow", ".."):
            for tool in ("upload_model", "check_model", "run_simulation", "compare_models"):
                arguments: dict[str, Any] = {
                    "upload_model": {"path": path},
                    "compare_models": {"models": [path, "zero"], "dataset": "cartpole"},
                }.get(tool, {"model": path, "dataset": "cartpole"})
                told = await refused(client, tool, **arguments)
                assert f"is not in {folder}" in told and "--folder" in told, told

    talk(changing, "--allow-changes", "--folder", str(folder))


def test_an_agent_is_told_that_no_platform_answers(talk: Callable[..., None]) -> None:
    async def alone(client: Client) -> None:
        assert "No platform answers" in await refused(client, "list_datasets")

    talk(alone, url="http://127.0.0.1:9")
