"""What changes on open pages while a run is trained, without a reload and with one connection for each tab."""

import re

from playwright.sync_api import Page, expect
from tests.integration.browser.local_page import LIVE, LocalPage, path_of
from tests.integration.browser.watched_tabs import WAIT_MILLISECONDS, WatchedTabs

MARK = "window.loadedOnce = true"
WAIT = float(WAIT_MILLISECONDS)


def step_of(page: Page, selector: str) -> int:
    found = re.search(r"(\d+) ?(/|of)", page.locator(selector).inner_text())
    return int(found[1]) if found else 0


def test_pages_grow_while_a_run_is_trained(local_page: LocalPage, tabs: WatchedTabs) -> None:
    """The list, the run and its rollouts are open at once; then the run is stopped on its page."""
    config = {"total_steps": 2000, "steps_per_eval": 20, "ensure_scores_are_not_same": False}
    runs = local_page.open(tabs)
    runs.evaluate(MARK)
    assert local_page.start_run(LIVE, config=config).returncode == 0
    try:
        grows(local_page, tabs, runs)
    finally:
        local_page.rlctl("stop", LIVE, "--local")
    assert runs.evaluate("window.loadedOnce"), "the list was never loaded again"


def grows(local_page: LocalPage, tabs: WatchedTabs, runs: Page) -> None:
    row = runs.locator(f"#run-default-{LIVE}")
    expect(row.locator("td.number").first).to_have_text(re.compile(r"^[1-9]\d*/2000$"), timeout=WAIT)
    run, rollouts = (tabs.contexts[0].new_page() for _ in range(2))
    for page, path in ((run, path_of(LIVE)), (rollouts, path_of(LIVE, "/rollouts?step=1"))):
        local_page.go(page, path)
        page.evaluate(MARK)
    legend = run.locator("figure", has_text="Reward").first.locator(".u-legend tr").first
    expect(legend).to_have_text(re.compile(r"\d"), timeout=WAIT)
    drawn, told = legend.inner_text(), step_of(run, "p.progress")
    expect(legend).not_to_have_text(drawn, timeout=WAIT)
    expect(run.locator("p.progress")).not_to_have_text(re.compile(rf"step {told} of"), timeout=WAIT)
    assert step_of(run, "p.progress") > told
    expect(rollouts.locator("#newer a")).to_have_text(re.compile(r"Newer steps exist: step \d+"), timeout=WAIT)
    shown = step_of(runs, f"#run-default-{LIVE} td.number >> nth=0")
    assert shown > 1

    assert [tabs.streams_of(page) for page in (runs, run, rollouts)] == [1, 1, 1]
    run.get_by_role("button", name="Stop").click()
    expect(run.locator(".phase")).to_have_text("Stopped", timeout=WAIT)
    expect(run.get_by_role("button", name="Resume")).to_be_visible()
    expect(row.locator(".phase")).to_have_text("Stopped", timeout=WAIT)
    rollouts.locator("#newer a").click()
    expect(rollouts.locator("h1")).to_have_text(re.compile(rf"Step \d+ of {LIVE}"))
