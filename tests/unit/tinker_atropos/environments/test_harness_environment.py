"""Programs as agents, each in a sandbox: what they are told, what they are paid, and how they end."""

import asyncio
import dataclasses
import random
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tinker_atropos.environments.harness_programs import ITEM, one_rollout, python, serving
from tests.unit.tinker_atropos.environments.scripted_environment import TOKENIZER

from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.adapters.harness.task_harness import environment_class
from tinker_atropos.environments.harness_environment import (
    MAX_VARIABLE_BYTES,
    HarnessEnvironment,
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
from tinker_atropos.environments.items.grader_check import warnings_about_grader
from tinker_atropos.environments.rollout.rollouts import FailedRollout, Rollout
from tinker_atropos.environments.sessions.rollout_session import RolloutSession
from tinker_atropos.errors import ConfigError

ANSWER = python("print(ask(sys.argv[1]))", "{prompt}")
TOLD = {
    "an argument": ANSWER,
    "stdin": python("print(ask(sys.stdin.read()))"),
    "a variable": python("print(ask(os.environ['RL_PROMPT']))"),
    "placeholders": python("print(ask(*sys.argv[1:]))", "{prompt}", "{base_url}", "{api_key}"),
}


@pytest.mark.process
@pytest.mark.parametrize("command", TOLD.values(), ids=TOLD)
async def test_a_program_is_told_and_paid_for_its_answer(command: list[str]) -> None:
    async with serving(command) as env:
        outcome = await one_rollout(env)
        assert isinstance(outcome, Rollout), outcome
        [sequence] = outcome.sequences
        assert outcome.score == 1.0
        assert "sort 4 1 3 2<|im_end|>" in TOKENIZER.decode(sequence.tokens)
        assert TOKENIZER.decode(sequence.tokens).endswith("1234<|im_end|>")


@pytest.mark.process
async def test_variables_of_the_config() -> None:
    code = "ask('sort'); print(os.environ['WHERE'] == os.environ['OPENAI_BASE_URL'] and os.environ['WHO'])"
    async with serving(python(code), env_vars={"WHERE": "{base_url}", "WHO": "1234"}) as env:
        assert (await one_rollout(env)).score == 1.0


@pytest.mark.process
async def test_an_item_is_not_shown_to_a_program_whose_answer_is_scored() -> None:
    code = "ask('sort'); print('RL_ITEM' in os.environ, 'RL_RESULT_FILE' in os.environ)"
    async with serving(python(code), include_messages=True) as env:
        assert (await one_rollout(env)).messages[-1]["content"] == "False False"


ANSWERS = {
    "all that it prints": ("output", "print(ask('sort'))", 1.0),
    "with more, it is wrong": ("output", "print('thinking'); print(ask('sort'))", 0.0),
    "the last line": ("last_line", "print('thinking'); print(ask('sort')); print()", 1.0),
    "what the policy said last": ("last_message", "ask('sort'); print('done')", 1.0),
    "a file": ("answer.txt", "open('answer.txt', 'w').write(ask('sort'))", 1.0),
}


@pytest.mark.process
@pytest.mark.parametrize(("answer_from", "code", "score"), ANSWERS.values(), ids=ANSWERS)
async def test_where_the_answer_is(answer_from: str, code: str, score: float) -> None:
    async with serving(python(code), answer_from=answer_from) as env:
        assert (await one_rollout(env)).score == score


FAILURES = {
    "an exit code": ("ask('sort'); print('no way'); sys.exit(3)", {}, "ended with exit code 3: no way"),
    "an exception": ("ask('sort'); raise ValueError('odd')", {}, "exit code 1: .*ValueError: odd"),
    "a signal": ("ask('sort'); os.kill(os.getpid(), 9)", {}, "exit code 137: it printed nothing"),
    "its key is not told": ("ask('sort'); sys.exit(os.environ['OPENAI_API_KEY'])", {}, r"\(the rollout's key\)"),
    "too long": (
        "ask('sort'); print('waiting', flush=True); import time; time.sleep(60)",
        {"rollout_seconds": 8},  # a tenth of it is left for what comes after
        "the program had not ended after 8 s: waiting",
    ),
    "nothing asked": ("print(1234)", {}, "before it had asked the policy anything"),
    "no answer file": ("ask('sort')", {"answer_from": "answer.txt"}, "the program has left no answer.txt"),
    "no result file": ("ask('sort')", {"score": "result_file"}, "the program has left no result.json"),
    "no room": ("ask('sort ' * 400)", {"max_token_length": 64}, "exit code 1: .*HTTP Error 400"),
    "too many processes": (
        "import subprocess, time; ask('sort'); [subprocess.Popen(['sleep', '60']) for _ in range(9)]; time.sleep(20)",
        {"max_processes": 6},
        "exit code 137: .*killed",
    ),
}


@pytest.mark.process
@pytest.mark.parametrize(("code", "config", "message"), FAILURES.values(), ids=FAILURES)
async def test_a_program_that_fails_costs_its_rollout(code: str, config: dict, message: str) -> None:
    async with serving(python(code), **config) as env:
        outcome = await one_rollout(env)
        assert isinstance(outcome, FailedRollout)
        with pytest.raises(AssertionError, match=message):
            raise AssertionError(outcome.message)


@pytest.mark.process
async def test_an_output_is_bounded() -> None:
    async with serving(
        python("ask('sort'); print('x' * 999_999); print('1234')"), answer_from="last_line", output_limit=1000
    ) as env:
        assert (await one_rollout(env)).score == 1.0
        env.config.answer_from, env.config.include_messages = "output", True
        said = (await one_rollout(env)).messages[-1]["content"]
        assert 1000 <= len(said) <= 1100
        assert "bytes are left out" in said


REWARDS = {
    "several": ('{"right": 1, "short": 0.5}', 1.5),
    "a text": ("well done", r"result\.json has 'well done'"),
    "no finite number": ("NaN", "must be a finite number"),
}


@pytest.mark.process
@pytest.mark.parametrize(("content", "reward"), REWARDS.values(), ids=REWARDS)
async def test_a_program_that_scores_itself(content: str, reward: float | str) -> None:
    code = (
        "ask('sort'); assert json.loads(os.environ['RL_ITEM']) == [4, 1, 3, 2];"
        f"open(os.environ['RL_RESULT_FILE'], 'w').write({content!r})"
    )
    async with serving(python(code), score="result_file") as env:
        outcome = await one_rollout(env)
        if isinstance(reward, float):
            assert outcome.score == reward
            by_name = {"rewards/right": [1.0], "rewards/short": [0.5]} if reward > 1 else {}
            assert {name: values for name, values in env._figures.items() if name.startswith("rewards/")} == by_name
        else:
            with pytest.raises(AssertionError, match=reward):
                raise AssertionError(outcome.message)
        assert await env.score_answer(ITEM, "1234") is None
        assert await warnings_about_grader(env, Path(__file__)) == ()


@pytest.mark.process
async def test_a_group_has_a_sandbox_for_each_rollout() -> None:
    """A file that one leaves behind would make the next one fail."""
    code = "open('mine', 'x').close(); print(ask(sys.argv[1]))"
    async with serving(python(code, "{prompt}"), texts=["1234", "4321"], group_size=4) as env:
        group, _ = await env.collect_trajectories(ITEM)
        assert sorted(group["scores"]) == [0.0, 0.0, 1.0, 1.0]
        assert env.reported == []


@pytest.mark.process
async def test_what_a_program_started_is_dead_after_its_rollout() -> None:
    seconds = str(1_000_000 + random.randrange(1_000_000))
    code = (
        f"import subprocess; [subprocess.Popen(['sleep', '{seconds}'], start_new_session=True) for _ in range(3)];"
        "print(ask(sys.argv[1]))"
    )
    async with serving(python(code, "{prompt}"), answer_from="last_line") as env:
        assert (await one_rollout(env)).score == 1.0
        await _all_end(seconds)


@pytest.mark.process
async def test_the_end_of_a_run_ends_its_programs() -> None:
    seconds = str(1_000_000 + random.randrange(1_000_000))
    code = f"import subprocess; print(ask('sort')); subprocess.run(['sleep', '{seconds}'])"
    async with serving(python(code)) as env:
        rollout = asyncio.create_task(one_rollout(env))
        while not _running(seconds):  # bounded by the test's timeout
            await asyncio.sleep(0.05)
        rollout.cancel()
        await asyncio.wait([rollout])
        await _all_end(seconds)


async def _all_end(argument: str) -> None:
    for _ in range(200):
        if not _running(argument):
            return
        await asyncio.sleep(0.05)
    pytest.fail(f"sleep {argument} is still running")


def _running(argument: str) -> list[str]:
    """The processes of this machine, those in sandboxes too, that were started with exactly this argument."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            found += [str(path)] if argument.encode() in path.read_bytes().split(b"\0") else []
        except OSError:  # it ended meanwhile
            continue
    return found


REFUSED = {
    "no such program": (["no-such-agent"], {}, "there is no such program where the environment runs"),
    "a relative path": (["python", "agent.py"], {}, "give an absolute path"),
    "a variable of ours": (["python"], {"env_vars": {"OPENAI_API_KEY": "x"}}, "env.env_vars names 'OPENAI_API_KEY'"),
}


@pytest.mark.process
@pytest.mark.parametrize(("command", "config", "message"), REFUSED.values(), ids=REFUSED)
async def test_refused_before_anything_is_sampled(command: list[str], config: dict, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        async with serving(command, **config):
            pytest.fail("it was set up")


@pytest.mark.process
async def test_a_task_without_a_scorer_needs_a_result_file() -> None:
    unscored = type("Unscored", (environment_class("sort_digits"),), {"score": HarnessEnvironment.score})
    with pytest.raises(ConfigError, match="Unscored has no method score"):
        async with serving(ANSWER, task=unscored):
            pytest.fail("it was set up")
    async with serving(python("ask('sort'); open('result.json', 'w').write('1')"), task=unscored, score="result_file"):
        pass


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


OURS = ("OPENAI_BASE_URL", "OPENAI_API_KEY", "OPENAI_MODEL", "ANTHROPIC_API_KEY", "RL_X")


@pytest.mark.parametrize("name", [*OURS, "", "1A", "A=B", "A B", "É"])
def test_variables_that_are_ours_and_names_that_no_variable_has_are_refused(name):
    why = f"'{name}', which each rollout gets a value of its own" if name in OURS else "letters, digits and '_' only"
    with pytest.raises(ConfigError, match=why):
        check_env_vars({"HOME": "/opt", name: "x"})


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
