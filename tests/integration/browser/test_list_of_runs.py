"""The list of runs, and what the page of each says, whatever became of it."""

import re

import pytest
from playwright.sync_api import Page, expect
from tests.integration.browser.local_page import CRASHED, FINISHED, KEPT, OLDER, REFUSED, LocalPage, path_of
from tests.integration.browser.watched_tabs import WatchedTabs


def names_of(page: Page) -> list[str]:
    return page.locator("table.runs tbody th a").all_inner_texts()


def test_what_needs_attention_comes_first(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs)
    assert set(names_of(page)[:2]) == {CRASHED, REFUSED}
    crashed = page.locator("tbody tr", has_text=CRASHED)
    expect(crashed.get_by_role("cell", name="✗ Failed")).to_be_visible()  # the color is not the only sign
    expect(crashed.locator(".sentence")).to_contain_text("TrainerFailed in trainer (exit code 1): boom")
    finished = page.locator("tbody tr", has_text=FINISHED)
    expect(finished.locator("td.number").first).to_have_text("3/3")
    kept = page.locator("tbody tr", has_text=KEPT)
    expect(kept.locator("svg.spark polyline")).to_have_attribute("points", re.compile(r"^0\.0,19\.0 .*80\.0,1\.0$"))
    before, now = (float(finished.locator("td.number").nth(at).inner_text()) for at in (1, 2))
    assert 0.4 < before < 0.65 < now + 0.1


def test_filters_are_in_the_address(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs)
    page.get_by_label("Phase").select_option(label="needs attention (2)")
    page.wait_for_url("**/runs?phase=attention**")
    assert set(names_of(page)) == {CRASHED, REFUSED}
    page.get_by_label("Name or message").fill("group_sise")
    page.keyboard.press("Enter")
    page.wait_for_url("**text=group_sise**")
    assert names_of(page) == [REFUSED]
    page.reload()
    assert names_of(page) == [REFUSED], "the address says it all"
    page.go_back()
    assert set(names_of(page)) == {CRASHED, REFUSED}
    local_page.go(page, "/runs?text=no-such-run")
    expect(page.locator(".empty")).to_have_text("No run fits these filters.")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        pytest.param(path_of(CRASHED), ["TrainerFailed in trainer (exit code 1): boom", "Fix that"], id="crashed"),
        pytest.param(path_of(CRASHED, "/log?container=trainer"), ["error: boom"], id="the log of what crashed"),
        pytest.param(
            path_of(CRASHED, "/rollouts"),
            ["There are none in the run's folder", "boom"],
            id="no rollouts after a crash",
        ),
        pytest.param(path_of(REFUSED), ["UnknownField", "did you mean 'group_size'"], id="refused"),
        pytest.param(path_of(REFUSED, "/rollouts"), ["has not started, so it has no rollouts"], id="never started"),
        pytest.param(path_of(OLDER), ["All 40 steps are trained", "0.93", "sampler_weights/end"], id="older"),
        pytest.param(path_of(OLDER, "/rollouts"), ["or an older version trained it"], id="older, without rollouts"),
        pytest.param(path_of(OLDER, "/config"), ["sort_digits", "total_steps: 40"], id="older, its config"),
        pytest.param(path_of(KEPT), ["Succeeded", "There are none yet"], id="rollouts and nothing else"),
    ],
)
def test_each_page_says_what_it_can(local_page: LocalPage, tabs: WatchedTabs, path: str, said: list[str]) -> None:
    page = local_page.open(tabs, path)
    for words in said:
        expect(page.locator("main")).to_contain_text(words)
    if path in (path_of(OLDER), path_of(CRASHED), path_of(REFUSED)):
        expect(page.locator("[data-note]")).not_to_have_text("Loading …")


def test_a_run_that_is_not_there(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, path_of("nobody"))
    expect(page.locator("main")).to_contain_text("nobody")
    page.get_by_role("link", name="All runs").click()
    page.wait_for_url("**/runs")
    [fault] = tabs.take_faults()
    assert "status of 404" in fault
