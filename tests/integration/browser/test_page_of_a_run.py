"""The page of a run that was trained: its curves, what is around them, and the way with the keyboard."""

import re

from playwright.sync_api import Page, expect
from tests.integration.browser.local_page import CRASHED, FINISHED, KEPT, STEPS, LocalPage, path_of
from tests.integration.browser.watched_tabs import WatchedTabs

CURVES = ("Reward", "Held-out", "Loss", "Staleness", "Entropy", "Length", "Seconds of a step")

COLORS = """(canvas) => {
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height), found = new Set();
    for (let at = 0; at < data.length; at += 4) if (data[at + 3] === 255) found.add(data.slice(at, at + 3).join());
    return [...found];
}"""
REWARD_COLOR = "26,79,196"
"""--curve-1 of static/charts.css in the light."""


def opened(local_page: LocalPage, tabs: WatchedTabs) -> Page:
    page = local_page.open(tabs, path_of(FINISHED))
    page.wait_for_selector(".charts canvas")
    return page


def focused(page: Page) -> str:
    text: str = page.evaluate("document.activeElement.textContent.trim()")
    return text


def tab_to(page: Page, selector: str, key: str = "Tab", most: int = 80) -> None:
    """Press the key until that element has the focus, which must be seen at every stop."""
    for _ in range(most):
        page.keyboard.press(key)
        seen = page.evaluate("""() => {
            const style = getComputedStyle(document.activeElement);
            return style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 1;
        }""")
        assert seen, f"the focus is not seen on {page.evaluate('document.activeElement.outerHTML.slice(0, 200)')}"
        if page.evaluate("(selector) => document.activeElement.matches(selector)", selector):
            return
    raise AssertionError(f"{most} times {key} do not lead to {selector}; the focus is on {focused(page)!r}")


def test_curves_are_drawn(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = opened(local_page, tabs)
    assert set(CURVES) <= set(page.locator("figcaption h3").all_inner_texts())
    assert REWARD_COLOR in page.locator(".charts canvas").first.evaluate(COLORS)
    for label, axis in (("time", "time"), ("steps", "step")):
        page.get_by_label(label, exact=True).check()
        expect(page.locator("figure").first.locator(".u-legend th").first).to_have_text(axis)
    page.locator("summary", has_text="Reward as a table").click()
    rows = page.get_by_role("region", name="Reward, table").locator("tbody tr")
    expect(rows).to_have_count(STEPS)
    expect(rows.last.locator("th")).to_have_text(str(STEPS))
    expect(page.locator(".marks")).to_contain_text(f"best weights: step {STEPS}")
    expect(page.locator("p.progress")).to_contain_text(f"step {STEPS} of {STEPS}")


def test_curves_of_what_is_not_always_measured(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, path_of(KEPT))
    page.wait_for_selector(".charts canvas")
    told = {
        "Entropy": ["entropy"],
        "Clipped": ["clipped"],
        "Groups": ["all right", "mixed", "all wrong"],
        "Staleness": ["oldest", "mean", "allowed"],
        "Cost": ["so far"],
    }
    for title, lines in told.items():
        figure = page.locator("figure", has=page.get_by_role("heading", name=title, exact=True))
        assert len(figure.locator("canvas").evaluate(COLORS)) > 1, title
        for line in lines:
            expect(figure.locator(".u-legend th", has_text=line)).to_be_visible()


def test_all_figures_of_an_evaluation(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs, path_of(KEPT))
    table = page.get_by_role("region", name="Table of held-out figures")
    expect(table.locator("caption")).to_have_text("Held out, after step 3, which has 2 more")
    expect(table.locator("tbody tr")).to_have_count(5)
    expect(table.locator("tr", has_text="hard/percent_correct").locator("td")).to_have_text(
        ["0.250", "[0.125, 0.500]", "128"]
    )
    page = local_page.open(tabs, path_of(CRASHED))
    expect(page.locator("h1")).to_have_text(CRASHED)
    expect(page.get_by_role("region", name="Table of held-out figures")).to_have_count(0)


def test_what_is_around_the_curves(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = opened(local_page, tabs)
    expect(page.locator("dl.commands")).to_contain_text(f'rlctl sample {FINISHED} "PROMPT" --local')
    expect(page.get_by_role("region", name="Table of weights")).to_contain_text("sampler_weights/attempt-1-step-000003")
    page.locator("summary", has_text="Config").click()
    total = page.locator("table.config tr", has=page.locator("th", has_text="config.total_steps"))
    expect(total.locator("td").nth(1)).to_have_text("set")
    expect(page.locator("table.config")).to_contain_text("default")
    expect(page.locator("#yaml")).to_contain_text(f"total_steps: {STEPS}")
    tabs.contexts[-1].grant_permissions(["clipboard-read", "clipboard-write"])
    page.get_by_role("button", name="Copy the YAML").click()
    expect(page.locator("[data-copied]")).to_have_text("Copied.")
    assert page.evaluate("navigator.clipboard.readText()") == page.locator("#yaml").text_content()
    page.locator("summary", has_text="Log").click()
    expect(page.locator(".log")).to_contain_text(f"step {STEPS}/{STEPS}")


def test_a_point_leads_to_the_rollouts_of_its_step(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = opened(local_page, tabs)
    box = page.locator(".charts .u-over").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] * 2 / STEPS, box["y"] + 40)  # the axis begins with the evaluation at 0
    page.wait_for_url("**/rollouts?step=2")
    expect(page.locator("h1")).to_have_text(f"Step 2 of {FINISHED}")
    expect(page.locator("main")).to_contain_text("the account balances")


def test_from_the_list_to_a_token_and_back_without_a_mouse(local_page: LocalPage, tabs: WatchedTabs) -> None:
    page = local_page.open(tabs)
    page.keyboard.press("Tab")
    assert focused(page) == "Skip to content"
    tab_to(page, f'a[href$="/{FINISHED}"]')
    page.keyboard.press("Enter")
    page.wait_for_url(f"**/{FINISHED}")
    page.wait_for_selector(".charts canvas")
    tab_to(page, ".charts .area")
    page.keyboard.press("Home")
    page.keyboard.press("ArrowRight")
    expect(page.locator(".charts > [role=status]")).to_have_text(re.compile(r"^step 2: batch reward [\d.]+ \["))
    page.keyboard.press("Enter")
    page.wait_for_url("**/rollouts?step=2")
    tab_to(page, "[data-numbers]")
    page.keyboard.press("ArrowRight")
    expect(page.locator("#token-line")).to_contain_text("token 1 of")
    page.keyboard.press("End")
    expect(page.locator("#token-line")).to_contain_text(re.compile(r"token (\d+) of \1 .*trained.* log q "))
    for link, url in ((f'header a[href$="/{FINISHED}"]', f"**/{FINISHED}"), ("header a.brand", "**/runs")):
        tab_to(page, link, "Shift+Tab")
        page.keyboard.press("Enter")
        page.wait_for_url(url)
