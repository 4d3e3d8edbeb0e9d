"""axe-core finds nothing on any page, in light and dark, wide and narrow; and a phone never scrolls sideways."""

import pytest
from playwright.sync_api import Page
from tests.integration.browser.local_page import CRASHED, FINISHED, KEPT, REFUSED, STEPS, LocalPage, path_of
from tests.integration.browser.watched_tabs import Look, WatchedTabs, everyone_can_use, in_looks

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


def settled(page: Page) -> None:
    """Curves are drawn, and what is folded is open."""
    if page.locator("[data-note]").count():
        page.wait_for_function("!document.querySelector('[data-note]').textContent.startsWith('Loading')")
    if page.locator(".charts canvas").count():
        for details in page.locator("details.lazy").all():
            details.locator("summary").click()
            details.locator("table, pre").first.wait_for()


@in_looks
@pytest.mark.parametrize("view", VIEWS)
def test_everyone_can_use_it(local_page: LocalPage, tabs: WatchedTabs, view: str, looks: list[Look]) -> None:
    page = local_page.open(tabs, VIEWS[view], bypass_csp=True)
    settled(page)
    everyone_can_use(page, looks)
