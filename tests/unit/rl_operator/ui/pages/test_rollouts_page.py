"""The page of a step's rollouts, over files as trainers write them and as nobody should."""

import asyncio
import json
import re
import threading
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import frame, group, lost, rollout, sequence, step
from tests.unit.rl_operator.ui.rollout_pages import HOSTILE, StateFolder

from rl_operator.documents.parse import parse_stored_run
from rl_operator.rollouts.rollout_source import RolloutListing, RolloutSource
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.ui.ui_context import MOST_READERS
from rl_operator.ui.views.rollout_address import SORTS

END_SECONDS = 60  # only ends a hang
PATH = "/runs/default/sorting/rollouts"
RECORDS: list[dict[str, Any]] = [
    lost("timeout", count=3, tokens=7),
    step(3, {"trained": 6, "no_advantage": 3, "dropped": 3}, **{"reward/mean": 0.5}),
    group(0, rollout(0.0, "bad", components={"length": 0.5}), rollout(1.0, "good"[:3], policy=1), item={"a": 1},
          sampling={"temperature": 0.7}),
    group(1, rollout(1.0, "eq1", "no_advantage"), fate="no_advantage"),
    group(0, rollout(1.0, "old", "dropped"), fate="dropped", reason="stale", why="it waited too long"),
    group(0, rollout(1.0, "right", "evaluated"), fate="evaluated", step=3),
    group(1, rollout(0.0, "wrong", "evaluated"), fate="evaluated", step=3),
    lost("equal", count=5, what="group"),
]  # fmt: skip


