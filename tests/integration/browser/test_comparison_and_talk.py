"""Two runs over each other, and a word with the trained weights."""

import re

from playwright.sync_api import expect
from tests.integration.browser.local_page import FINISHED, OLDER, LocalPage, path_of
from tests.integration.browser.watched_tabs import WatchedTabs


def test_two_runs_with_what_differs(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs)
    for name in (FINISHED, OLDER):
        page.get_by_label(f"Compare {name}", exact=True).check()
    page.get_by_role("button", name="Compare the chosen runs").click()
    page.wait_for_selector(".charts canvas")
    expect(page.locator("h1")).to_contain_text(FINISHED)
    expect(page.locator("main > .sentence").first).to_be_visible()
    differs = page.get_by_role("region", name="Settings that differ")
    steps = differs.locator("tr", has_text="config.total_steps").locator("td").all_inner_texts()
    assert dict(zip(differs.locator("th a").all_inner_texts(), steps, strict=True)) == {FINISHED: "3", OLDER: "40"}
    expect(page.get_by_role("region", name="Figures")).to_contain_text("3/3")
    expect(page.locator("figure").first.locator(".u-legend")).to_contain_text(FINISHED)


def test_one_run_is_no_comparison(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, f"/compare?run=default/{FINISHED}")
    expect(page.locator("main")).to_contain_text("Choose 2 to 5 runs in the list; 1 is named.")


def test_trained_weights_answer_beside_the_base_model(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, path_of(FINISHED))
    page.get_by_role("link", name="Talk to the weights").click()
    page.get_by_label("Prompt").fill("sort 3 1 2 0")
    page.get_by_label("Seed").fill("7")
    page.get_by_label("Temperature").fill("0.5")
    page.get_by_label("Most tokens").fill("8")
    page.get_by_role("button", name="Ask").click()
    page.wait_for_selector(".answers")
    expect(page.locator("section", has=page.locator("#answers-title"))).to_contain_text("Seed 7, temperature 0.5")
    expect(page.locator(".answer h3")).to_have_count(2)
    for at in (0, 1):
        expect(page.locator(".answer").nth(at)).to_contain_text(re.compile(r"\d tokens?, log probability"))
    expect(page.get_by_label("Prompt")).to_have_value("sort 3 1 2 0")
