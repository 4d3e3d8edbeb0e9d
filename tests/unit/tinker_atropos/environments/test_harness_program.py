"""What a harness' program is told, and what is read from what it leaves behind."""

import dataclasses
from typing import Any

import pytest

from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.harness_program import (
    MAX_VARIABLE_BYTES,
    ProgramFailedError,
    Start,
    check_command,
    check_env_vars,
    item_text,
    last_line,
    last_words,
    prompt_text,
    rewards_of,
)
from tinker_atropos.environments.sessions.rollout_session import RolloutSession
from tinker_atropos.errors import ConfigError

URL = "http://127.0.0.1:8000/v1"


async def never(*_: Any) -> list:
    raise AssertionError("nothing is sampled here")


def start(prompt: str = "sort 4 1 3 2") -> Start:
    renderer = chat_renderer(Tokenizer("bundled"), "bundled")
    return Start(RolloutSession(URL, renderer, never, 100), "some/model", prompt)


def test_placeholders_are_replaced_and_other_braces_stay():
    told = start("a {model} is no placeholder in a prompt")
    text = told.filled("{prompt}|{model}|{base_url}|{api_key}|{}|{item}|{{x}}")
    expected = f"{told.prompt}|some/model|{URL}|{told.session.api_key}|{{}}|{{item}}|{{{{x}}}}"
    assert text == expected


def test_variables_of_the_session_of_the_config_and_more():
    told = start()
    env_vars = told.env_vars({"LLM": "{base_url}/x", "HOME": "/opt"}, {"RL_ITEM": "[1]"})
    key = told.session.api_key
    assert env_vars == {
        "LLM": f"{URL}/x",
        "HOME": "/opt",
        "OPENAI_BASE_URL": URL,
        "OPENAI_API_BASE": URL,
        "OPENAI_API_KEY": key,
        "OPENAI_MODEL": "some/model",
        "ANTHROPIC_BASE_URL": URL.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": key,
        "RL_MODEL": "some/model",
        "RL_PROMPT": told.prompt,
        "RL_ITEM": "[1]",
    }


def test_a_prompt_that_is_too_long_for_a_variable_is_given_in_other_ways_only():
    assert "RL_PROMPT" not in start("é" * MAX_VARIABLE_BYTES).env_vars({}, {})


def test_the_texts_of_a_prompt():
    assert prompt_text([{"role": "system", "content": "Be brief."}, {"role": "user", "content": "2 + 3"}]) == (
        "Be brief.\n\n2 + 3"
    )


@dataclasses.dataclass
class Item:
    question: str
    answers: set[int]


@pytest.mark.parametrize(
    ("item", "text"),
    [
        ((1, 2), "[1,2]"),
        ({"a": "é"}, '{"a":"é"}'),
        (Item("2 + 3", {5}), '{"question":"2 + 3","answers":[5]}'),
        (float("nan"), "NaN"),
        (range(3), '"range(0, 3)"'),
    ],
)
def test_an_item_as_json(item: Any, text: str):
    assert item_text(item) == text


@pytest.mark.parametrize("name", ["OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL", "ANTHROPIC_API_KEY", "RL_X"])
def test_variables_that_are_ours_are_refused(name: str):
    with pytest.raises(ConfigError, match=f"env.env_vars names '{name}', which each rollout gets a value of its own"):
        check_env_vars({"HOME": "/opt", name: "x"})


@pytest.mark.parametrize("name", ["", "1A", "A=B", "A B", "É"])
def test_names_that_no_variable_has(name: str):
    with pytest.raises(ConfigError, match="letters, digits and '_' only"):
        check_env_vars({name: "x"})


@pytest.mark.parametrize(
    "command",
    [["agent"], ["python", "/opt/agent.py"], ["python", "-m", "agent"], ["/opt/agent", "{prompt}", "notes.py"]],
)
def test_commands_that_can_be_started(command: list[str]):
    check_command(command)


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ([], "env.command is empty"),
        ([""], "env.command is empty"),
        (["python", "agent.py"], "names 'agent.py', and a program starts in an empty folder of its own"),
        (["./agent"], "names './agent'"),
        (["python", "-u", "../agent.py"], "names '../agent.py'"),
    ],
)
def test_commands_that_cannot(command: list[str], message: str):
    with pytest.raises(ConfigError, match=message):
        check_command(command)


def test_the_end_of_an_output_without_the_key():
    assert last_words("one\ntwo\n\nthree\n  key rl-1 \nfour\n", "rl-1") == "three | key (the rollout's key) | four"
    assert last_words("x" * 999, "rl-1") == "x" * 200
    assert last_words("\n \n", "rl-1") == "it printed nothing"
    assert (last_line("one\ntwo \n\n"), last_line("\n")) == ("two", "")


@pytest.mark.parametrize(
    ("content", "rewards"),
    [
        (b"0.5\n", 0.5),
        (b"1", 1.0),
        (b'{"right": 1, "short": 0.25}', {"right": 1.0, "short": 0.25}),
    ],
)
def test_rewards_of_a_result_file(content: bytes, rewards: float | dict[str, float]):
    assert rewards_of(content, "result.json") == rewards


@pytest.mark.parametrize("content", [b"", b"well done", b"[1]", b"{}", b'{"right": "1"}', b'"1"', b"null", b"\xff"])
def test_result_files_that_say_no_reward(content: bytes):
    with pytest.raises(ProgramFailedError, match=r"r\.json has .*: it must be a JSON number, or an object of numbers"):
        rewards_of(content, "r.json")
