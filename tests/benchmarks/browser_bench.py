"""How fast a browser draws the curves of a long run, and how smooth they stay. Prints a table; asserts nothing.

    python -m tests.benchmarks.browser_bench [STEPS]

A run of STEPS (2,500) steps with all figures that a trainer reports. Its page is opened a few times in the Chromium of
this machine: the milliseconds from the arrival of the points to the frame that shows them, the bytes of all that the
page loads, and the time between two frames while the pointer moves over the curves.
"""

import math
import random
import re
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, sync_playwright
from tests.integration.browser.watched_tabs import ARGUMENTS, HOW_TO_GET, WatchedTabs, browser_program
from tests.integration.local.conftest import Rlctl
from tests.unit.rl_operator.rollouts.made_rollouts import frame
from tests.unit.rl_operator.ui.rollout_pages import StateFolder

STEPS, OPENED, MOVES = 2500, 6, 60
RUN = "sorting"
GOAL_MILLISECONDS, GOAL_KB = 300, 150

FRAMES = """() => { window.gaps = []; window.going = true; let last = performance.now();
    const next = () => { const now = performance.now(); window.gaps.push(now - last); last = now;
        if (window.going) requestAnimationFrame(next); };
    requestAnimationFrame(next); }"""
DRAWN = "performance.getEntriesByName('curves').map((entry) => entry.duration)"
LOADED = """[...performance.getEntriesByType('resource'), ...performance.getEntriesByType('navigation')]
    .filter((entry) => !entry.name.includes('/points')).reduce((sum, entry) => sum + entry.decodedBodySize, 0)"""


def trained(step: int, steps: int, chance: random.Random) -> dict[str, Any]:
    reward = 1 - 0.5 * math.exp(-5 * step / steps) - abs(chance.gauss(0, 0.03))
    metrics = {
        "reward/mean": reward, "reward/std": math.sqrt(reward * (1 - reward)), "reward/min": 0.0, "reward/max": 1.0,
        "train/loss": chance.gauss(0, 0.02), "logprobs/kl_v2": abs(chance.gauss(0, 1e-4)),
        "logprobs/kl_v2_stale": abs(chance.gauss(0.002, 1e-3)), "logprobs/ess": 1 - abs(chance.gauss(0, 0.01)),
        "logprobs/ess_stale": 0.95, "staleness/mean": 1.0, "staleness/max": 2.0,
        "logprobs/mean": -0.4 * math.exp(-3 * step / steps), "batch/trained_tokens": 2000.0 + step,
        "batch/trained_sequences": 32.0, "time/waiting": 2 + chance.random(), "time/forward_backward": 1.1,
        "time/optim_step": 0.2, "time/snapshot": 0.3, "time/preparing": 0.05, "time/reporting": 0.02,
    }  # fmt: skip
    return {"record": "step", "step": step, "time": 1.8e9 + 4 * step, "attempt": 1, "metrics": metrics, "tokens": {}}


def evaluated(step: int) -> dict[str, Any]:
    figures = {"eval/percent_correct": 0.9, "eval/percent_correct_low": 0.87, "eval/percent_correct_high": 0.93}
    return {"record": "evaluation", "step": step, "time": 1.8e9 + 4 * step, "metrics": {**figures, "eval/n": 500}}


def put_run(root: Path, steps: int) -> None:
    folder, chance = StateFolder(root), random.Random(0)
    files = folder.files(folder.run(RUN, phase="Succeeded"), {})
    lines = [trained(step, steps, chance) for step in range(1, steps + 1)]
    lines += [evaluated(step) for step in range(0, steps + 1, max(1, steps // 50))]
    (files / "metrics-1.jsonl.zst").write_bytes(frame(*lines))


def measure(browser: Browser, address: str) -> Sequence[str]:
    origin = address.partition("/?")[0]
    with WatchedTabs(browser) as tabs:
        page = tabs.context(origin, bypass_csp=True).new_page()  # its own script may not evaluate a string
        page.goto(address)
        page.wait_for_url("**/runs")
        url = f"{origin}/runs/default/{RUN}"
        drawn = [opened(page, url)]
        kb = page.evaluate(LOADED) / 1000  # then the browser has most of it
        drawn += [opened(page, url) for _ in range(OPENED - 1)]
        gaps = frame_gaps(page)
        faults = tabs.take_faults()
    return [
        f"{'drawn after the points, milliseconds':40} {_spread(drawn)}   goal: under {GOAL_MILLISECONDS}",
        f"{'loaded without the points, kB':40} {kb:.0f}   goal: at most {GOAL_KB}",
        f"{'between frames, milliseconds':40} {_spread(gaps)}",
        *faults,
    ]


def opened(page: Page, url: str) -> float:
    page.goto(url)
    page.wait_for_function(f"{DRAWN}.length > 0")
    milliseconds: float = page.evaluate(DRAWN)[0]
    return milliseconds


def frame_gaps(page: Page) -> list[float]:
    box = page.locator(".charts .u-over").first.bounding_box()
    assert box is not None
    page.evaluate(FRAMES)
    for move in range(MOVES):
        page.mouse.move(box["x"] + box["width"] * move / MOVES, box["y"] + 60)
    gaps: list[float] = page.evaluate("() => { window.going = false; return window.gaps; }")
    return gaps


def _spread(values: Sequence[float]) -> str:
    return f"{min(values):.0f} to {max(values):.0f}, median {statistics.median(values):.0f}"


def main(steps: int) -> None:
    program = browser_program()
    if program is None:
        sys.exit(HOW_TO_GET)
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        rlctl = Rlctl(Path(folder))
        put_run(rlctl.root, steps)
        with rlctl.start("ui", "--local", "--no-browser") as server:
            try:
                found = re.search(r"http://\S+", server.stdout.readline() if server.stdout else "")
                assert found, "`rlctl ui` printed no address"
                browser = playwright.chromium.launch(executable_path=program, args=ARGUMENTS)
                print(f"a run of {steps:,} steps", *measure(browser, found[0]), sep="\n")
            finally:
                server.terminate()


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else STEPS)
