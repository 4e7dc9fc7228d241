"""Demo: start the platform, send the 1.0 request, follow the simulation, and show its results.

On a terminal it serves the page with the results until Ctrl-C; in a script it ends by itself.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from server.local import demo_report
from server.local.local_platform import FURTHER_PORTS, NotStarted, Platform, open_platform
from server.restart import REFUSED
from windtunnel import Client, WindtunnelError
from windtunnel.descriptions import event_text
from windtunnel.visible_text import terminal_text

CURL_COMMAND = (
    'curl -X POST "http://karrozzeria:5000/1.0/simluation/tests"'
    ' -d "{\\"runtimePath\\": \\"tensorflow\\", \\"model_data\\": \\"car_street\\"}"'
)
#: Path and body of that request, for a machine without curl, and curl's content type.
PATH, BODY = "/1.0/simluation/tests", '{"runtimePath": "tensorflow", "model_data": "car_street"}'
CONTENT_TYPE = "application/x-www-form-urlencoded"
#: Whether this is a checkout, which has the Makefile.
IN_CHECKOUT = (Path(__file__).parents[2] / "Makefile").is_file()
console = Console()


def main(*, further: int = FURTHER_PORTS) -> int:
    """Run the demo; return 0 if both simulations succeeded. ``further``: as in `open_platform`."""
    began = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: the platform ends with the demo
    environ = dict(os.environ)
    os.environ["NO_PROXY"] = "*"  # the demo itself sends requests to this machine only; the platform keeps its proxies
    try:
        with open_platform(environ, tell, further=further) as platform:
            with Client(platform.url, token=platform.token) as client:
                return _show(platform, client, Path(environ.get("WINDTUNNEL_HOME", "var")) / "demo", began)
    except NotStarted as error:
        console.print(f"[red]There is no platform:[/] {escape(str(error))}", soft_wrap=True)
        return REFUSED
    except WindtunnelError as error:
        console.print(f"[red]The demo has failed:[/] {terminal_text(str(error))}")
        return 1
    except KeyboardInterrupt:
        return 130


def tell(message: str) -> None:
    """Print a message."""
    console.print(escape(message), soft_wrap=True)


def documented_request(platform: Platform) -> dict[str, Any]:
    """Send the documented request with curl, if this machine has it, and return its response."""
    host, _, port = platform.url.removeprefix("http://").rpartition(":")
    command = CURL_COMMAND.replace("karrozzeria:5000", f"karrozzeria:{port}")
    shown = f'{command} -H "Authorization: Bearer {platform.token_in_shell}"' if platform.token else command
    console.print(f"\n[bold]$[/] {escape(shown)}\n", soft_wrap=True)
    if shutil.which("curl") is None:
        headers = {"Content-Type": CONTENT_TYPE}
        if platform.token:
            headers["Authorization"] = f"Bearer {platform.token}"
        answer = httpx.post(platform.url + PATH, content=BODY, headers=headers, timeout=60.0)
        return _decoded(answer.content) or {"error": f"HTTP {answer.status_code}"}
    # --resolve replaces a DNS entry; the rest is the documented request, unchanged but for a port that was in use.
    # The token is a header from stdin: every local user can read arguments.
    finished = subprocess.run(
        command.replace("curl ", f"curl -sS --resolve karrozzeria:{port}:{host} -H @- ", 1),
        shell=True,
        capture_output=True,
        input=f"Authorization: Bearer {platform.token}\n".encode() if platform.token else b"",
    )
    return _decoded(finished.stdout) or {"error": finished.stderr.decode(errors="replace")}


def _decoded(answer: bytes) -> dict[str, Any]:
    try:
        response: dict[str, Any] = json.loads(answer or b"{}")
    except ValueError:
        response = {"response": answer.decode(errors="replace")}
    return response


def _show(platform: Platform, client: Client, folder: Path, began: float) -> int:
    response = documented_request(platform)
    if "id" not in response:
        console.print(f"[red]No simulation was created:[/] {terminal_text(json.dumps(response))}")
        return 1
    page = f"{platform.url}/simulations/{response['id']}"
    console.print(f"Its page: [bold]{page}[/]\n", soft_wrap=True)
    model = _watch(client, response, "the model")
    dataset = client.get(f"/v1/datasets/{model['dataset']['name']}")
    submitted = client.submit(dataset["yardstick"], dataset["name"], labels={"demo": "yardstick"})
    baseline = _watch(client, submitted.raw, f"the baseline, {dataset['yardstick']}")
    if {model["state"], baseline["state"]} != {"succeeded"}:
        for simulation in (model, baseline):
            console.print(f"{simulation['id']}: {simulation['state']} {terminal_text(simulation.get('reason') or '')}")
        return 1
    comparison = client.simulations.compare(model["id"], baseline["id"])
    summaries = [client.simulations.summary(simulation["id"]) for simulation in (model, baseline)]
    console.print(f"\n[bold]{escape(demo_report.sentence(model, comparison))}[/]\n")
    console.print(demo_report.table(model, summaries[0], summaries[1], comparison))
    worst = [result.raw for result in client.simulations.worst(model["id"])]
    console.print(demo_report.worst_table(worst))
    _save(client, model, worst[0], folder)
    if platform.token:
        console.print(f"Each request needs the header `Authorization: Bearer {platform.token_in_shell}`.")
    console.print(
        f"\nThis took {time.monotonic() - began:.0f} s. `{'make run' if IN_CHECKOUT else 'windtunnel up'}` starts the"
        " platform again, with these results;"
        f" {platform.url}/docs documents its API.\n"
    )
    if platform.server is not None and _on_terminal(os.environ):
        console.print(f"[bold]{page}[/] shows the results in a browser. Ctrl-C stops the platform.", soft_wrap=True)
        with suppress(KeyboardInterrupt):
            platform.server.wait()
    return 0


def _on_terminal(environ: Mapping[str, str]) -> bool:
    """Return whether a person sees the output and can press Ctrl-C; some CI systems give their jobs a terminal."""
    return sys.stdin.isatty() and sys.stdout.isatty() and not environ.get("CI")


def _watch(client: Client, simulation: dict[str, Any], title: str) -> dict[str, Any]:
    """Follow a simulation to its end with a progress bar."""
    columns = (
        TextColumn("{task.description:<34}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, TextColumn("{task.fields[note]}"), console=console) as progress:
        bar = progress.add_task(title, total=simulation["tasks"]["total"], note="")
        for event in client.simulations.events(simulation["id"]):
            if event.type == "progress":
                score = ((event.raw.get("answer") or {}).get("score") or {}).get("mean")  # as the report at the end
                progress.update(bar, completed=event["done"], note="" if score is None else f"score so far {score:.1f}")
            elif event.type == "staging":
                progress.update(bar, note=terminal_text(event_text(event)))
            elif event.type == "state":
                progress.update(bar, note=event["state"])
        ended = client.simulations.get(simulation["id"]).raw
        progress.update(bar, completed=ended["tasks"]["done"], note=ended["state"])
    return ended


def _save(client: Client, model: dict[str, Any], worst: dict[str, Any], folder: Path) -> None:
    """Write the results and the replay of the worst scenario to files."""
    folder.mkdir(parents=True, exist_ok=True)
    results = client.simulations.results(model["id"]).save(folder / f"{model['id']}.ndjson")
    replay = client.simulations.replay(model["id"], worst["task"]).save(folder / f"worst-{worst['task']}.svg")
    address = f"{client.server.url}/v1/simulations/{model['id']}"
    console.print(
        "\nThe worst scenario, its last seconds as an animation (open it in a browser):"
        f" [bold]{escape(str(replay))}[/]\n"
        f"All results: [bold]{escape(str(results))}[/]; as one zip: {address}/archive\n"
        f"In pandas: pandas.read_parquet('{address}/results?format=parquet')",
        soft_wrap=True,
    )
