"""A Chromium for each file with tests of pages, and tabs whose every fault fails the test.

Playwright's synchronous calls run an event loop in this thread while Chromium runs: so it ends with the file's tests,
none of which is a coroutine.
"""

from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, expect, sync_playwright
from tests.integration.browser.local_page import LocalPage, running_page
from tests.integration.browser.watched_tabs import (
    ARGUMENTS,
    HOW_TO_GET,
    WAIT_MILLISECONDS,
    WatchedTabs,
    browser_program,
)


@pytest.fixture(scope="session")
def browser_path(process: None) -> str:
    found = browser_program()
    if found is None:
        pytest.skip(HOW_TO_GET)
    return found


@pytest.fixture(scope="module")
def chromium(browser_path: str) -> Iterator[Browser]:
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=browser_path, args=ARGUMENTS)
        yield browser
        browser.close()


@pytest.fixture
def tabs(chromium: Browser) -> Iterator[WatchedTabs]:
    """`tabs.context(ORIGIN).new_page()`. The test fails if a page raises, complains, asks, or leaves its origin."""
    with WatchedTabs(chromium) as tabs:
        yield tabs
    assert not tabs.faults, "\n".join(tabs.faults)


@pytest.fixture(scope="session")
def local_page(browser_path: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalPage]:
    """`rlctl ui` with a run in each state. One for all files that look at it."""
    with running_page(tmp_path_factory.mktemp("page")) as page:
        yield page
