"""Cache service against nginx: the same files, one worker each, in turn.

Only the cache service also checks tokens and buckets, reads the object's row, records its use, sends ETags and counts
requests.
"""

import http.client
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from benchmarks.figures import spread
from benchmarks.processes import processor_seconds, tree
from benchmarks.results import aim, number, spanned, table

SIZES = {"4 KiB": 4 << 10, "64 KiB": 64 << 10, "1 MiB": 1 << 20}
CONNECTIONS = (16, 64)
#: Share of nginx's rate that a prototype reached.
AIMS = {"4 KiB": 0.7, "64 KiB": 1.0, "1 MiB": 1.0}
FILES, ROUNDS, SECONDS = 64, 5, 3
#: Twice as many objects as the cache service keeps open, read in sequence: its worst case.
MANY = 8192
#: Cases: size of objects, number of objects, connections.
CASES = [(size, FILES, connections) for size in SIZES for connections in CONNECTIONS] + [("4 KiB", MANY, 16)]
TOKEN = "of-this-benchmark"
NGINX = """
worker_processes 1; daemon off; pid {folder}/pid; error_log {folder}/error.log;
events {{ worker_connections 1024; }}
http {{
  access_log off; sendfile on; tcp_nopush on; tcp_nodelay on; keepalive_requests 100000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port}; root {folder}/files; default_type application/octet-stream; }}
}}
"""
WRK = """
local turn = 0
request = function()
  turn = (turn + 1) % {files}
  return wrk.format("GET", "{prefix}/" .. turn)
end
"""