class Page(HTMLParser):
    """What a browser makes of it: tags, attributes, and the text that is seen."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.text = ""
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, dict(attrs)))

    def handle_data(self, data: str) -> None:
        self.text += data

    @property
    def links(self) -> list[str]:
        return [attributes["href"] or "" for tag, attributes in self.tags if tag == "a" and "href" in attributes]


@pytest.fixture
def state_folder(tmp_path: Path) -> StateFolder:
    return StateFolder(tmp_path)


async def get(folder: StateFolder, query: str = "", path: str = PATH) -> httpx.Response:
    async with folder.browser() as browser:
        return await browser.get(path + query)


async def page(folder: StateFolder, query: str = "", status: int = 200) -> Page:
    answer = await get(folder, query)
    assert answer.status_code == status
    return Page(answer.text)


@pytest.fixture
def trained_folder(state_folder: StateFolder) -> StateFolder:
    state_folder.files(state_folder.run(), {"1-1": [step(1, {})], "3-1": RECORDS, "4-1": [lost("raised")]})
    return state_folder


@pytest.mark.parametrize(("number", "commands"), [(3, ["rlctl replay sorting --step 3"]), (4, [])])
async def test_the_command_that_computes_a_trained_step_again(
    trained_folder: StateFolder, number: int, commands: list[str]
) -> None:
    found = await page(trained_folder, f"?step={number}")
    assert [attributes["data-copy-text"] for _, attributes in found.tags if "data-copy-text" in attributes] == commands


async def test_a_step_with_its_ledger_reasons_and_groups(trained_folder: StateFolder) -> None:
    found = await page(trained_folder, "?step=3")
    words = re.sub(r"\s+", " ", found.text)
    for said in (
        "Trained, batch reward 0.5; held-out mean reward 0.5.",
        "12 tokens arrived, and the account balances",
        "Another 7 were sampled for groups and rollouts that never arrived",
        "all for training 3",
        "no advantage 1",
        "held out 2",
        "group dropped by the trainer",
        "stale: it waited too long",
        "rollouts lost",
        "groups only counted",
        "timeout: it was timeout",
        'item{"a":1}',
        "temperature 0.7",
        "staleness2",
        "length0.5",
        "The trainer dropped it, stale: it waited too long",
    ):
        assert said in words
    assert [href for href in found.links if "step=1" in href]
    assert "4" in words


async def test_without_a_step_the_newest_finished_one_is_shown(trained_folder: StateFolder) -> None:
    assert "Step 3 of sorting" in (await page(trained_folder)).text


@pytest.mark.parametrize(
    ("query", "shown", "hidden"),
    [
        ("?step=3&fate=dropped", "old", "bad"),
        ("?step=3&fate=evaluated", "1 right (reward 1 or more), 1 wrong", "bad"),
        ("?step=3&fate=lost", "it was timeout", "bad"),
        ("?step=3&reward=0-0.5", "1 of its 2 rollouts match", "eq1"),
        ("?step=3&q=eq1", "1 group, 1 rollout that match", "bad"),
        ("?step=3&group=0&fate=trained", "Only group 0", "eq1"),
        ("?step=3&page=9", "There is no page 9", "bad"),
        ("?step=3&view=talk", "policy", "Colors:"),
        ("?step=3&color=fate", "muted", "no-such"),
        ("?step=3&color=rainbow", "color is 'rainbow' and was left out", "no-such"),
        ("?q=eq1&scope=all", "Searched steps 4 to 1 (5 groups)", "Colors:"),
    ],
)
async def test_choices(trained_folder: StateFolder, query: str, shown: str, hidden: str) -> None:
    words = re.sub(r"\s+", " ", (await page(trained_folder, query)).text)
    assert shown in words
    assert hidden not in words


async def test_every_link_of_the_page_leads_somewhere(trained_folder: StateFolder) -> None:
    found = await page(trained_folder, "?step=3&reward=0-1&color=gap")
    ours = {href for href in found.links if href.startswith(PATH)}
    assert len(ours) > 8
    async with trained_folder.browser() as browser:
        assert {(await browser.get(href)).status_code for href in ours} == {200}


async def test_a_step_that_is_not_there(trained_folder: StateFolder) -> None:
    assert "the nearest steps that have some: 1, 3, 4" in (await page(trained_folder, "?step=2", 404)).text


async def test_downloads(trained_folder: StateFolder) -> None:
    answer = await get(trained_folder, "?step=3&fate=no_advantage", f"{PATH}.jsonl")
    assert answer.headers["content-disposition"] == 'attachment; filename="sorting-step-3.jsonl"'
    assert answer.headers["content-type"] == "application/jsonl"
    assert [json.loads(line) for line in answer.text.splitlines()] == [RECORDS[3]]
    whole = await get(trained_folder, "?step=3", f"{PATH}.jsonl")
    assert [json.loads(line) for line in whole.text.splitlines()] == RECORDS
    assert (await get(trained_folder, "?fate=bad", f"{PATH}.jsonl")).status_code == 404


class SlowSource:
    """Counts how many read from it at once, and lets them end together."""

    where = "here"

    def __init__(self, source: RolloutSource) -> None:
        self._source = source
        self.begun = threading.Semaphore(0)
        self.may_end = threading.Event()
        self.reading = self.most = 0

    def listing(self) -> RolloutListing:
        return self._source.listing()

    def content(self, name: str, begin: int = 0) -> bytes:
        self.reading += 1
        self.most = max(self.most, self.reading)
        self.begun.release()
        assert self.may_end.wait(END_SECONDS)
        self.reading -= 1
        return self._source.content(name, begin)


async def test_however_many_look_only_few_steps_are_in_memory(
    trained_folder: StateFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = parse_stored_run(existing_run(trained_folder.target, "default", "sorting"))
    source = SlowSource(trained_folder.target.rollouts(run))
    monkeypatch.setattr(trained_folder.target, "rollouts", lambda *_, **__: source)
    async with trained_folder.browser() as browser:
        looks = [asyncio.create_task(browser.get(f"{PATH}?step=3&sort={sort}")) for sort in SORTS for _ in range(5)]
        for _ in range(MOST_READERS):
            assert await asyncio.to_thread(source.begun.acquire, timeout=END_SECONDS)
        assert (await browser.get(f"{PATH}/newest")).text == "4"  # others are answered meanwhile
        source.may_end.set()
        answers = await asyncio.gather(*looks)
    assert {answer.status_code for answer in answers} == {200}
    assert source.most == MOST_READERS


async def test_a_script_asks_for_the_newest_step(trained_folder: StateFolder) -> None:
    assert (await get(trained_folder, path=f"{PATH}/newest")).text == "4"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"startTime": None}, "has not started, so it has no rollouts yet"),
        ({}, "they are there when the first step is trained"),
        ({"phase": "Failed", "completionTime": "2026-01-01T00:00:01Z", "message": "container trainer failed <b>"},
         "container trainer failed <b>"),
    ],
)  # fmt: skip
async def test_a_run_without_rollouts(state_folder: StateFolder, status: dict[str, Any], said: str) -> None:
    state_folder.run(**status)
    assert said in (await page(state_folder)).text


async def test_an_attempt_that_was_killed_and_a_later_version(state_folder: StateFolder) -> None:
    whole = frame(step(3, {"trained": 6}), {"record": "dream", "of": "sheep"}, group(0, rollout(1.0), rollout(0.0)))
    state_folder.files(state_folder.run(), {"3-2": whole + frame(group(1, rollout(1.0)))[:-3], "3-1": RECORDS})
    words = (await page(state_folder, "?step=3")).text
    assert "attempt 1 trained step 3, too; its weights were lost, and it is not shown" in words
    assert "1 frame is torn or damaged" in words
    assert "1 record of a kind" in words
    assert "Trained by attempt 2" in words


UNSEEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]")


@pytest.mark.parametrize("text", HOSTILE, ids=ascii)
async def test_hostile_text_is_text(state_folder: StateFolder, text: str) -> None:
    uid = state_folder.run()
    of_pieces = {**sequence("ab"), "pieces": [text, text]}
    hostile = {
        "reward": 1.0, "advantage": 0.5, "components": {text: text}, "sequences": [of_pieces],
        "messages": [{"role": text, "content": text, "tool_calls": [{"function": {"name": text, "arguments": text}}]}],
    }  # fmt: skip
    record = group(0, hostile, fate="dropped", reason=text, why=text, item={text: [text]}, sampling={text: text})
    record["prompt"] = {"tokens": [1], "pieces": [text]}
    bare = {**record, "rollouts": [{**hostile, "messages": None}]}
    state_folder.files(uid, {"3-1": [lost(text, why=text, item=text), step(3, {text: 1, "trained": 1}), record, bare]})
    plain = {tag for tag, _ in (await page(state_folder, "?step=3")).tags}
    for query in ("?step=3", "?step=3&view=talk", "?step=3&fate=lost", "?step=3&color=fate&group=0&fate=dropped"):
        found = await page(state_folder, query)
        names = {name for _, attributes in found.tags for name in attributes}
        assert "script" not in {tag for tag, attributes in found.tags if "src" not in attributes}
        assert not {"onerror", "onload", "style"} & names
        assert {tag for tag, _ in found.tags} <= plain | {"ol", "li", "i", "table", "tr", "td", "b"}
        assert not re.search(
            r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200b\u202a-\u202e\u2028\u2029\u2066-\u2069\ufeff]", found.text
        )
        assert "49" not in re.findall(r"\b49\b", found.text)


async def test_the_text_that_was_asked_for_is_escaped_too(trained_folder: StateFolder) -> None:
    html = (await get(trained_folder, "?step=3&q=%22%3E%3Cscript%3Ealert(1)%3C/script%3E")).text
    assert "<script>alert" not in html
    assert 'value="&#34;&gt;&lt;script&gt;' in html


async def test_a_megabyte_in_one_line_does_not_fill_the_page(state_folder: StateFolder) -> None:
    long = {**sequence("ab"), "pieces": ["x" * 1_000_000, "y"]}
    size = 50_000
    many = {
        "tokens": [1] * size, "pieces": ["ab"] * size, "logprobs": [-1.0] * size, "trained_logprobs": [-1.0] * size,
        "policy_steps": [[0, size, 2]], "fates": [[0, size, "trained"]],
    }  # fmt: skip
    talk = [{"role": "assistant", "content": "m" * 1_000_000}]
    records = [
        step(3, {}), group(0, {"reward": 1.0, "sequences": [long], "messages": talk}, item="i" * 1_000_000),
        *(group(number, {"reward": 0.0, "sequences": [many]}, prompt="p" * 5_000) for number in (1, 2)),
    ]  # fmt: skip
    state_folder.files(state_folder.run(), {"3-1": records})
    answer = await get(state_folder, "?step=3")
    assert len(answer.text) < 300_000
    assert "(999,800 more characters)" in answer.text
    assert "The first 400 of 50,000 tokens" in answer.text
    alone = await get(state_folder, "?step=3&group=1&fate=trained")
    assert "Show all tokens" not in alone.text
    assert '<p class="quiet">The first' not in alone.text
    assert len((await get(state_folder, "?step=3&view=talk")).text) < 300_000


async def test_bytes_that_are_not_text(state_folder: StateFolder) -> None:
    sequences = b'[{"tokens":[1],"pieces":["\xff\xfe"],"fates":[[0,1,"trained"]]}]'
    line = b'{"record":"group","group":0,"fate":"trained","rollouts":[{"reward":1,"sequences":%s}]}\n' % sequences
    state_folder.files(state_folder.run(), {"3-1": [step(3, {"trained": 1}), line, b"\xff\xff{\n", b"[]\n"]})
    words = (await page(state_folder, "?step=3")).text
    assert "\ufffd" in words
    assert "2 lines are not readable and left out" in words
