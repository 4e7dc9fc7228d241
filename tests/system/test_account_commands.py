"""Accounts from the command line: a team, signing in and out, tokens, and mistakes with their next steps."""

import json
import os
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.foreign_servers import answer, serving
from tests.ports import free_ports
from tests.pseudo_terminals import RETURN, PseudoTerminal
from tests.system.platform_process import PlatformProcess
from tests.waiting import until
from windtunnel import Client, contexts

BIN = str(Path(sys.executable).parent)
#: Seconds within which a change of members is seen, and a revoked token refused.
SEEN = 3.0


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    platform = PlatformProcess(tmp_path_factory.mktemp("accounts"), settings={"MULTI_USER": "yes"})
    yield platform.start()
    platform.stop()


class Person:
    """A user of the command line, with a configuration of his own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir(exist_ok=True)
        self.environ = {key: value for key, value in os.environ.items() if not key.startswith("WINDTUNNEL_")} | {
            "PATH": f"{BIN}:{os.environ['PATH']}",
            "HOME": str(folder),
            "XDG_STATE_HOME": str(folder / "state"),
            "WINDTUNNEL_CONFIG": str(self.config),
            "PYTHON_KEYRING_BACKEND": "keyring.backends.fail.Keyring",
            "TERM": "xterm-256color",
        }

    @property
    def config(self) -> Path:
        return self.folder / "contexts.json"

    def run(self, *arguments: str, stdin: str = "", **variables: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            ["windtunnel", *arguments],
            env=self.environ | variables,
            cwd=self.folder,
            input=stdin,
            capture_output=True,
            text=True,
            timeout=120,
        )

    def does(self, words: str, stdin: str = "", **variables: str) -> str:
        """Run a command that succeeds, and return what it prints."""
        process = self.run(*words.split(), stdin=stdin, **variables)
        assert process.returncode == 0, process.stderr
        return process.stdout

    def fails(self, words: str, stdin: str = "", **variables: str) -> str:
        """Run a command that cannot be done, and return what it says."""
        process = self.run(*words.split(), stdin=stdin, **variables)
        assert process.returncode == 2 and process.stdout == "", process.stdout
        assert "Traceback" not in process.stderr
        return process.stderr


NewPerson = Callable[..., Person]


@pytest.fixture(scope="module")
def operator(platform: PlatformProcess, tmp_path_factory: pytest.TempPathFactory) -> Person:
    """The first operator, who has signed in with the token of the home folder, and has made the project `red`."""
    person = Person(tmp_path_factory.mktemp("operator"))
    token = (platform.home / "operator-token").read_text()
    signed_in = person.run("login", platform.url, stdin=token)
    assert signed_in.returncode == 0 and token.strip() not in signed_in.stdout + signed_in.stderr
    person.does("projects create red")
    return person


@pytest.fixture(scope="module")
def new_person(platform: PlatformProcess, operator: Person, tmp_path_factory: pytest.TempPathFactory) -> NewPerson:
    """A function that invites a user, gives him roles, and signs him in."""

    def new(name: str, **roles: str) -> Person:
        invitation = operator.does(f"users invite {name} -o name")
        for project, role in roles.items():
            operator.does(f"members set {name} {role} --project {project}")
        person = Person(tmp_path_factory.mktemp(name))
        person.does(f"login {platform.url} --user {name} --context lab", stdin=invitation)
        return person

    return new


@pytest.fixture(scope="module")
def maintainer(new_person: NewPerson) -> Person:
    return new_person("mia", red="maintainer")


def test_a_team_is_made_with_three_commands_and_its_member_signs_in_on_a_terminal(
    platform: PlatformProcess, operator: Person, tmp_path: Path
) -> None:
    operator.does("projects create team-a")
    invited = operator.run("users", "invite", "ada", "--role", "maintainer", "--project", "team-a")
    assert f"windtunnel login {platform.url} --user ada" in invited.stderr
    [line] = [line for line in invited.stdout.splitlines() if line.startswith("invitation:")]
    assert "ada is maintainer of team-a" in invited.stderr
    ada, invitation = Person(tmp_path / "ada"), line.split()[1]
    with PseudoTerminal(["windtunnel", "login", platform.url, "--user", "ada"], ada.environ) as terminal:
        terminal.wait_for("Invitation:")
        terminal.press(invitation + RETURN)
        assert terminal.wait() == 0, terminal.shown
        assert "You are ada." in terminal.shown and "which only you can read" in terminal.shown
    stored = contexts.load(ada.config).contexts["127.0.0.1"].token
    assert stored and stat.S_IMODE(ada.config.stat().st_mode) == 0o600
    assert invitation not in terminal.shown and stored not in terminal.shown
    who = json.loads(ada.does("whoami -o json"))
    assert (who["user"], who["project"], who["context"]) == ("ada", "team-a", "127.0.0.1")
    assert "team-a (maintainer)" in ada.does("whoami") and stored not in ada.does("whoami -o yaml")
    assert ada.does("members -o name") == "ada\n"


@pytest.mark.parametrize(
    ("words", "name"),
    [("projects list", "name"), ("users list", "name"), ("members list --project red", "user"),
     ("tokens list --project red", "id"), ("tokens list --personal", "id"), ("whoami", "user")],
)  # fmt: skip
def test_accounts_are_printed_in_every_format(operator: Person, maintainer: Person, words: str, name: str) -> None:
    maintainer.does("tokens create shown --role viewer")
    printed = {format: operator.does(f"{words} -o {format}") for format in ("table", "json", "yaml", "name")}
    document = json.loads(printed["json"])
    assert yaml.safe_load(printed["yaml"]) == document
    documents = document if isinstance(document, list) else [document]
    assert printed["name"].split("\n") == [*(str(item[name]) for item in documents), ""]
    assert all(str(item[name]) in printed["table"] for item in documents)
    assert "wt_" not in "".join(printed.values())


def test_a_token_of_a_service_account_works_with_its_limits_until_it_is_revoked(
    maintainer: Person, platform: PlatformProcess, tmp_path: Path
) -> None:
    assert maintainer.does("services create nightly submitter -o name") == "red/nightly\n"
    words = "tokens create gate --role submitter --verb read --verb upload --expires 90d --service nightly"
    created = maintainer.run(*words.split(), "-o", "json")
    made = json.loads(created.stdout)
    assert (made["user"], made["verbs"], made["project"]) == ("red/nightly", ["read", "upload"], "red")
    ci, environ = Person(tmp_path / "ci"), {"WINDTUNNEL_URL": platform.url, "WINDTUNNEL_TOKEN": made["token"]}
    who = json.loads(ci.does("whoami -o json", **environ))
    assert (who["user"], who["verbs"]) == ("red/nightly", ["read", "upload"])
    assert who["token"] == {"id": made["id"], "project": "red"}
    assert f"that of WINDTUNNEL_TOKEN ({made['id']})" in ci.does("whoami", **environ)
    assert "You may not submit here" in ci.fails("run zero noop", **environ)
    maintainer.does(f"tokens revoke {made['id']}")
    until(lambda: ci.run("models", **environ).returncode == 2, timeout=SEEN)
    assert "`windtunnel login`" in ci.fails("models", **environ)


def test_the_text_of_a_new_token_alone_is_signed_in_with(
    maintainer: Person, platform: PlatformProcess, tmp_path: Path
) -> None:
    text = maintainer.does("tokens create laptop --personal -o name")
    laptop = Person(tmp_path / "laptop")
    said = laptop.does(f"login {platform.url}", stdin=text)
    assert "You are mia." in said and text.strip() not in said
    assert laptop.does("members -o name") == maintainer.does("members -o name")


def test_the_project_is_that_of_the_option_the_variable_or_the_context(
    platform: PlatformProcess, operator: Person, new_person: NewPerson
) -> None:
    for project in ("one", "two", "three"):
        operator.does(f"projects create {project}")
    person = new_person("bob", one="viewer", two="viewer", three="viewer")
    for words in ("members", "models"):
        needed = person.fails(words)
        assert "--project" in needed and "WINDTUNNEL_PROJECT" in needed
    assert "one, three, two" in person.fails("members")
    assert "one, three, two" in person.run("context", "use", "lab").stderr + person.fails("tokens")

    def acts_in(words: str, **variables: str) -> Any:
        return json.loads(person.does(f"{words} -o json", **variables))["project"]

    person.does("context use lab --project one")
    assert acts_in("whoami") == "one"
    assert acts_in("whoami", WINDTUNNEL_PROJECT="two") == "two"
    assert acts_in("whoami --project three", WINDTUNNEL_PROJECT="two") == "three"
    assert acts_in("--project three whoami", WINDTUNNEL_PROJECT="two") == "three"
    assert "`windtunnel whoami` lists yours" in person.fails("models --project red")
    token = contexts.load(person.config).contexts["lab"].token or ""
    assert "Commands act in the project two" in person.run("login", "--project", "two", stdin=token).stderr
    assert acts_in("whoami") == "two"
    refused = person.run("login", "--project", "red", stdin=token)
    assert refused.returncode == 2 and "You are signed in, but not in the project red" in refused.stderr
    assert acts_in("whoami") == "two"  # as before
    with Client(platform.url, token=token, project="one") as client:
        assert client.whoami().project == "one"


def test_who_signs_out_has_no_token_any_more_on_either_side(platform: PlatformProcess, new_person: NewPerson) -> None:
    person = new_person("cleo", red="viewer")
    token = contexts.load(person.config).contexts["lab"].token
    person.does("tokens create other --personal")
    assert person.does("logout") == "lab is signed out: its token is revoked and forgotten.\n"
    assert token not in person.config.read_text()
    headers = {"Authorization": f"Bearer {token}"}
    until(lambda: platform.http.get("/v1/session", headers=headers).status_code == 401, timeout=SEEN)
    assert person.does("logout") == "lab has no token.\n"
    assert "`windtunnel login`" in person.fails("models")


def test_a_token_is_revoked_with_any_role_unless_others_use_it_too(
    maintainer: Person, platform: PlatformProcess, tmp_path: Path
) -> None:
    person = Person(tmp_path / "person")
    for role, words, text, revoked in (
        ("maintainer", "logout", "its token is revoked and forgotten", True),
        ("viewer", "logout --no-revoke", "its token is forgotten", False),
        ("viewer", "logout", "its token is revoked and forgotten", True),
    ):
        token = maintainer.does(f"tokens create shared --role {role} -o name")
        person.does(f"login {platform.url}", stdin=token)
        ended = person.run(*words.split())
        assert ended.returncode == 0 and text in ended.stdout + ended.stderr
        assert token.strip() not in person.config.read_text()
        headers = {"Authorization": f"Bearer {token.strip()}"}
        status = 401 if revoked else 200
        until(lambda: platform.http.get("/v1/session", headers=headers).status_code == status, timeout=SEEN)  # noqa: B023


def test_limits_are_set_and_shown_with_their_use(operator: Person, maintainer: Person) -> None:
    operator.does("quotas set queued_simulations=5 stored_bytes=2G tasks=1M --project red")
    operator.does("quotas set tasks=none --project red")
    shown = {use["quota"]: use for use in json.loads(maintainer.does("quotas -o json"))}
    assert {name: use["limit"] for name, use in shown.items()} == {
        "queued_simulations": 5, "tasks": None, "stored_bytes": 2_000_000_000, "running_workers": None
    }  # fmt: skip
    assert "2,000,000,000" in maintainer.does("quotas")
    assert maintainer.does("quotas -o name").split() == list(shown)
    maintainer.does("services create sweeper submitter")
    maintainer.does("quotas set running_workers=1 --user sweeper")
    assert json.loads(maintainer.does("quotas --user sweeper -o json"))[3]["own"] == 1
    operator.does("quotas set resources.cpu=64 resources.nvidia.com/gpu=8 resources.memory=256G --project red")
    operator.does("quotas set resources.memory=none --project red")
    shown = {use["quota"]: use["limit"] for use in json.loads(maintainer.does("quotas -o json"))}
    assert (shown["resources.cpu"], shown["resources.nvidia.com/gpu"]) == (64, 8) and shown["tasks"] is None
    assert "resources.memory" not in shown
    operator.does("quotas set resources.cpu=none resources.nvidia.com/gpu=none --project red")
    operator.does("quotas set queued_simulations=900 --every-project")
    assert json.loads(maintainer.does("quotas -o json"))[0]["limit"] == 5
    operator.does("quotas set queued_simulations=none --every-project")
    (maintainer.folder / "counted.py").write_text(
        "class Model:\n    def act(self, observation):\n        return [0.0] * 4\n"
    )
    maintainer.does("models upload counted.py --name counted")
    operator.does("quotas set stored_bytes=1 --project red")
    nearest = json.loads(operator.does("quotas fullest -o json"))
    assert [(each["project"], each["quota"], each["limit"]) for each in nearest] == [("red", "stored_bytes", 1)]
    assert (
        "red" in operator.does("quotas fullest") and operator.does("quotas fullest --percent 10000 -o name") == "red\n"
    )
    operator.does("quotas set stored_bytes=2G --project red")
    assert "may not" in maintainer.fails("quotas fullest")
    assert "workers" in operator.fails("quotas set workers=5 --project red")


@pytest.mark.parametrize(
    ("words", "text"),
    [("tasks=many", "is not a limit"), ("tasks=5 --user nobody", "no member"),
     ("tasks=5 --user a --every-project", "--every-project"), ("tasks=5", "You may not operate")],
)  # fmt: skip
def test_a_limit_that_cannot_be_set_is_refused(maintainer: Person, words: str, text: str) -> None:
    assert text in maintainer.fails(f"quotas set {words}")


def test_rules_are_tried_and_set_and_what_was_deleted_comes_back(maintainer: Person) -> None:
    words = "simulations:older_than=8w,states=failed+cancelled,label.branch=nightly models:unused_for=90d,keep_last=3"
    assert "0 simulations would go" in maintainer.does(f"retention dry-run {words}")
    maintainer.does(f"retention set {words} --bin")
    shown = maintainer.does("retention")
    assert "older_than=56d, label.branch=nightly, states=failed+cancelled" in shown
    assert "unused_for=90d, keep_last=3" in shown and "goes to the bin" in shown
    decided = json.loads(maintainer.does("retention -o json"))
    assert decided["bin"] and decided["rules"][0]["labels"] == {"branch": "nightly"}
    model = maintainer.folder / "worn.py"
    model.write_text("class Model:\n    def act(self, observation):\n        return [0.0]\n")
    maintainer.does("models upload worn.py")
    maintainer.does("models delete worn --yes")
    [id] = maintainer.does("bin -o name").split()
    assert "worn@1" in maintainer.does("bin") and maintainer.does(f"bin restore {id}").strip() == id
    assert maintainer.does("models get worn -o name").strip()
    maintainer.does("models delete worn --yes")
    maintainer.does("bin empty --yes")
    assert maintainer.does("bin -o name") == ""
    assert "bin" in maintainer.fails(f"bin restore {id}")
    maintainer.does("retention set --none --no-bin")
    assert json.loads(maintainer.does("retention -o json")) == {"bin": False, "rules": []}


@pytest.mark.parametrize(
    ("words", "text"),
    [("uploads:older_than=3d", "is of no kind"), ("models:older_than=soon", "is no age"),
     ("models:older", "is no condition"), ("models:name=x", "would take all"), ("", "Name rules")],
)  # fmt: skip
def test_a_rule_that_cannot_be_set_is_refused(maintainer: Person, words: str, text: str) -> None:
    assert text in maintainer.fails(f"retention set {words}")


def test_who_did_what_is_shown_and_looked_for(operator: Person, maintainer: Person) -> None:
    maintainer.does("services create audited viewer")
    assert "models delete" not in maintainer.does("audit") and "create_service" in maintainer.does("audit")
    [entry] = json.loads(maintainer.does("audit create_service audited --since 1h --outcome done -o json"))
    assert (entry["project"], entry["act"], entry["outsider"]) == ("red", "create_service", False)
    assert entry["affected"] == ["users/red/audited"]
    assert len(json.loads(operator.does("audit --all -o json --project red"))) > len(
        json.loads(operator.does("audit -n 1 -o json --project red"))
    )
    assert "There are none" in maintainer.run("audit", "--user", "nobody").stderr


def test_a_project_is_closed_and_then_deleted(operator: Person) -> None:
    operator.does("projects create brief")
    assert "Close it first" in operator.fails("projects delete brief --yes")
    assert json.loads(operator.does("projects close brief --yes -o json"))["state"] == "closed"
    assert "closed" in operator.fails("run zero noop --project brief")
    assert operator.does("projects delete brief --yes") == "brief\n"
    assert "brief" not in operator.does("projects -o name").split()
    assert operator.fails("projects create brief")


def test_a_user_leaves(operator: Person, new_person: NewPerson) -> None:
    person = new_person("dora", red="viewer")
    assert "--yes answers" in operator.fails("users remove dora")
    operator.does("members remove dora --project red")
    until(lambda: json.loads(person.does("whoami -o json"))["projects"] == [], timeout=SEEN)
    assert "A maintainer of one adds you: `windtunnel members set dora" in person.fails("members")
    operator.does("users remove dora --yes")
    assert "dora" not in operator.does("users -o name").split()
    until(lambda: person.run("whoami").returncode == 2, timeout=SEEN)


@pytest.mark.parametrize(
    ("words", "text"),
    [
        ("members set mia boss", "'viewer', 'submitter', 'maintainer'"),
        ("members set nobody viewer", "`windtunnel users invite NAME`"),
        ("members remove nobody", "`windtunnel members` lists them"),
        ("members frobnicate", "there are: list, set, remove"),
        ("tokens create gate", "--role: viewer, submitter, maintainer. --personal"),
        ("tokens create gate --role operator", "'maintainer'"),
        ("tokens create gate --role viewer --verb fly", "'change-others'"),
        ("tokens create gate --role viewer --expires 90", "45m, 12h, 90d or 2w"),
        ("tokens create gate --personal --service nightly", "leave --personal and --user out"),
        ("tokens create gate --role viewer --service nobody", "no service account 'nobody'"),
        ("tokens revoke 00000000000000000000000000", "`windtunnel tokens` lists"),
        ("tokens list --user operator", "You may not operate here"),
        ("projects create blue", "You may not operate here"),
        ("users invite eve", "You may not operate here"),
        ("members --project Red", "is not the name of a project"),
        ("login wt_secret", "A token is not an argument"),
        ("logout --context nowhere", "windtunnel context add nowhere URL"),
    ],
)
def test_a_mistake_is_answered_with_the_next_step(maintainer: Person, words: str, text: str) -> None:
    assert text in maintainer.fails(words)


def test_a_viewer_may_not_administer(new_person: NewPerson) -> None:
    viewer = new_person("vera", red="viewer")
    for words in ("members set vera maintainer", "members remove mia", "services create robot viewer",
                  "tokens create mine --role maintainer"):  # fmt: skip
        assert "may not administer" in viewer.fails(words) or "Nobody gives what he has not" in viewer.fails(words)
    assert viewer.does("tokens create mine --role viewer -o name").startswith("wt_")


def test_an_invitation_is_used_once_and_is_not_taken_for_a_token(
    operator: Person, platform: PlatformProcess, tmp_path: Path
) -> None:
    invitation = operator.does("users invite fay -o name")
    person = Person(tmp_path / "fay")
    assert f"`windtunnel login {platform.url} --user NAME`" in person.fails(f"login {platform.url}", stdin=invitation)
    person.does(f"login {platform.url} --user fay", stdin=invitation)
    other = Person(tmp_path / "other")
    for user in ("fay", "operator"):
        said = other.fails(f"login {platform.url} --user {user}", stdin=invitation)
        assert f"`windtunnel tokens create NAME --user {user}`" in said and invitation.strip() not in said
    assert not other.config.exists()
    text = operator.does("tokens create again --user fay -o name")
    assert "You are fay." in other.does(f"login {platform.url}", stdin=text)


def test_a_model_of_another_project_is_run_by_its_shared_name(
    operator: Person, maintainer: Person, new_person: NewPerson, tmp_path: Path
) -> None:
    operator.does("projects create green")
    reader = new_person("rita", green="submitter")
    model = maintainer.folder / "glide.py"
    model.write_text("class Model:\n    def act(self, observation):\n        return [0.0] * 4\n")
    maintainer.does("models upload glide.py --name glide")
    assert "no model" in reader.fails("models get red/glide").lower()
    assert "green may read models/glide" in maintainer.does("shares add models/glide green")
    assert "red/glide" in reader.does("shares list")
    assert json.loads(reader.does("models get red/glide -o json"))["name"] == "red/glide"
    reader.does("run red/glide noop --scenarios 0-1")
    assert "red/glide" in reader.does("simulations list")
    assert "There is no file" in reader.fails("run ./red/glide noop")
    (reader.folder / "red").mkdir()
    assert "There is no file" in reader.fails("run red/glide noop")
    (reader.folder / "red").rmdir()
    maintainer.does("shares remove models/glide green")
    assert "no model" in reader.fails("models get red/glide").lower()


def test_a_wrong_address_or_token_is_stored_nowhere(platform: PlatformProcess, tmp_path: Path) -> None:
    person = Person(tmp_path / "person")
    asked: list[str | None] = []

    def page(handler: Any) -> None:
        asked.append(handler.headers["Authorization"])
        answer(401, "<title>Router</title>", Content_Type="text/html")(handler)

    with serving(page) as url:
        assert "not as a platform does" in person.fails(f"login {url}", stdin="wt_secret\n")
    with serving(answer(200, "<title>Shop</title>", Content_Type="text/html")) as url:
        assert "not as a platform does" in person.fails(f"login {url}", stdin="wt_secret\n")
    assert asked == [None]  # the token is not sent there
    session = {"accounts": False, "user": None, "by": "nothing", "projects": []}
    with serving(answer(200, json.dumps(session), Content_Type="application/json")) as url:
        assert f"`windtunnel context add 127.0.0.1 {url}`" in person.fails(f"login {url}", stdin="wt_secret\n")
    [port] = free_ports(1)
    assert "No platform answers" in person.fails(f"login http://127.0.0.1:{port}", stdin="wt_secret\n")
    for token, text in (
        ("wt_secret\n", "does not accept this token"),
        ("\n", "The token is empty"),
        ("a\tb", "copy it"),
    ):
        said = person.fails(f"login {platform.url}", stdin=token)
        assert text in said and "secret" not in said
    assert not person.config.exists()


def test_a_variable_that_counts_more_than_what_was_stored_is_named(
    operator: Person, maintainer: Person, platform: PlatformProcess, tmp_path: Path
) -> None:
    text = maintainer.does("tokens create variable --role viewer -o name")
    person = Person(tmp_path / "person")
    signed_in = person.run("login", platform.url, stdin=text, WINDTUNNEL_TOKEN="wt_other")
    assert signed_in.returncode == 0 and "But WINDTUNNEL_TOKEN is set" in signed_in.stderr
    signed_out = person.run("logout", WINDTUNNEL_TOKEN="wt_other")
    assert signed_out.returncode == 0 and "But WINDTUNNEL_TOKEN is set" in signed_out.stderr


def test_a_shell_completes_projects_members_and_roles(maintainer: Person) -> None:
    script = """
    eval "$(windtunnel completion bash)"
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
    $(complete -p windtunnel | sed 's/.*-F \\([^ ]*\\).*/\\1/') windtunnel
    printf '%s\\n' "${COMPREPLY[@]}"
    """
    for words, completed in (("members list --project r", "red"), ("members remove mi", "mia"),
                             ("members set mia main", "maintainer"), ("log", "login")):  # fmt: skip
        command = ["bash", "--norc", "-c", script, "bash", "windtunnel", *words.split()]
        process = subprocess.run(command, env=maintainer.environ, capture_output=True, text=True, timeout=60)
        assert completed in process.stdout.split(), (words, process.stdout, process.stderr)
