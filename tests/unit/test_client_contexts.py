"""Contexts of the Python client: which address and token a request has, and where tokens are stored."""

import os
import stat
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import keyring
import keyring.backend
import keyring.backends.fail
import keyring.errors
import pytest
from hypothesis import given
from hypothesis import strategies as st

from windtunnel import contexts
from windtunnel.contexts import Context, Contexts
from windtunnel.errors import BadConfiguration

LAB, PROD = "https://lab.example.com", "https://prod.example.com"


class Keyring(keyring.backend.KeyringBackend):
    """A keyring in memory; a locked one raises, as those of desktops do."""

    priority = 1.0

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.secrets: dict[tuple[str, str], str] = {}
        self.locked = False

    def get_password(self, service: str, username: str) -> str | None:
        self._unlocked()
        return self.secrets.get((service, username))

    def set_password(self, service: str, username: str, password: str) -> None:
        self._unlocked()
        self.secrets[service, username] = password

    def delete_password(self, service: str, username: str) -> None:
        self._unlocked()
        del self.secrets[service, username]

    def _unlocked(self) -> None:
        if self.locked:
            raise keyring.errors.KeyringLocked("the keyring is locked")


@pytest.fixture
def no_keyring() -> Iterator[None]:
    """A machine without a keyring."""
    before = keyring.get_keyring()
    keyring.set_keyring(keyring.backends.fail.Keyring())
    yield
    keyring.set_keyring(before)


@pytest.fixture
def own_keyring() -> Iterator[Keyring]:
    """A machine with a keyring."""
    before, own = keyring.get_keyring(), Keyring()  # type: ignore[no-untyped-call]
    keyring.set_keyring(own)
    yield own
    keyring.set_keyring(before)


@pytest.fixture
def environ(tmp_path: Path, no_keyring: None) -> dict[str, str]:
    """The environment of a user with the contexts `lab`, which is the current one, and `prod`."""
    known = Contexts("lab", {"lab": Context(LAB, "lab-token"), "prod": Context(PROD, "prod-token")})
    path = tmp_path / "contexts.json"
    contexts.save(path, known)
    return {"WINDTUNNEL_CONFIG": str(path)}


@pytest.mark.parametrize(
    ("arguments", "variables", "expected"),
    [
        ({}, {}, (LAB, "lab-token")),
        ({"context": "prod"}, {}, (PROD, "prod-token")),
        ({}, {"WINDTUNNEL_CONTEXT": "prod"}, (PROD, "prod-token")),
        ({"context": "lab"}, {"WINDTUNNEL_CONTEXT": "prod"}, (LAB, "lab-token")),
        ({"url": "http://other"}, {}, ("http://other", None)),
        ({"url": "http://other"}, {"WINDTUNNEL_CONTEXT": "prod"}, ("http://other", None)),
        ({}, {"WINDTUNNEL_URL": "http://other"}, ("http://other", None)),
        ({}, {"WINDTUNNEL_URL": "http://other", "WINDTUNNEL_CONTEXT": "prod"}, ("http://other", None)),
        ({"context": "prod"}, {"WINDTUNNEL_URL": "http://other"}, (PROD, "prod-token")),
        ({"url": "http://argument"}, {"WINDTUNNEL_URL": "http://variable"}, ("http://argument", None)),
        ({"url": "http://other", "context": "prod"}, {}, ("http://other", None)),
        ({"url": PROD + "/", "context": "prod"}, {}, (PROD, "prod-token")),
        ({"token": "argument"}, {"WINDTUNNEL_TOKEN": "variable"}, (LAB, "argument")),
        ({}, {"WINDTUNNEL_TOKEN": "variable"}, (LAB, "variable")),
        ({"url": "http://other"}, {"WINDTUNNEL_TOKEN": "variable"}, ("http://other", "variable")),
    ],
)
def test_precedence_of_arguments_variables_and_contexts(
    environ: dict[str, str], arguments: dict[str, str], variables: dict[str, str], expected: tuple[str, str | None]
) -> None:
    server = contexts.server(**arguments, environ=environ | variables)
    assert (server.url, server.token) == expected


@pytest.mark.parametrize("text", ["lab:5000", "http://lab:5000/", "http://lab:5000/v1", "http://lab:5000/v1/"])
def test_an_address_has_one_form(text: str) -> None:
    assert contexts.checked_url(text) == "http://lab:5000"


@given(
    st.sampled_from([None, LAB, PROD, "http://other", LAB + ":8443", "http://lab.example.com"]),
    st.sampled_from([None, "lab", "prod"]),
    st.sampled_from([None, LAB, "http://other"]),
    st.sampled_from([None, "lab", "prod"]),
)
def test_the_token_of_a_context_is_never_sent_to_another_address(
    tmp_path_factory: pytest.TempPathFactory,
    url: str | None,
    context: str | None,
    url_variable: str | None,
    context_variable: str | None,
) -> None:
    path = tmp_path_factory.getbasetemp() / "pairs-of-tokens.json"
    owners = {"lab-token": LAB, "prod-token": PROD}
    if not path.exists():
        contexts.save(path, Contexts("lab", {"lab": Context(LAB, "lab-token"), "prod": Context(PROD, "prod-token")}))
    variables = {"WINDTUNNEL_URL": url_variable, "WINDTUNNEL_CONTEXT": context_variable}
    environ = {"WINDTUNNEL_CONFIG": str(path)} | {key: value for key, value in variables.items() if value}
    server = contexts.server(url, context=context, environ=environ)
    assert server.token is None or owners[server.token] == server.url


