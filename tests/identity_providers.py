"""A real identity provider for tests: the certified `oidc-provider`, and a person who signs in with its form."""

import json
import os
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from urllib.parse import urljoin, urlsplit

import httpx
import pytest

from tests.cached import TOOLS, tool
from tests.ports import free_ports
from tests.system.platform_process import die_with
from tests.waiting import until

SECRET = "the secret of the client, which is long"
SERVER = Path(__file__).with_name("identity_provider.mjs")
#: Seconds until a started provider must answer on a busy machine.
START_TIMEOUT = 60.0


class TestIdentityProvider:
    """A provider in a process of its own; ``people``: claims by account, which may be changed while it runs."""

    __test__ = False

    def __init__(self, folder: Path, *callbacks: str, groups_in_token: bool = False) -> None:
        self.port = free_ports(1)[0]
        self.issuer = f"http://127.0.0.1:{self.port}"
        self._file = folder / "people.json"
        self._callbacks = callbacks
        self._in_token = groups_in_token
        self._process: subprocess.Popen[bytes] | None = None
        self.people({})

    def people(self, people: Mapping[str, Mapping[str, object]]) -> None:
        """Let the provider know these people, and nobody else."""
        draft = self._file.with_suffix(".draft")
        draft.write_text(json.dumps(people))
        draft.replace(self._file)

    def start(self) -> None:
        """Start it; its keys, grants and sessions are in its memory."""
        arguments = [str(TOOLS / "npm"), "node", str(SERVER), tool("oidc-provider"), str(self.port), SECRET]
        parent = os.getpid()
        self._process = subprocess.Popen(
            [*arguments, *self._callbacks],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=os.environ | {"PEOPLE": str(self._file), "GROUPS_IN_TOKEN": "yes" if self._in_token else "no"},
            preexec_fn=lambda: die_with(parent),
        )
        until(self._answers, START_TIMEOUT)

    def stop(self) -> None:
        """Kill it."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()
            self._process = None

    def configuration(self, name: str = "company", **more: object) -> str:
        """Return the file of providers of a platform that this one signs people in for."""
        one = {"name": name, "issuer": self.issuer, "client_id": "windtunnel", "client_secret": SECRET}
        one["parameters"] = {"prompt": "consent"}  # without, it gives no token for later
        return json.dumps({"providers": [one | more]})

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.issuer}/.well-known/openid-configuration").status_code == 200
        except httpx.HTTPError:
            return False


def sign_in_at(address: str, account: str) -> str:
    """Sign in at a provider as a browser would; return the address that it leads back to, which is not asked for."""
    with httpx.Client() as browser:
        answer = browser.get(address)
        while True:
            if answer.is_redirect:
                target = urljoin(str(answer.url), answer.headers["Location"])
                if urlsplit(target).netloc != urlsplit(address).netloc:
                    return target
                answer = browser.get(target)
            else:
                assert answer.status_code == 200, answer.text
                answer = browser.post(str(answer.url), data={"account": account})


@pytest.fixture(scope="module")
def identity_provider(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TestIdentityProvider]:
    """A provider for applications at `http://localhost`, in a module whose tests name its people."""
    folder = tmp_path_factory.mktemp("provider")
    provider = TestIdentityProvider(folder, "http://localhost/sign-in/callback/company")
    provider.start()
    yield provider
    provider.stop()
