"""The runner API as a process: runners that wait for a launch do not delay its end."""

import http.client
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

from core.notifications.launch_waiters import SLOTS
from tests.ports import free_ports
from tests.waiting import until

ROOT = Path(__file__).parents[2]


def get_status(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Authorization": "Bearer minted before"})
    response = connection.getresponse()
    response.read()
    connection.close()
    return response.status


def is_up(port: int) -> bool:
    try:
        return get_status(port, "/healthz") == 200
    except OSError:
        return False


def test_waiting_runners_get_429_when_their_api_process_ends(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = {"HOME": str(tmp_path), "RUNNER_API_PORT": str(port), "REDIS_URL": "redis://127.0.0.1:1/0"}
    environment = dict(os.environ) | {f"WINDTUNNEL_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "server"]
    subprocess.run([*command, "migrate"], env=environment, cwd=ROOT, check=True, timeout=120, capture_output=True)
    server = subprocess.Popen([*command, "runner-api"], env=environment, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        until(lambda: is_up(port) or server.poll() is not None, message="the runner API does not answer")
        assert server.poll() is None, "the runner API has ended"
        statuses: list[int] = []
        threads = [
            threading.Thread(target=lambda: statuses.append(get_status(port, "/v1/launches/warm0/wait")), daemon=True)
            for _ in range(SLOTS + 1)
        ]
        for thread in threads:
            thread.start()
        until(lambda: statuses, message="no request is refused, although there are more requests than slots")
        assert statuses == [429], "all other requests wait: every slot is in use"
        server.send_signal(signal.SIGTERM)
        assert server.wait(60.0) == 0
        for thread in threads:
            thread.join(60.0)
        assert statuses == [429] * (SLOTS + 1), "each runner then waits at another process"
    finally:
        server.kill()
        server.wait()
