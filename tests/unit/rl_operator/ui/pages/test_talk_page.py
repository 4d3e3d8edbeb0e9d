"""The page that asks weights. Real answers: tests/integration/local/test_weights.py."""

import contextlib
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import httpx
import pytest
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest
from tests.unit.rl_operator.ui.rollout_pages import StateFolder

from rl_operator.ui.pages.talk_page import TALKS, TalkAsked, commands, kept_weights, read_form

FORM = {
    "prompt": "hi",
    "weights": "final",
    "base": "on",
    "count": "2",
    "max_tokens": "8",
    "temperature": "0.5",
    "seed": "7",
}


def test_what_is_asked() -> None:
    form = read_form(FORM, ["final"])
    assert (form.asked, form.faults) == (TalkAsked("hi", "final", True, 2, 8, 0.5, 7), [])
    assert form.asked.options() == ("-n", "2", "--max-tokens", "8", "--temperature", "0.5", "--seed", "7")
    assert read_form({**FORM, "raw": "on"}, ["final"]).asked.options()[-1] == "--raw"


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"prompt": ""}, "prompt has 0 characters"),
        ({"prompt": " \n"}, "not all blank"),
        ({"prompt": "x" * 8001}, "prompt has 8,001 characters: it must have 1 to 8,000"),
        ({"weights": "other"}, "weights is 'other': it must be one of final"),
        ({"count": "5"}, "count is '5': it must be an integer from 1 to 4"),
        ({"count": ""}, "count is ''"),
        ({"max_tokens": "1e3"}, "from 1 to 1024"),
        ({"temperature": "nan"}, "temperature is 'nan': it must be a number from 0 to 2"),
        ({"temperature": "hot"}, "a number from 0 to 2"),
        ({"seed": "-1"}, "seed is '-1'"),
        ({"seed": "٣"}, "seed is"),
    ],
    ids=str,
)
def test_what_cannot_be_asked(change: dict[str, str], fault: str) -> None:
    (said,) = read_form({**FORM, **change}, ["final"]).faults
    assert fault in said


def test_somebody_must_be_asked() -> None:
    without = {name: value for name, value in FORM.items() if name != "base"} | {"weights": ""}
    assert read_form(without, ["final"]).faults == ["nobody was asked: choose weights, the base model, or both"]


CHECKPOINT = {"step": 4, "statePath": "tinker://r/weights/4"}
BEST = {
    "step": 2,
    "heldOut": {"value": 0.5},
    "statePath": "tinker://r/weights/2",
    "samplerPath": "tinker://r/sampler_weights/2",
}
FINAL = {"samplerPath": "tinker://r/sampler_weights/f"}


@pytest.mark.parametrize(
    ("status", "names"),
    [
        ({}, []),
        ({"checkpoint": CHECKPOINT}, ["checkpoint"]),
        ({"checkpoint": CHECKPOINT, "best": BEST, "weights": FINAL}, ["final", "best", "checkpoint"]),
    ],
    ids=["none", "while it trains", "at the end"],
)
def test_weights_that_the_status_lists(status: dict[str, Any], names: list[str]) -> None:
    assert [each.name for each in kept_weights(parsed(run_manifest(**status)))] == names


def test_commands_do_the_same_and_quote_what_was_typed() -> None:
    run = parsed(run_manifest(checkpoint=CHECKPOINT, best=BEST, weights=FINAL))
    asked = TalkAsked("it's; rm -rf /", "best", count=2)
    sampling = "--max-tokens 256 --temperature 1 --seed 0"
    prompt = """'it'"'"'s; rm -rf /'"""
    assert commands(asked, run, kept_weights(run), "tiny", " --context c") == [
        f"rlctl sample sorting --context c --best {sampling} --count 2 -- {prompt}",
        f"rlctl sample sorting --context c --base {sampling} --count 2 -- {prompt}",
    ]


PATH = "/runs/default/sorting/talk"
WEIGHTS = {"weights": {"samplerPath": "tinker://r/sampler_weights/f"}}
GOOD = {"prompt": "hi", "weights": "final", "count": "1", "max_tokens": "8", "temperature": "1", "seed": "0"}
KEY = "tml-secret-key-of-mine"


