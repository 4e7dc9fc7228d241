"""Slow starts: 25 simulations of about a second, alone and beside others that take a minute to start.

Of the slow ones, two wait for a package index that answers after SLOW seconds, and two load a model for SLOW seconds.
"""

import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from benchmarks.platform_client import FINAL, PlatformClient
from benchmarks.platform_process import running_platform
from benchmarks.results import number, table

#: Seconds of a slow start, small simulations, seconds that each of them takes, and workers of the platform.
SLOW, SMALL, SECONDS, WORKERS = 60.0, 25, 1.0, 2
MODEL = "class Model:\n    def act(self, observation):\n        return observation[:4]\n"
#: A task of `noop` has one step; ten of them take SECONDS.
SMALL_MODEL = "import time\n" + MODEL.replace("        return", f"        time.sleep({SECONDS / 10})\n        return")
SLOW_MODELS: Mapping[str, str] = {
    "packages": f'# /// script\n# dependencies = ["slow-package"]\n# ///\n{MODEL}',
    "load": f"import time\n\ntime.sleep({SLOW})\n{MODEL}",
}
HEAD = f"""{SMALL} simulations of {SECONDS:.0f} s with one worker each, on {WORKERS} workers: seconds from their
submission to the end of the first, the median and the last. *Beside*: two simulations were submitted before whose
package index answers after {SLOW:.0f} s, or whose model takes {SLOW:.0f} s to load."""
COLUMNS = ("", "first", "median", "last")


class _SlowIndex(BaseHTTPRequestHandler):
    """A package index that knows no package, and says so late."""

    def do_GET(self) -> None:
        time.sleep(SLOW)
        self.send_error(404)

    def log_message(self, format: str, *arguments: Any) -> None:
        """Write nothing."""


@contextmanager
def _slow_index() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), _SlowIndex) as server:
        server.daemon_threads = True
        server.block_on_close = False
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


def _submit(client: PlatformClient, model: str) -> str:
    document = {"dataset": "noop", "runtime": "python", "model": model, "workers": 1, "scenarios": {"range": [0, 10]}}
    return str(client.submit(document)["id"])


def _put(client: PlatformClient, name: str, source: str) -> None:
    binary = {"Content-Type": "application/octet-stream"}
    client.open("PUT", f"/v1/models/{name}?filename=model.py", source.encode(), binary).read()


def _ends(client: PlatformClient) -> list[float]:
    """Submit the small simulations; return the seconds to the end of each, sorted."""
    began = time.monotonic()
    waiting = {_submit(client, "small") for _ in range(SMALL)}
    ends: list[float] = []
    while waiting:
        for id in sorted(waiting):
            if (simulation := client.get(f"/v1/simulations/{id}"))["state"] in FINAL:
                assert simulation["state"] == "succeeded", simulation["reason"]
                ends.append(time.monotonic() - began)
                waiting.discard(id)
        time.sleep(0.05)
    return sorted(ends)


def measure() -> dict[str, Any]:
    """Measure each kind of slow start, and the small simulations alone in the same run."""
    with (
        _slow_index() as index,
        running_platform(workers=str(WORKERS), package_indexes=f"{index}/simple", package_hosts=index) as platform,
    ):
        client = platform.connect()
        _put(client, "small", SMALL_MODEL)
        _ends(client)  # the first ones start what is kept warm
        figures: dict[str, Any] = {"alone": _quantiles(_ends(client))}
        for kind, source in SLOW_MODELS.items():
            slow = []
            for number_ in range(2):
                _put(client, f"{kind}-{number_}", f"{source}# {number_}\n")
                slow.append(_submit(client, f"{kind}-{number_}"))
            figures[kind] = _quantiles(_ends(client))
            states = [client.get(f"/v1/simulations/{id}")["state"] for id in slow]
            figures[kind]["slow"] = states
            for id in slow:
                client.open("POST", f"/v1/simulations/{id}/cancel").read()
                client.until_final(id)
        client.close()
    return figures


def _quantiles(ends: list[float]) -> dict[str, Any]:
    return {"first": ends[0], "median": ends[len(ends) // 2], "last": ends[-1]}


def section(figures: dict[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    titles = {"alone": "alone", "packages": "beside two whose packages are slow", "load": "beside two that load"}
    rows = [
        (title, *(number(figures[name][part]) for part in ("first", "median", "last")))
        for name, title in titles.items()
    ]
    return f"{HEAD}\n\n{table(COLUMNS, rows)}\n"
