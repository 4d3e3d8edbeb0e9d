"""`rlctl ui` over a state folder with a run in each state, as the product, or an older version of it, writes them."""

import json
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from playwright.sync_api import Page, StorageState
from tests.integration.browser.watched_tabs import WatchedTabs
from tests.integration.local.conftest import Rlctl, end_everything
from tests.integration.local.scripted import start_scripted
from tests.unit.rl_operator.rollouts.made_rollouts import Record, frame, group, lost, rollout, sequence, step
from tests.unit.rl_operator.ui.rollout_pages import HOSTILE, StateFolder

END_SECONDS = 60
STEPS = 3
FINISHED, LIVE, CRASHED, REFUSED, OLDER, KEPT, MALICIOUS = (
    "finished", "live", "crashed", "refused", "older", "kept", "malicious",
)  # fmt: skip
STORED = Path("tests/data/stored/0.1.0-runs.json")

TOOL = {"id": "1", "function": {"name": "add", "arguments": '{"a": 1}'}}
TALK = [
    {"role": "user", "content": "how much is 1 + 1?"},
    {"role": "assistant", "content": "", "tool_calls": [TOOL]},
    {"role": "tool", "content": "2", "tool_call_id": "1"},
    {"role": "assistant", "content": "it is two"},
]
EACH_FATE = {
    **sequence("abcdef"),
    "fates": [[at, at + 1, fate] for at, fate in
              enumerate(("trained", "clipped", "muted", "not_sampled", "first", "no_advantage"))],
}  # fmt: skip
RECORDS: list[Record] = [
    lost("timeout", count=3, tokens=7),
    step(3, {"trained": 10, "clipped": 1, "muted": 1, "not_sampled": 1, "first": 1, "no_advantage": 4, "dropped": 3}),
    group(0, rollout(0.0, "low"), {"reward": 1.0, "advantage": 0.5, "sequences": [EACH_FATE]},
          rollout(0.5, "mid", messages=TALK), rollout(0.25, "qrt")),
    group(1, rollout(1.0, "eq1", "no_advantage"), fate="no_advantage"),
    group(2, rollout(1.0, "old", "dropped"), fate="dropped", reason="stale", why="it waited too long"),
    group(3, rollout(1.0, "yes", "evaluated"), fate="evaluated", step=3),
]  # fmt: skip

METRICS: list[Record] = [
    step(number, {}, attempt=1, **{
        "reward/mean": number / 3, "train/entropy": 1 / number, "batch/clipped_fraction": 0.02 * number,
        "groups/all_right": 0.1 * number, "groups/mixed": 0.6,
        "groups/all_wrong": 0.4 - 0.1 * number, "staleness/mean": 0.5 * number, "staleness/max": 1.0 * number,
        "staleness/allowed": 5.0 - number, "cost/total": 1.25 * number,
    })
    for number in (1, 2, 3)
]  # fmt: skip
EVALUATION = {
    "step": 3, "more": 2,
    "figures": [
        {"metric": "eval/percent_correct", "value": 0.8125, "low": 0.7, "high": 0.89, "samples": 64},
        {"metric": "eval/pass_at_4", "value": 0.9375, "low": 0.75, "high": 0.98, "samples": 64},
        {"metric": "eval/greedy_percent_correct", "value": 0.75, "low": 0.5, "high": 0.9},
        {"metric": "eval/the-longest-name-that-a-held-out-set-has/greedy_percent_correct", "value": 0.5},
        {"metric": "eval/hard/percent_correct", "value": 0.25, "low": 0.125, "high": 0.5, "samples": 128},
    ],
}  # fmt: skip


def hostile_records() -> list[Record]:
    """Every place for text in a file holds every hostile text."""
    found = [step(3, {"trained": 2 * len(HOSTILE)})]
    for number, text in enumerate(HOSTILE):
        call = {"function": {"name": text, "arguments": text}}
        said = [{"role": text, "content": text, "tool_calls": [call]}]
        answer = {"reward": 1.0, "advantage": 0.5, "components": {text: 1.0},
                  "sequences": [{**sequence("ab"), "pieces": [text, text]}]}  # fmt: skip
        shared: dict[str, Any] = {"item": {text: [text]}, "sampling": {text: text}, "prompt": text}
        found.append(group(number, answer, {**answer, "messages": said}, **shared))
        found.append(lost(text, why=text, item=text))
    long = {"reward": 0.0, "sequences": [{**sequence("ab"), "pieces": ["x" * 1_000_000, "y"]}]}
    return [*found, group(99, long, prompt="p" * 1_000_000)]


