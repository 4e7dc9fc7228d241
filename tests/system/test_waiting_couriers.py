"""The couriers' surface as a process: whoever waits for a launch there does not hold up its end."""

import http.client
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from tests.ports import free_ports

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
    settings = {"HOME": str(tmp_path), "DRIVERS_PORT": str(port), "REDIS_URL": "redis://127.0.0.1:1/0"}
    environ = dict(os.environ) | {f"WINDTUNNEL_{name}": value for name, value in settings.items()}
    command = [sys.executable, "-m", "workers"]
    subprocess.run([*command, "migrate"], env=environ, cwd=ROOT, check=True, timeout=120, capture_output=True)
    serving = subprocess.Popen([*command, "drivers"], env=environ, cwd=ROOT, stderr=subprocess.DEVNULL)
    try:
        deadline = time.monotonic() + 60.0
        while not up(port):
            assert time.monotonic() < deadline and serving.poll() is None, "it does not answer"
            time.sleep(0.05)
        told: list[int] = []
        waiting = threading.Thread(target=lambda: told.append(ask(port, "/v1/launches/warm0/wait")), daemon=True)
        waiting.start()
        time.sleep(2.0)  # nobody outside can see that it waits
        assert not told
        serving.send_signal(signal.SIGTERM)
        assert serving.wait(60.0) == 0
        waiting.join(60.0)
        assert told == [429], "it asks another one, which waits for it in turn"
    finally:
        serving.kill()
        serving.wait()
