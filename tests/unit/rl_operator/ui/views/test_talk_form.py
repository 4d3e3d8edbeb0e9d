"""What a form may ask of weights, and what there is to ask."""

from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.ui.views.talk_form import TalkAsked, commands, kept_weights, read_form

GOOD = {
    "prompt": "hi",
    "weights": "final",
    "base": "on",
    "count": "2",
    "max_tokens": "8",
    "temperature": "0.5",
    "seed": "7",
}


def test_what_is_asked() -> None:
    form = read_form(GOOD, ["final"])
    assert (form.asked, form.faults) == (TalkAsked("hi", "final", True, 2, 8, 0.5, 7), [])
    assert form.asked.options() == ("-n", "2", "--max-tokens", "8", "--temperature", "0.5", "--seed", "7")
    assert read_form({**GOOD, "raw": "on"}, ["final"]).asked.options()[-1] == "--raw"


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
    (said,) = read_form({**GOOD, **change}, ["final"]).faults
    assert fault in said


def test_somebody_must_be_asked() -> None:
    without = {name: value for name, value in GOOD.items() if name != "base"} | {"weights": ""}
    assert read_form(without, ["final"]).faults == ["nobody was asked: choose weights, the base model, or both"]


CHECKPOINT = {"step": 4, "statePath": "tinker://r/weights/4"}
BEST = {
    "step": 2,
    "evalAccuracy": 0.5,
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
