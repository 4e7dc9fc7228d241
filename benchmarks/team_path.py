"""Path to a team: commands from nothing to a project of three with limits each, beside what other systems document."""

import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.gestures import Step, command, in_words, total
from benchmarks.platform_client import PlatformClient, UnexpectedResponse
from benchmarks.platform_process import PlatformProcess, running_platform
from benchmarks.results import table

PEOPLE = ("ada", "bob", "eve")
#: Simulations that each of them may have in the queue.
PLACES = 2
#: Day on which the documents of the other systems were read.
READ = "2026-11-30"
_OSMO = "https://github.com/NVIDIA/OSMO/blob"
_WEBUI = "https://github.com/lablup/backend.ai-webui/blob/02e1928e/packages/backend.ai-webui-docs/src/en/admin_menu"


@dataclass(frozen=True, slots=True)
class DocumentedTeam:
    """How a system's documents make a team: steps in words with the least of commands and clicks, and the limits."""

    system: str
    addresses: Sequence[str]
    start: str
    people: str
    limits: str


DOCUMENTED = (
    DocumentedTeam(
        "OSMO",
        (
            f"{_OSMO}/061e178c/docs/deployment_guide/appendix/deploy_minimal.rst",
            f"{_OSMO}/15a9259f/docs/deployment_guide/advanced_config/pool.rst",
            f"{_OSMO}/5a1e492a/docs/deployment_guide/appendix/authentication/managing_users.rst",
        ),
        "a Kubernetes with PostgreSQL, Redis and a storage; 22 commands and 4 files of values for the minimal"
        " deployment, which has no authentication; that comes with Envoy and a default admin or an identity provider",
        "a pool and a role in a file of values, 1 command; 3 of `osmo user create ... --roles`, 3 of `osmo token set"
        " ... --user`, and each signs in with the token, 3 commands: 10",
        "of a pool, by the scheduler; of a person: not documented",
    ),
    DocumentedTeam(
        "Backend.AI",
        (f"{_WEBUI}/admin_menu.md",),
        "an installed cluster",
        "on the page: Admin Settings, Users, and for each of three *Create User*, four fields, two choices and *OK*:"
        " 20 clicks and the texts; a project in a form of its own before; the password is told by the administrator",
        "of a person: a resource policy in a form, then *Credentials*, and for each *Edit*, the policy and *Save*:"
        " 13 clicks and the texts",
    ),
)


class Prompt:
    """A person's prompt, with a configuration of his own; it keeps the commands that were typed.

    ``told``: texts of this machine, and what a person has in their place.
    """

    def __init__(self, folder: Path, told: Mapping[str, str]) -> None:
        folder.mkdir()
        self._told = told
        self._folder = folder
        self._environ = {name: text for name, text in os.environ.items() if not name.startswith("WINDTUNNEL_")} | {
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "HOME": str(folder),
            "WINDTUNNEL_CONFIG": str(folder / "contexts.json"),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
        }
        self.steps: list[Step] = []

    def types(self, line: str, pasted: str = "") -> str:
        """Run a command line, which must succeed; return what it prints."""
        shown = line
        for here, usual in self._told.items():
            shown = shown.replace(here, usual)
        self.steps.append(command(shown))
        done = subprocess.run(
            ["bash", "-c", line], env=self._environ, cwd=self._folder, input=pasted, capture_output=True, text=True
        )
        if done.returncode:
            raise RuntimeError(f"{line}: {done.stderr}")
        return done.stdout + done.stderr


def make_team(platform: PlatformProcess, folder: Path) -> tuple[list[Step], list[Step]]:
    """Make the team as docs/accounts.md says; return the steps of the operator, and of one of the three."""
    url = f"http://localhost:{platform.port}"
    told = {url: "http://localhost:5000", str(platform.home): "var"}
    operator = Prompt(folder / "operator", told)
    operator.steps.append(command("uvx windtunnel up --multi-user"))  # the platform is the benchmark's
    operator.types(f"windtunnel login {url} < {platform.home / 'operator-token'}")
    operator.types("windtunnel projects create team")
    invitations = {}
    for name in PEOPLE:
        printed = operator.types(f"windtunnel users invite {name} --role submitter --project team")
        invitation = re.search(r"#(\S+)", printed)
        assert invitation, printed
        invitations[name] = invitation[1]
    for name in PEOPLE:
        operator.types(f"windtunnel quotas set queued_simulations={PLACES} --user {name} --project team")
    members = {name: Prompt(folder / name, told) for name in PEOPLE}
    for name, member in members.items():
        member.types(f"windtunnel login {url} --user {name}", pasted=f"{invitations[name]}\n")
        _within_limits(platform, member)
    return operator.steps, members[PEOPLE[0]].steps


def _within_limits(platform: PlatformProcess, member: Prompt) -> None:
    """Check that a member submits what the limit permits, and no more."""
    made = member.types("windtunnel tokens create check --personal -o name")
    member.steps.pop()
    client = PlatformClient(platform.port, token=made.split()[0])
    held = {"dataset": "car_street", "model": "idm", "repeat": 100}
    for _ in range(PLACES):
        client.submit(held)
    try:
        client.submit(held)
    except UnexpectedResponse as refused:
        assert "queued_simulations" in str(refused), refused
    else:
        raise AssertionError("a member submitted more than the limit")
    client.connection.close()


def measure() -> dict[str, Any]:
    """Make the team on a platform of its own."""
    with running_platform(multi_user="yes") as platform:
        folder = platform.home / "people"
        folder.mkdir()
        operator, member = make_team(platform, folder)
    return {
        name: {"commands": len(steps), "keys": total(steps)[1], "words": in_words(steps)}
        for name, steps in (("operator", operator), ("member", member))
    }


def section(figures: Mapping[str, Any]) -> str:
    """Return the section of RESULTS.md."""
    operator, member = figures["operator"], figures["member"]
    rows = [
        [
            "**Windtunnel**, measured",
            "1 command",
            f"{operator['commands'] - 1 - len(PEOPLE)} commands, and 1 of each of three:"
            f" {operator['commands'] - 1 - len(PEOPLE) + len(PEOPLE) * member['commands']}",
            f"{len(PEOPLE)} commands",
        ]
    ]
    for team in DOCUMENTED:
        documents = ", ".join(f"[{number}]({address})" for number, address in enumerate(team.addresses, 1))
        rows.append([f"{team.system}, documented ({documents})", team.start, team.people, team.limits])
    return "\n\n".join(
        [
            "From nothing to a project of three people who have signed in, each with a limit of his own. The commands"
            " are typed on a platform with accounts; each member then submits as much as the limit permits, and the"
            f" next is refused. The other systems' rows are read from their documents on {READ}, and lower bounds.",
            table(
                ["system", "a platform", "three people in a project, signed in", "a limit for each"], rows, words=True
            ),
            f"The operator: {operator['words']}. A member: {member['words']}, and the invitation, pasted."
            f" {operator['keys'] + len(PEOPLE) * member['keys']} keys in all.",
        ]
    )
