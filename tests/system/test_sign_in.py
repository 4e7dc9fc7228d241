"""Sign-in as people do it: invitation, passkey, password, an identity provider, and a program on a terminal."""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import BrowserContext, Page, expect

from tests.browser import Errors, accessibility_violations, scrolls_sideways
from tests.browser import browser as browser
from tests.browser import context as context
from tests.browser import page as page
from tests.browser import page_errors as page_errors
from tests.browser import pytest_runtest_makereport as pytest_runtest_makereport
from tests.identity_providers import TestIdentityProvider
from tests.ports import free_ports
from tests.pseudo_terminals import PseudoTerminal
from tests.system.platform_process import PlatformProcess
from tests.system.test_account_commands import Person
from windtunnel import Client

PASSWORD = "correct horse battery staple"


@pytest.fixture(scope="module")
def platform(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PlatformProcess]:
    """A platform whose people sign in with a provider, which is in the file of its home."""
    home = tmp_path_factory.mktemp("sign-in")
    platform = PlatformProcess(home, settings={"MULTI_USER": "yes"})
    callback = address(platform, "/sign-in/callback/company")
    provider = TestIdentityProvider(tmp_path_factory.mktemp("provider"), callback)
    provider.people({"grace": {"preferred_username": "Grace Hopper", "groups": ["drivers"]}})
    groups = {"drivers": {"projects": {"default": "submitter"}}}
    (home / "identity-providers.json").write_text(provider.configuration(title="The Company", groups=groups))
    provider.start()
    yield platform.start()
    platform.stop()
    provider.stop()


@pytest.fixture(scope="module")
def operator(platform: PlatformProcess) -> Iterator[Client]:
    with Client(platform.url, token=(platform.home / "operator-token").read_text().strip()) as client:
        yield client


def address(platform: PlatformProcess, path: str) -> str:
    """Return an address of the page under the name that passkeys belong to."""
    return f"http://localhost:{platform.port}{path}"


def with_authenticator(context: BrowserContext, page: Page) -> None:
    """Give the browser a device that keeps passkeys, and a finger on it."""
    devtools = context.new_cdp_session(page)
    devtools.send("WebAuthn.enable")
    options = {
        "protocol": "ctap2", "transport": "internal", "hasResidentKey": True, "hasUserVerification": True,
        "isUserVerified": True, "automaticPresenceSimulation": True,
    }  # fmt: skip
    devtools.send("WebAuthn.addVirtualAuthenticator", {"options": options})


def sign_out(page: Page) -> None:
    page.get_by_role("button", name="Sign out").click()
    expect(page.get_by_role("heading", name="Sign in")).to_be_visible()


def test_an_invited_person_makes_a_passkey_and_a_password_and_signs_in_with_each(
    platform: PlatformProcess, operator: Client, context: BrowserContext, page: Page, page_errors: Errors
) -> None:
    page_errors.expect("401")
    with_authenticator(context, page)
    invited = operator.users.invite("ada")
    page.goto(address(platform, f"/invitation?user=ada#{invited.invitation}"))
    expect(page.get_by_label("Invitation")).to_have_value(str(invited.invitation))
    assert str(invited.invitation) not in page.url, "it is not kept in the history"
    assert accessibility_violations(page) == []
    page.get_by_role("button", name="Continue", exact=True).click()
    expect(page.get_by_role("heading", name="How I sign in")).to_be_visible()
    expect(page.get_by_text("There is no way to sign in again yet")).to_be_visible()
    page.get_by_label("Name").fill("this laptop")
    page.get_by_role("button", name="Make a passkey").click()
    expect(page.get_by_role("row").filter(has_text="this laptop")).to_be_visible()
    page.get_by_label("New password").fill(PASSWORD)
    page.get_by_role("button", name="Set the password").click()
    expect(page.get_by_label("Present password")).to_be_visible()
    assert accessibility_violations(page) == [] and not scrolls_sideways(page)
    sign_out(page)
    assert accessibility_violations(page) == [] and not scrolls_sideways(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_title("My tokens and sessions")).to_have_text("ada")
    sign_out(page)
    page.get_by_label("User").fill("ada")
    page.get_by_label("Password").fill(PASSWORD)
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_title("My tokens and sessions")).to_have_text("ada")
    page.goto(address(platform, "/operations/sign-in"))
    row = page.get_by_role("row").filter(has_text="this laptop")
    row.get_by_text("Remove …").click()
    row.get_by_role("button", name="Remove it").click()
    expect(row).to_have_count(0)
    sign_out(page)
    page.get_by_role("button", name="Sign in with a passkey").click()
    expect(page.get_by_role("alert").filter(has_text="This passkey is none of a user")).to_be_visible()


