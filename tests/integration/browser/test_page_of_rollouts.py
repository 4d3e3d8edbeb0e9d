"""The page of a step's rollouts in a browser: what its choices do, and that its texts do nothing."""

import json
from pathlib import Path

import pytest
from playwright.sync_api import Page, expect
from tests.integration.browser.local_page import FINISHED, KEPT, MALICIOUS, RECORDS, STEPS, LocalPage, path_of
from tests.integration.browser.watched_tabs import WatchedTabs, injected, overflow

STEP = path_of(KEPT, "/rollouts?step=3")


def rollouts(page: Page, group: int = 0) -> list[str]:
    return page.locator("article.group").nth(group).locator("h4").all_inner_texts()


def test_groups_and_their_order(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, STEP)
    expect(page.locator("article.group")).to_have_count(3)
    assert rollouts(page) == ["Rollout 2", "Rollout 3", "Rollout 4", "Rollout 1"], "the best answer first"
    page.get_by_label("Order").select_option("reward-asc")
    page.wait_for_url("**sort=reward-asc**")
    assert rollouts(page) == ["Rollout 1", "Rollout 4", "Rollout 3", "Rollout 2"]


def test_the_histogram_filters(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, STEP)
    page.locator(".histogram a").first.click()
    page.wait_for_url("**reward=**")
    expect(page.locator("section.rollout")).to_have_count(1)
    expect(page.locator("section.rollout")).to_have_attribute("aria-label", "Rollout 1 of group 0, trained")
    expect(page.locator("article.group")).to_contain_text("1 of its 4 rollouts match")
    page.get_by_role("link", name="show all", exact=True).click()
    expect(page.locator("section.rollout")).to_have_count(6)


def test_a_token_says_in_words_what_became_of_it(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, STEP)
    for color in ("gap", "surprise", "fate"):
        page.get_by_label("Color by").select_option(color)
        page.wait_for_url(f"**color={color}**")
        expect(page.locator(".legend summary")).to_be_visible()
    answer = page.get_by_label("Rollout 2 of group 0")
    said = {
        "a": "trained",
        "b": "clipped: no gradient",
        "c": "muted by the environment",
        "d": "not sampled",
        "e": "first, with nothing to predict them from",
        "f": "no advantage",
    }
    for letter, words in said.items():
        answer.locator(".tokens i", has_text=letter).hover()
        expect(page.locator("#token-line")).to_contain_text(words)
    colors = {
        answer.locator(".run").nth(at).evaluate("(run) => getComputedStyle(run).backgroundColor") for at in range(6)
    }
    assert len(colors) == 6
    expect(page.locator(".legend")).to_contain_text("beyond the loss's threshold")


@pytest.mark.parametrize(
    ("tab", "said"),
    [
        ("dropped", "The trainer dropped it, stale: it waited too long"),
        ("no advantage", "All its rollouts earned the same"),
        ("held out", "1 right"),
        ("lost", "timeout: it was timeout"),
    ],
)
def test_what_was_not_trained_has_its_reason(local_page: LocalPage, tabs: WatchedTabs, tab: str, said: str) -> None:
    page = local_page.open(tabs, STEP)
    page.locator(".tabs a", has_text=tab).click()
    expect(page.locator(".tabs a[aria-current]")).to_contain_text(tab)
    expect(page.locator("section", has=page.locator("#groups-title"))).to_contain_text(said)


def test_a_conversation_with_a_tool(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, STEP)
    page.locator("select[name=view]").select_option("talk")
    page.wait_for_url("**view=talk**")
    said = page.get_by_label("Rollout 3 of group 0").locator("ol.talk li")
    expect(said).to_have_count(3)  # the prompt is above, once for the group
    expect(said.nth(0)).to_contain_text("add")
    expect(said.nth(1)).to_contain_text("tool")
    expect(said.nth(2)).to_contain_text("it is two")


def test_search_in_all_steps_leads_to_a_group(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, path_of(FINISHED, "/rollouts"))
    expect(page.locator("h1")).to_have_text(f"Step {STEPS} of {FINISHED}")
    page.get_by_label("Text").fill("SORT")
    page.locator("select[name=scope]").select_option("all")
    page.wait_for_url("**scope=all**")
    expect(page.locator(".matches mark").first).to_have_text("sort")
    page.locator(".matches a").first.click()
    expect(page.locator("article.group")).to_have_count(1)


def test_the_download_is_what_the_file_holds(local_page: LocalPage, tabs: WatchedTabs, tmp_path: Path) -> None:
    page = local_page.open(tabs, f"{STEP}&fate=dropped")
    with page.expect_download() as download:
        page.get_by_role("link", name="Download as JSONL").click()
    assert download.value.suggested_filename == f"{KEPT}-step-3.jsonl"
    download.value.save_as(tmp_path / "saved")
    saved = [json.loads(line) for line in (tmp_path / "saved").read_text().splitlines()]
    assert saved == [record for record in RECORDS if record.get("fate") == "dropped"]


@pytest.mark.parametrize("query", ["", "&view=talk", "&fate=lost", "&color=fate&group=99&fate=trained", "&q=script"])
def test_hostile_text_does_nothing(local_page: LocalPage, tabs: WatchedTabs, query: str) -> None:
    page = local_page.open(tabs, path_of(MALICIOUS, f"/rollouts?step=3{query}"), width=390)
    expect(page.locator("h1")).to_have_text(f"Step 3 of {MALICIOUS}")
    assert not injected(page)
    assert overflow(page) == 0
    assert page.evaluate("getComputedStyle(document.body).direction") == "ltr"
    if not query:
        page.locator("[data-numbers] i").first.hover()
        expect(page.locator("#token-line")).to_contain_text("<script>alert(1)</script>")
        assert not injected(page)


def test_hostile_sentences_of_a_run_do_nothing(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs)
    expect(page.locator("table.runs")).to_contain_text("<img src=x onerror=alert(1)>")
    assert not injected(page)
    local_page.go(page, path_of(MALICIOUS))
    expect(page.locator("main")).to_contain_text("<img src=x onerror=alert(1)>")
    assert not injected(page)