@pytest.mark.parametrize(
    ("argument", "variable", "project"), [("red", "blue", "red"), (None, "blue", "blue"), (None, "", None)]
)
def test_the_project_is_the_argument_or_the_variable(argument: str | None, variable: str, project: str | None) -> None:
    environ = {"WINDTUNNEL_PROJECT": variable}
    assert contexts.server("http://lab", environ=environ, project=argument).project == project


@pytest.mark.parametrize(
    ("argument", "variable", "url", "project"),
    [("red", "blue", LAB, "red"), (None, "blue", LAB, "blue"), (None, "", LAB, "green"), (None, "", PROD, None)],
)
def test_the_project_of_a_context_counts_least_and_for_its_address_alone(
    tmp_path: Path, argument: str | None, variable: str, url: str, project: str | None
) -> None:
    path = tmp_path / "contexts.json"
    contexts.save(path, Contexts("lab", {"lab": Context(LAB, "lab-token").acting_in("green")}))
    environ = {"WINDTUNNEL_CONFIG": str(path), "WINDTUNNEL_PROJECT": variable}
    assert contexts.server(url, context="lab", environ=environ, project=argument).project == project


@pytest.mark.parametrize("name", ["Red", "a b", "a\n", "x" * 41])
def test_a_text_that_no_project_has_as_its_name_is_refused(name: str) -> None:
    with pytest.raises(BadConfiguration, match="not the name of a project"):
        contexts.server("http://lab", environ={}, project=name)


def test_without_anything_it_is_this_machine(tmp_path: Path) -> None:
    assert contexts.server(environ={"WINDTUNNEL_CONFIG": str(tmp_path / "none")}).url == "http://localhost:5000"


def test_an_unknown_context_is_an_error_that_names_those_that_there_are(environ: dict[str, str]) -> None:
    with pytest.raises(BadConfiguration, match=r"no context 'labb'; there are: lab, prod.*context add labb URL"):
        contexts.server(context="labb", environ=environ)


def test_a_broken_file_is_an_error_only_where_it_is_needed(tmp_path: Path) -> None:
    for text in (
        "{",
        "[]",
        "5",
        '{"contexts": []}',
        '{"contexts": {"a": 5}}',
        '{"contexts": {"a": {"url": 5}}}',
        '{"contexts": {"a": {"link": "x"}}}',
        '{"contexts": {"a": {"url": "http://x", "of a later version": 5}}}',
    ):
        path = tmp_path / "contexts.json"
        path.write_text(text)
        with pytest.raises(BadConfiguration, match="cannot be read"):
            contexts.server(environ={"WINDTUNNEL_CONFIG": str(path)})
        contexts.server("http://other", environ={"WINDTUNNEL_CONFIG": str(path)})


def test_only_the_owner_can_read_the_file(tmp_path: Path) -> None:
    path = tmp_path / "new folder" / "contexts.json"
    before = os.umask(0)
    try:
        contexts.save(path, Contexts())
    finally:
        os.umask(before)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700


def test_a_reader_sees_the_old_or_the_new_file(tmp_path: Path) -> None:
    path = tmp_path / "contexts.json"
    contexts.save(path, Contexts())
    many = Contexts("c0", {f"c{number}": Context(f"http://host-{number}") for number in range(200)})
    ended = threading.Event()

    def write() -> None:
        for number in range(100):
            contexts.save(path, many if number % 2 else Contexts())
        ended.set()

    writer = threading.Thread(target=write)
    writer.start()
    seen = set()
    while not ended.is_set():
        seen.add(len(contexts.load(path).contexts))
    writer.join()
    assert seen <= {0, 200}
    assert [file.name for file in tmp_path.iterdir()] == ["contexts.json"]


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(tmp_path: Path) -> None:
    (tmp_path / "contexts.json").mkdir()
    with pytest.raises(OSError):
        contexts.save(tmp_path / "contexts.json", Contexts())
    assert [file.name for file in tmp_path.iterdir()] == ["contexts.json"]


def test_contexts_are_added_chosen_and_removed() -> None:
    known = Contexts().with_context("lab", Context(LAB), use=False)
    assert known.current == "lab"  # the first one
    known = known.with_context("prod", Context(PROD), use=False)
    assert known.current == "lab"
    assert known.using("prod").current == "prod"
    assert known.without("lab") == Contexts(None, {"prod": Context(PROD)})
    for change in (known.using, known.without):
        with pytest.raises(BadConfiguration, match="no context 'x'"):
            change("x")