def free_port() -> int:
    """Return a free port."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
    return port


@contextmanager
def process(command: list[str], port: int) -> Iterator[int]:
    """Run a server while the block runs; yield its process once it listens."""
    with tempfile.TemporaryFile() as output:
        server = subprocess.Popen(command, stdout=output, stderr=output)
        try:
            deadline = time.monotonic() + 30
            while True:
                try:
                    socket.create_connection(("127.0.0.1", port), timeout=1).close()
                    break
                except OSError:
                    if server.poll() is not None or time.monotonic() > deadline:
                        output.seek(0)
                        raise RuntimeError(f"{command[0]} does not start: {output.read()[-2000:]!r}") from None
                    time.sleep(0.05)
            yield server.pid
        finally:
            server.send_signal(signal.SIGTERM)
            server.wait(30)


@contextmanager
def served(folder: Path) -> Iterator[dict[str, tuple[str, int]]]:
    """Run both servers with the same objects; yield the URL prefix and the process of each."""
    files = folder / "files"
    buckets = [{"Name": "private", "BucketQuota": "10Gi", "AllowNamespaces": ["bench"]}]
    tokens = {"Kind": "static", "Tokens": [{"Token": TOKEN, "Namespace": "bench"}]}
    scs_port, nginx_port = free_port(), free_port()
    (folder / "scs.json").write_text(json.dumps({"Bucket": buckets, "Reviewer": tokens}))
    (folder / "nginx.conf").write_text(NGINX.format(folder=folder, port=nginx_port))
    command = [sys.executable, "-m", "datasets.scs", "--config", str(folder / "scs.json")]
    command += ["--port", str(scs_port), "--directory", str(folder / "scs")]
    nginx = shutil.which("nginx") or "/usr/sbin/nginx"
    with (
        process(command, scs_port) as scs_process,
        process([nginx, "-c", str(folder / "nginx.conf")], nginx_port) as nginx_process,
    ):
        for name, size in SIZES.items():
            (files / str(size)).mkdir(parents=True)
            connection = http.client.HTTPConnection("127.0.0.1", scs_port)
            for number_ in range(max(count for case_size, count, _ in CASES if case_size == name)):
                content = os.urandom(size)
                (files / str(size) / str(number_)).write_bytes(content)
                path = f"/v1/objects/private/{size}/{number_}"
                connection.request("PUT", path, content, {"Authorization": f"Bearer {TOKEN}"})
                if (response := connection.getresponse()).status != 201:
                    raise RuntimeError(response.read())
                response.read()
            connection.close()
        files.chmod(0o755)
        folder.chmod(0o755)  # nginx serves as another user
        yield {
            "scs": (f"http://127.0.0.1:{scs_port}/v1/objects/private", scs_process),
            "nginx": (f"http://127.0.0.1:{nginx_port}", nginx_process),
        }


def wrk(prefix: str, size: int, files: int, connections: int, seconds: int, folder: Path) -> float:
    """Return requests per second; any response except a complete 200 is an error."""
    host, _, path = prefix.removeprefix("http://").partition("/")
    script = folder / "wrk.lua"
    script.write_text(WRK.format(files=files, prefix=f"/{path}/{size}" if path else f"/{size}"))
    command = ["wrk", "-t1", f"-c{connections}", f"-d{seconds}s", "-s", str(script)]
    command += ["-H", f"Authorization: Bearer {TOKEN}", f"http://{host}/"]
    output = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    rate = re.search(r"Requests/sec:\s+([\d.]+)", output)
    if rate is None or "Non-2xx" in output or "Socket errors" in output:
        raise RuntimeError(output)
    return float(rate[1])


def measure(rounds: int = ROUNDS, seconds: int = SECONDS) -> dict[str, Any]:
    """Measure each case on both servers in turn, in ``rounds`` rounds."""
    if missing := [name for name in ("wrk", "nginx") if not shutil.which(name, path=f"{os.defpath}:/usr/sbin")]:
        raise RuntimeError(f"missing: {', '.join(missing)}; apt-get install wrk nginx-light")
    figures: dict[str, Any] = {"seconds": seconds, "files": FILES, "rates": {}}
    with tempfile.TemporaryDirectory() as folder, served(Path(folder)) as prefixes:
        for name, files, connections in CASES:
            arguments = (SIZES[name], files, connections)
            rates: dict[str, list[float]] = {server: [] for server in prefixes}
            costs: dict[str, list[float]] = {server: [] for server in prefixes}
            for prefix, _ in prefixes.values():
                wrk(prefix, *arguments, 1, Path(folder))
            for _ in range(rounds):
                for server, (prefix, pid) in prefixes.items():
                    before = sum(map(processor_seconds, tree(pid)))
                    rate = wrk(prefix, *arguments, seconds, Path(folder))
                    rates[server].append(rate)
                    costs[server].append((sum(map(processor_seconds, tree(pid))) - before) / (rate * seconds) * 1e6)
            ratios = [scs / nginx for scs, nginx in zip(rates["scs"], rates["nginx"], strict=True)]
            row: dict[str, Any] = {server: spread(values) for server, values in rates.items()}
            row |= {"ratio": spread(ratios), "cpu": {server: spread(values) for server, values in costs.items()}}
            label = f"{name}, {connections} connections" + (f", {files:,} objects" if files != FILES else "")
            figures["rates"][label] = {"size": name, "hot": files == FILES, **row}
            print(f"{label}: {row}", flush=True)
    return figures


def section(figures: dict[str, Any]) -> str:
    """Return the section."""
    rows = [
        [
            name,
            *(spanned(row[server]) for server in ("scs", "nginx", "ratio")),
            *(spanned(row["cpu"][server]) for server in ("scs", "nginx")),
        ]
        for name, row in figures["rates"].items()
    ]
    goals_met = all(row["ratio"]["median"] >= AIMS[row["size"]] for row in figures["rates"].values() if row["hot"])
    goals = " / ".join(number(share) for share in AIMS.values())
    return "\n\n".join(
        [
            f"`wrk -t1`, {figures['files']} objects of each size, {figures['seconds']} s per run, one worker each, "
            "alternating. The cache service checks the token, the bucket's rule and the object's row, records the "
            "use, sends an ETag and counts the request; nginx sends files. The cache service keeps the files of "
            f"recently used objects open (nginx could be configured to), half of them with {MANY:,} objects.",
            table(["GET, requests/s", "cache service", "nginx", "ratio", "its CPU, us/request", "nginx's"], rows),
            "Processor time per request depends less on the load of the machine than the rate does.",
            aim(f"{goals} of nginx at {', '.join(AIMS)}", goals_met),
        ]
    )
