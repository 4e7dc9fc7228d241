"""Zygote: whatever a scenario's process does with its output, it is ended after its scenario."""

import os
import socket
import subprocess
from typing import Any

import pytest

from runtimes.harness.forking.zygote import ScenarioProcess


def test_a_process_that_reads_its_own_output_is_killed_after_its_scenario(monkeypatch: pytest.MonkeyPatch) -> None:
    output, writing = os.pipe()
    own, evaluator = socket.socketpair()
    taken, splice = [], os.splice

    def late(source: int, *rest: Any, **options: Any) -> int:
        taken.append(os.read(source, 1 << 16))  # as the process may, which has opened the pipe's other end
        return splice(source, *rest, **options)

    with subprocess.Popen(["sh", "-c", "echo printed; exec sleep 60"], stdout=writing) as program:
        os.close(writing)
        process = ScenarioProcess(program.pid, output, own.detach())
        monkeypatch.setattr(os, "splice", late)
        evaluator.close()
        try:
            assert process.wait() is None
        finally:
            program.kill()
    assert taken == [b"printed\n"]
