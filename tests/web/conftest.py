"""Fixtures of the tests of the web page: Chromium, a page per test, its errors."""

from tests.browser import browser as browser  # pytest looks fixtures and hooks up by name in this module
from tests.browser import context as context
from tests.browser import page as page
from tests.browser import page_errors as page_errors
from tests.browser import pytest_runtest_makereport as pytest_runtest_makereport
from tests.web.accounts import team as team
from tests.web.pages import application as application
from tests.web.pages import client as client
from tests.web.pages import finished as finished
from tests.web.pages import guarded_origin as guarded_origin
from tests.web.pages import model as model
from tests.web.pages import origin as origin
from tests.web.pages import platform as platform
from tests.web.pages import settings as settings
from tests.web.pages import submit as submit
from tests.web.pages import worker as worker