def test_a_token_is_stored_in_the_keyring_and_not_in_the_file(own_keyring: Keyring, tmp_path: Path) -> None:
    context = contexts.store_token("lab", LAB, "secret-token")
    assert context == Context(LAB, keyring=True)
    path = tmp_path / "contexts.json"
    contexts.save(path, Contexts("lab", {"lab": context}))
    assert "secret-token" not in path.read_text()
    environ = {"WINDTUNNEL_CONFIG": str(path)}
    assert contexts.server(environ=environ).token == "secret-token"
    assert "secret-token" not in repr(contexts.server(environ=environ))
    contexts.forget_token("lab", context)
    assert own_keyring.secrets == {}
    contexts.forget_token("lab", context)  # twice is not an error


def test_without_a_keyring_the_token_is_in_the_file(no_keyring: None) -> None:
    assert contexts.store_token("lab", LAB, "secret-token") == Context(LAB, "secret-token")


def test_a_locked_keyring_is_an_error_with_the_next_step(own_keyring: Keyring, tmp_path: Path) -> None:
    context = contexts.store_token("lab", LAB, "secret-token")
    path = tmp_path / "contexts.json"
    contexts.save(path, Contexts("lab", {"lab": context}))
    environ = {"WINDTUNNEL_CONFIG": str(path)}
    own_keyring.locked = True
    with pytest.raises(BadConfiguration, match=r"keyring is locked.*login --context lab.*WINDTUNNEL_TOKEN"):
        contexts.server(environ=environ)
    assert contexts.server(environ=environ | {"WINDTUNNEL_TOKEN": "other"}).token == "other"
    contexts.forget_token("lab", context)
    assert contexts.store_token("lab", LAB, "other") == Context(LAB, "other")  # in the file then


def test_a_token_that_a_header_cannot_have_is_refused(environ: dict[str, str]) -> None:
    for token in ("two\nlines", "tökén", " spaces ", "a\x00b"):
        with pytest.raises(BadConfiguration, match="copy it again") as caught:
            contexts.server(token=token, environ=environ)
        assert token not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "url"),
    [
        ("localhost:5000", "http://localhost:5000"),
        ("http://localhost:5000/", "http://localhost:5000"),
        ("https://example.com/windtunnel/", "https://example.com/windtunnel"),
        ("http://[::1]:5000", "http://[::1]:5000"),
        (" http://localhost ", "http://localhost"),
    ],
)
def test_addresses_have_a_normal_form(text: str, url: str) -> None:
    assert contexts.checked_url(text) == url


@pytest.mark.parametrize(
    "text",
    ["", "http://", "ftp://host", "http://host:port", "http://host:99999", "http://host:0", "http://host/?a=b",
     "http://host/#a", "http://a b", "http://a\nb", "http://user:password@host", "http://[::1", "http://höst"],
)  # fmt: skip
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(BadConfiguration):
        contexts.checked_url(text)


@given(st.text() | st.from_regex(r"https?://[ -~]{1,30}", fullmatch=True))
def test_an_address_that_is_accepted_can_be_used_and_is_its_own_normal_form(text: str) -> None:
    try:
        url = contexts.checked_url(text)
    except BadConfiguration:
        return
    assert contexts.checked_url(url) == url
    httpx.URL(url)


def running_at(home: Path, address: str, mode: int = 0o700) -> Path:
    """Make the folder of a server that runs, as it leaves it."""
    (home / "run").mkdir(parents=True)
    (home / "run").chmod(mode)
    (home / "run" / "address").write_text(f"{address}\n")
    return home


@pytest.mark.parametrize(
    ("address", "mode", "url"),
    [
        ("http://127.0.0.1:6000", 0o700, "http://127.0.0.1:6000"),
        ("http://[::1]:6000", 0o700, "http://[::1]:6000"),
        ("http://127.0.0.1:6000", 0o755, contexts.DEFAULT_URL),  # others could have written it
        ("http://windtunnel.example.com", 0o700, contexts.DEFAULT_URL),
        ("nonsense", 0o700, contexts.DEFAULT_URL),
    ],
)
def test_the_platform_of_this_user_is_found_where_it_serves(address: str, mode: int, url: str, tmp_path: Path) -> None:
    home = running_at(tmp_path / "home", address, mode)
    assert contexts.local_url({"WINDTUNNEL_HOME": str(home)}) == url
    running_at(tmp_path / ".local" / "share" / "windtunnel", address, mode)
    assert contexts.local_url({"HOME": str(tmp_path)}) == url


def test_the_variable_that_moves_a_server_moves_its_client(tmp_path: Path) -> None:
    environ = {"WINDTUNNEL_PORT": "6000", "HOME": str(tmp_path)}
    assert contexts.server(environ=environ).url == "http://localhost:6000"
    assert contexts.server(environ={**environ, "WINDTUNNEL_URL": "http://lab:1"}).url == "http://lab:1"
    with pytest.raises(BadConfiguration, match="WINDTUNNEL_PORT is '70000'"):
        contexts.server(environ={**environ, "WINDTUNNEL_PORT": "70000"})