@dataclass(frozen=True)
class LocalPage:
    """`address` has the token, `origin` is the address without path; `admission`: the cookies of who was let in."""

    rlctl: Rlctl
    address: str
    origin: str
    admission: dict[str, StorageState] = field(default_factory=dict)

    def open(self, tabs: WatchedTabs, path: str = "/runs", **options: Any) -> Page:
        """A tab of a new browser window, with that page. The first window is let in by the address."""
        context = tabs.context(self.origin, storage_state=self.admission.get("state"), **options)
        page = context.new_page()
        if not self.admission:
            page.goto(self.address)
            page.wait_for_url("**/runs")
            self.admission["state"] = context.storage_state()
        if not page.url.endswith(path):
            self.go(page, path)
        return page

    def go(self, page: Page, path: str) -> None:
        page.goto(self.origin + path)

    def start_run(self, name: str, **spec: Any) -> subprocess.CompletedProcess[str]:
        document = {
            "apiVersion": "rl-operator.dev/v1alpha1",
            "kind": "RLTrainingRun",
            "metadata": {"name": name},
            "spec": {"environment": "sort_digits", "runtime": "tiny", **spec},
        }
        file = self.rlctl.root / f"{name}.yaml"
        file.write_text(yaml.safe_dump(document))
        return self.rlctl("run", str(file), "--local", "--detach")


def path_of(run: str, rest: str = "") -> str:
    return f"/runs/default/{run}{rest}"


@contextmanager
def running_page(root: Path) -> Iterator[LocalPage]:
    rlctl = Rlctl(root)
    with rlctl.start("ui", "--local", "--no-browser") as server:
        try:
            assert server.stdout is not None
            address = re.search(r"http://127\.0\.0\.1:\d+/\S*", server.stdout.readline())
            assert address, "`rlctl ui` printed no address"
            page = LocalPage(rlctl, address[0], address[0].partition("/?")[0])
            put_runs(page)
            yield page
        finally:
            server.send_signal(signal.SIGINT)
            end_everything(root)
        assert server.wait(END_SECONDS) in (0, 130)
        assert server.stderr is not None
        assert "Traceback" not in server.stderr.read()


def put_runs(page: LocalPage) -> None:
    """One that trains to its end, one that crashes, one that is refused, one of an older version; made rollouts."""
    rlctl, folder = page.rlctl, StateFolder(page.rlctl.root)
    started = page.start_run(FINISHED, config={"total_steps": STEPS, "steps_per_eval": 100})
    assert started.returncode == 0, started
    ends = {"trainer": "serve(); sys.exit('error: boom')", "environment": "serve(); time.sleep(2)"}
    start_scripted(rlctl.store, CRASHED, **ends, backoffLimit=0, runtime="tiny")
    page.start_run(REFUSED, config={"group_sise": 8})
    rlctl.store.create(stored_run(OLDER))
    rewards = [{"step": number, "rolloutReward": number / 3} for number in (1, 2, 3)]
    uid = folder.run(KEPT, phase="Succeeded", history=rewards, evaluation=EVALUATION)
    kept = folder.files(uid, {"3-1": RECORDS}, name=KEPT)
    (kept / "metrics-1.jsonl.zst").write_bytes(frame(*METRICS))
    folder.files(folder.run(MALICIOUS, phase="Succeeded", message="<img src=x onerror=alert(1)>"),
                 {"3-1": hostile_records()}, name=MALICIOUS)  # fmt: skip
    rlctl("list", "--local")  # a look at the runs starts the supervisor of the one that crashes
    rlctl.wait_for(REFUSED, lambda status: status.get("refusals"), "the refusal")
    rlctl.wait_for(CRASHED, lambda status: status.get("phase") == "Failed", "the crash")
    rlctl.wait_for(FINISHED, lambda status: status.get("phase") in ("Succeeded", "Failed"), "the end of training")


def stored_run(name: str) -> dict[str, Any]:
    """A run as the first version left it when it had succeeded: without rollouts and most of today's fields."""
    runs = json.loads(STORED.read_text())
    run: dict[str, Any] = next(run for run in runs if run["status"]["phase"] == "Succeeded")
    kept = {key: run["metadata"][key] for key in ("uid", "generation", "creationTimestamp")}
    return {**run, "metadata": {**kept, "name": name, "namespace": "default"}}
