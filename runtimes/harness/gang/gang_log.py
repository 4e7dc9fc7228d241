"""Gang log: what a gang prints, sent to the runner API now and then, and always before results are reported.

The log of a simulation that has ended has all that its programs printed.
"""

import contextlib
import threading

from ..runner.captured_output import CapturedOutput
from ..runner.runner import LAST_REQUEST, LOG_INTERVAL, deliver
from ..runner.runner_api_client import Credentials, LaunchOver, RequestRejected, RunnerApiClient, Unreachable


class GangLog:
    """Sends what is captured of a launch, over an outage of the runner API too; only the end is not waited for."""

    def __init__(self, outputs: CapturedOutput, credentials: Credentials) -> None:
        self._outputs = outputs
        self._client = RunnerApiClient(credentials, threading.Event())
        self._last = RunnerApiClient(credentials, threading.Event(), patience=0.0, time_out=LAST_REQUEST)
        self._sending = threading.Lock()  # nothing is reported while what was printed before is on its way
        self._over = threading.Event()

    def begin(self) -> None:
        """Send it from now on, from another thread."""
        threading.Thread(target=self._keep_sending, name="log", daemon=True).start()

    def send(self) -> None:
        """Send what was printed so far."""
        with self._sending, contextlib.suppress(Unreachable, RequestRejected):
            try:
                deliver(self._outputs, self._client)
            except LaunchOver:
                self._over.set()

    def finish(self) -> None:
        """Send the rest, if that is quick."""
        with contextlib.suppress(LaunchOver, Unreachable, RequestRejected):
            deliver(self._outputs, self._last)

    def _keep_sending(self) -> None:
        while not self._over.wait(LOG_INTERVAL):
            self.send()