def test_a_wrong_password_is_told_at_its_field(platform: PlatformProcess, page: Page, page_errors: Errors) -> None:
    page_errors.expect("401")
    page.goto(address(platform, "/sign-in"))
    page.get_by_label("User").fill("nobody")
    page.get_by_label("Password").fill("a wrong password")
    page.get_by_role("button", name="Sign in", exact=True).click()
    expect(page.get_by_role("alert").filter(has_text="not the password of this user")).to_be_visible()
    expect(page.get_by_label("User")).to_have_value("nobody")


def test_a_person_of_the_provider_signs_in_and_comes_to_the_page_that_was_wanted(
    platform: PlatformProcess, page: Page
) -> None:
    page.goto(address(platform, "/models"))
    page.get_by_role("button", name="Sign in with The Company").click()
    page.get_by_label("Account").fill("grace")
    page.get_by_role("button", name="Continue").click()
    page.get_by_role("button", name="Continue").click()  # consent
    page.wait_for_url("**/models*")
    expect(page.get_by_title("My tokens and sessions")).to_have_text("grace-hopper")


def test_a_program_on_a_terminal_is_signed_in_by_the_code_that_the_page_approves(
    platform: PlatformProcess, operator: Client, page: Page, tmp_path: Path
) -> None:
    invited = operator.users.invite("lin")
    page.goto(address(platform, f"/invitation?user=lin#{invited.invitation}"))
    page.get_by_role("button", name="Continue", exact=True).click()
    expect(page.get_by_role("heading", name="How I sign in")).to_be_visible()
    lin = Person(tmp_path / "lin")
    with PseudoTerminal(["windtunnel", "login", platform.url], lin.environ) as terminal:
        terminal.wait_for("approve the code")
        [code] = re.findall(r"approve the code ([A-Z]{4}-[A-Z]{4})", terminal.shown)
        page.goto(address(platform, f"/device?code={code}"))
        expect(page.get_by_text("asks to act as lin")).to_be_visible()
        assert accessibility_violations(page) == []
        page.get_by_role("button", name="Approve").click()
        expect(page.get_by_text("It is signed in: go back to it.")).to_be_visible()
        assert terminal.wait() == 0, terminal.shown
        assert "You are lin." in terminal.shown
    assert '"user": "lin"' in lin.does("whoami -o json")


def test_up_with_accounts_prints_the_link_by_which_the_first_operator_signs_in(tmp_path: Path, page: Page) -> None:
    environ = Person(tmp_path / "person").environ
    port = free_ports(1)[0]
    command = [sys.executable, "-m", "server.windtunnel_server", "up", "--multi-user", "--port", str(port)]
    with PseudoTerminal([*command, "--home", str(tmp_path / "home")], environ) as terminal:
        terminal.wait_for("#wti_")
        terminal.wait_for("\n")
        shown = re.sub(r"\x1b\[[0-9;]*m", "", terminal.shown)
        [link] = re.findall(r"http://localhost:\d+/invitation\?user=operator#\w+", shown)
        page.goto(link)
        page.get_by_role("button", name="Continue", exact=True).click()
        expect(page.get_by_role("heading", name="How I sign in")).to_be_visible()
        expect(page.get_by_title("My tokens and sessions")).to_have_text("operator")
        terminal.press("\x03")
        terminal.wait()
