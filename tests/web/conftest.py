"""Fixtures of the tests of the web page: Chromium, a page per test, its errors."""

from tests.browser import browser as browser  # pytest looks fixtures and hooks up by name in this module
from tests.browser import context as context
from tests.browser import page as page
from tests.browser import page_errors as page_errors
from tests.browser import pytest_runtest_makereport as pytest_runtest_makereport
