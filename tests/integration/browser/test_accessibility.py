"""axe-core finds nothing on any page, in light and dark, wide and narrow; and a phone never scrolls sideways."""

import pytest
from playwright.sync_api import Page
from tests.integration.browser.local_page import CRASHED, FINISHED, KEPT, REFUSED, STEPS, LocalPage, path_of
from tests.integration.browser.watched_tabs import DESKTOP, PHONE, WatchedTabs, overflow, violations

VIEWS = {
    "runs": "/runs",
    "run": path_of(FINISHED),
    "crashed": path_of(CRASHED),
    "refused": path_of(REFUSED),
    "config": path_of(FINISHED, "/config"),
    "log": path_of(FINISHED, "/log"),
    "rollouts": path_of(FINISHED, f"/rollouts?step={STEPS}&group=0&fate=trained"),
    "each fate": path_of(KEPT, "/rollouts?step=3&color=fate"),
    "conversations": path_of(KEPT, "/rollouts?step=3&view=talk"),
    "held out": path_of(KEPT, "/rollouts?step=3&fate=evaluated"),
    "lost": path_of(KEPT, "/rollouts?step=3&fate=lost"),
    "search": path_of(KEPT, "/rollouts?q=old&scope=all"),
    "no rollouts": path_of(CRASHED, "/rollouts"),
    "comparison": f"/compare?run=default/{FINISHED}&run=default/older",
    "talk": path_of(FINISHED, "/talk"),
}


OF_COLORS = ("color-contrast", "link-in-text-block")
"""The rules that may find in the dark what they did not find in the light."""


def settled(page: Page) -> None:
    """Curves are drawn, and what is folded is open."""
    if page.locator("[data-note]").count():
        page.wait_for_function("!document.querySelector('[data-note]').textContent.startsWith('Loading')")
    if page.locator(".charts canvas").count():
        for details in page.locator("details.lazy").all():
            details.locator("summary").click()
            details.locator("table, pre").first.wait_for()


@pytest.mark.parametrize("view", VIEWS)
def test_everyone_can_use_it(local_page: LocalPage, tabs: WatchedTabs, view: str) -> None:
    page = local_page.open(tabs, VIEWS[view], bypass_csp=True)
    settled(page)
    for width in (DESKTOP, PHONE):
        page.set_viewport_size({"width": width, "height": 900})
        page.emulate_media(color_scheme="light")
        found = violations(page)
        page.emulate_media(color_scheme="dark")
        found += violations(page, OF_COLORS)
        assert not found, f"{view}, {width} pixels: {found}"
    assert overflow(page) == 0