@pytest.fixture
def folder_with_weights(tmp_path: Path) -> StateFolder:
    found = StateFolder(tmp_path)
    found.run(**WEIGHTS)
    return found


async def sent(folder: StateFolder, form: Any, variables: dict[str, str] | None = None) -> httpx.Response:
    async with folder.browser(variables) as browser:
        content = form if isinstance(form, bytes) else urlencode(form).encode()
        return await browser.post(PATH, content=content, headers={"Content-Type": "application/x-www-form-urlencoded"})


async def shown(folder: StateFolder, variables: dict[str, str] | None = None) -> str:
    async with folder.browser(variables) as browser:
        answer = await browser.get(PATH)
        assert answer.status_code == 200
        return answer.text


async def test_what_there_is_to_ask(folder_with_weights: StateFolder) -> None:
    html = await shown(folder_with_weights, {})
    assert 'value="final" checked' in html
    assert "tinker://r/sampler_weights/f" in html
    assert ">Ask</button>" in html


async def test_a_run_without_weights(tmp_path: Path) -> None:
    folder = StateFolder(tmp_path)
    folder.run(phase="Failed")
    html = await shown(folder, {})
    assert "There are no weights of this run: it is Failed, and has saved no checkpoint." in html
    assert 'type="radio"' not in html


async def test_without_a_key_of_the_visitor_the_commands_are_shown(folder_with_weights: StateFolder) -> None:
    html = (await sent(folder_with_weights, {**GOOD, "prompt": "it's <b>"})).text
    assert "This server has no key of yours" in html
    assert "rlctl sample sorting --max-tokens 8 --temperature 1 --seed 0 -- " in html
    assert "&lt;b&gt;" in html
    assert "<b>&#39;" not in html


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"prompt": "x" * 8001}, "prompt has 8,001 characters"),
        ({"temperature": "9"}, "temperature is &#39;9&#39;: it must be a number from 0 to 2"),
        ({"weights": "<script>"}, "weights is &#39;&lt;script&gt;&#39;: it must be one of final"),
        ({"weights": ""}, "nobody was asked"),
    ],
    ids=str,
)
async def test_what_cannot_be_asked_is_named_and_keeps_the_form(
    folder_with_weights: StateFolder, change: dict[str, str], said: str
) -> None:
    answer = await sent(folder_with_weights, {**GOOD, **change}, {})
    assert answer.status_code == 400
    assert said in answer.text
    assert 'name="seed"' in answer.text


async def test_a_form_that_is_too_large_is_not_read(folder_with_weights: StateFolder) -> None:
    answer = await sent(folder_with_weights, b"prompt=" + b"x" * 200_000, {})
    assert answer.status_code == 400
    assert "write a shorter prompt" in answer.text


async def test_bytes_that_are_no_form(folder_with_weights: StateFolder) -> None:
    assert (await sent(folder_with_weights, b"\xff\xfe=%ff&&==", {})).status_code == 400


async def test_too_many_at_once_are_told_to_wait(folder_with_weights: StateFolder) -> None:
    with contextlib.ExitStack() as taken:
        for _ in range(2):
            assert TALKS.acquire(blocking=False)
            taken.callback(TALKS.release)
        answer = await sent(folder_with_weights, GOOD, {})
    assert answer.status_code == 429
    assert "send it again in a few seconds" in answer.text


async def test_what_fails_is_said_without_a_key(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without the program, nobody answers; the runtime has a backend of its own, so none is started here."""
    folder = StateFolder(tmp_path)
    folder.run(spec={"runtime": "default"}, **WEIGHTS)
    monkeypatch.setattr("sys.executable", "/nowhere/python")
    monkeypatch.setenv("PATH", "/nowhere")
    answer = await sent(folder, GOOD, {"TINKER_API_KEY": KEY})
    assert "the program &#39;tinker-atropos&#39; is not there" in answer.text
    assert KEY not in answer.text
    without = await sent(folder, GOOD, {})
    assert "TINKER_API_KEY is not set" in without.text
