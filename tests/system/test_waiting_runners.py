"""The runners' surface as a process: whoever waits for a launch there does not hold up its end."""

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


def ask(port: int, path: str) -> int:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.request("GET", path, headers={"Authorization": "Bearer minted before"})
    answer = connection.getresponse()
    answer.read()
    connection.close()
    return answer.status


def up(port: int) -> bool:
    try:
        return ask(port, "/healthz") == 200
    except OSError:
        return False


def test_those_that_wait_are_sent_away_when_their_process_ends(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    settings = {"HOME": str(tmp_path), "RUNNER_API_PORT": str(port), "REDIS_URL": "redis://127.0.0.1:1/0"}
    environ = dict(os.environ) | {f"WINDTUNNEL_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "server"]
    subprocess.run([*command, "migrate"], env=environ, cwd=ROOT, check=True, timeout=120, capture_output=True)
    serving = subprocess.Popen([*command, "runner-api"], env=environ, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        until(lambda: up(port) or serving.poll() is not None, message="it does not answer")
        assert serving.poll() is None, "it has ended"
        told: list[int] = []
        waiting = [
            threading.Thread(target=lambda: told.append(ask(port, "/v1/launches/warm0/wait")), daemon=True)
            for _ in range(SLOTS + 1)
        ]
        for thread in waiting:
            thread.start()
        until(lambda: told, message="more wait at once than there are slots")
        assert told == [429], "all but this request wait: every slot is taken"
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(60.0) == 0
        for thread in waiting:
            thread.join(60.0)
        assert told == [429] * (SLOTS + 1), "each asks another process, which waits for it in turn"
    finally:
        serving.kill()
        serving.wait()
