"""Steps of real environments against a provider over HTTP."""

from pathlib import Path

import pytest
from tests.unit.tinker_atropos.environments.trial.conftest import set_up
from tests.unit.tinker_atropos.environments.trial.provider import KEY, ScriptedProvider

from tinker_atropos.environments.trial.provider import Wishes
from tinker_atropos.environments.trial.trial_step import refuse_unless_prompts_are_scored
from tinker_atropos.errors import ConfigError, CredentialsError

DATA = Path(__file__).parents[4] / "data" / "environments"


async def tried(provider, name, model):
    """The step of the first item."""
    trying, _ = await set_up(provider, name, model)
    return await trying.item(1)


@pytest.mark.parametrize(("model", "correct"), [("right", 4), ("wrong", 0), ("half", 2), ("flaky", 4)])
async def test_a_group_is_answered_and_scored_by_the_environment(provider, model, correct):
    step = await tried(provider, "sort_digits", model)
    assert (len(step.scores), step.correct, step.error, step.unscored) == (4, correct, None, 0)
    assert provider.keys == {KEY}
    assert set(provider.paths) == {"/v1/chat/completions"}
    assert {"n"} & set(provider.requests[0]) == set()
    [message] = provider.requests[0]["messages"]  # as the environment wrote it, not as its tokenizer rendered it
    assert message["role"] == "user"
    assert message["content"].startswith("sort ")


@pytest.mark.process
@pytest.mark.parametrize("file", ["plain_game.py", "second_chance.py"])
async def test_realistic_files_are_tried(provider, monkeypatch, file):
    monkeypatch.setenv("ATROPOS_ALLOW_DUMMY_MANAGED_SERVER", "1")
    trying, _ = await set_up(provider, str(DATA / file), "right")
    for number in (1, 2):
        step = await trying.item(number)
        assert step.error is None
        assert step.correct == len(step.scores) >= 4


async def test_a_group_that_the_environment_does_not_return_is_reported(provider, monkeypatch):
    """Many drop groups whose rewards are all equal."""
    monkeypatch.setenv("ATROPOS_ALLOW_DUMMY_MANAGED_SERVER", "1")
    step = await tried(provider, str(DATA / "plain_conversation.py"), "right")
    assert (step.unscored, step.error) == (4, "the environment dropped its group and reported no scores")


FAULTS = {
    "429": "the provider answered 429: ",
    "500": "the provider answered 500: ",
    "404": "the provider answered 404: ",
    "403 once": "the provider answered 403",  # among answers: it is not about the key
    "garbage": "the provider's answer is not a completion",
    "error in 200": "the provider's answer is not a completion: no endpoint has room",
}


@pytest.mark.parametrize(("model", "said"), FAULTS.items(), ids=FAULTS)
async def test_a_step_that_fails_at_the_provider_explains_it(provider: ScriptedProvider, model: str, said: str) -> None:
    step = await tried(provider, "sort_digits", model)
    assert step.error.startswith(said)
    assert (list(step.scores), step.correct) == ([], 0)
    tries = 4 if model in ("429", "500") else 1
    assert len(provider.requests) <= 4 * tries  # a wrong name is not retried


@pytest.mark.parametrize("model", ["401", "403"])
async def test_a_refused_key_ends_the_trial(provider: ScriptedProvider, model: str) -> None:
    with pytest.raises(CredentialsError, match=f"the provider answered {model}"):
        await tried(provider, "sort_digits", model)
    assert len(provider.requests) <= 4


ASKS_AGAIN = """
import openai

from tinker_atropos.environments.bundled.sort_digits import SortDigits


class Mine(SortDigits):
    async def generate(self, prompt, n, split):
        try:
            return await super().generate(prompt, n, split)
        except openai.APIStatusError:
            return await super().generate(prompt, n, split)

    def score(self, item, completion):
        return 1 / 0
"""


@pytest.mark.parametrize("model", ["400 once", "403 once"])
async def test_an_error_after_which_it_was_answered_explains_nothing(provider, tmp_path, model):
    file = tmp_path / "mine.py"
    file.write_text(ASKS_AGAIN)
    step = await tried(provider, str(file), model)
    assert str(step.error).startswith("ZeroDivisionError: division by zero (mine.py, line ")


async def test_an_unreachable_provider_is_reported(provider: ScriptedProvider) -> None:
    trying, env = await set_up(provider, "sort_digits", "right")
    env.server.servers[0].openai.base_url = "http://127.0.0.1:9/v1"
    env.server.servers[0].openai.max_retries = 0
    step = await trying.item(1)
    assert "the provider cannot be reached" in str(step.error)


async def test_an_unresponsive_provider_is_reported(provider: ScriptedProvider) -> None:
    trying, env = await set_up(provider, "sort_digits", "hangs")
    env.server.servers[0].openai.timeout = 0.2
    env.server.servers[0].openai.max_retries = 0
    step = await trying.item(1)
    assert (step.error, list(step.scores)) == ("the provider did not answer in time", [])


async def test_an_answer_with_only_thinking_is_wrong(provider: ScriptedProvider) -> None:
    step = await tried(provider, "sort_digits", "thinks only")
    assert (list(step.scores), step.error) == ([0.0] * 4, None)


COLLECT = "async def collect_trajectories(self, item):\n        {}"

HEAD = "from tinker_atropos.environments.bundled.sort_digits import SortDigits\n\n\nclass Mine(SortDigits):\n    "
ENVIRONMENTS = {
    "has no items": ("async def get_next_item(self):\n        return None", None),
    "fails": (COLLECT.format("raise KeyError('x')"), "KeyError: 'x' (mine.py, line"),
    "leaves": (COLLECT.format("raise SystemExit(3)"), "it called sys.exit(3)"),
    "scores no numbers": ("def score(self, item, completion):\n        return float('nan')", "was scored nan"),
    "drops its group": (
        COLLECT.format("return (await super().collect_trajectories(item)) and (None, [])"),
        "the environment dropped its group and reported no scores",
    ),
}


@pytest.mark.parametrize(("body", "said"), ENVIRONMENTS.values(), ids=ENVIRONMENTS)
async def test_mistakes_of_an_environment_are_reported(provider, tmp_path, body, said):
    file = tmp_path / "mine.py"
    file.write_text(f"{HEAD}{body}\n")
    step = await tried(provider, str(file), "right")
    if said is None:
        assert step is None
        return
    assert said in str(step.error)
    assert list(step.scores) == []
    assert step.unscored == (4 if "dropped" in said else 0)


async def test_a_user_prompt_is_answered_and_scored(provider: ScriptedProvider) -> None:
    trying, env = await set_up(provider, "sort_digits", "half", wishes=Wishes(max_tokens=99, temperature=0.3))
    prompt = env.prompt(env.held_out_items()[0])[-1]["content"]
    step = await trying.prompt(1, prompt)
    assert (step.prompt, len(step.scores), step.correct) == (prompt, 4, 2)
    assert {response.text for response in step.responses if not response.score} == {"I like digits"}
    assert {(each["max_tokens"], each["temperature"]) for each in provider.requests} == {(99, 0.3)}


async def test_a_prompt_that_cannot_be_scored_is_not_sent(provider: ScriptedProvider) -> None:
    trying, _ = await set_up(provider, "sort_digits", "right")
    step = await trying.prompt(1, "what is love?")
    assert "no item of the environment asks this" in str(step.error)
    assert "'sort " in str(step.error)
    assert provider.requests == []


async def test_a_prompt_with_invalid_scores_says_so(provider: ScriptedProvider, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(f"{HEAD}def score(self, item, completion):\n        return float('inf')\n")
    trying, env = await set_up(provider, str(file), "right")
    step = await trying.prompt(1, env.prompt(env.training_items()[0])[-1]["content"])
    assert "a completion was scored inf" in str(step.error)


async def test_atroposlib_environments_cannot_score_prompts(provider: ScriptedProvider) -> None:
    _, env = await set_up(provider, str(DATA / "plain_conversation.py"), "right")
    with pytest.raises(ConfigError, match="PlainConversation cannot score a prompt"):
        refuse_unless_prompts_are_scored(env, "PlainConversation")


async def test_a_prompt_that_was_not_rendered_is_sent_as_text(provider: ScriptedProvider) -> None:
    _, env = await set_up(provider, "sort_digits", "right")
    answer = await env.server.completion(prompt="sort 3 1 2", n=2, stop=[env.tokenizer.eos_token_id, "\n"])
    assert [choice.text for choice in answer.choices] == ["123", "123"]
    assert provider.paths == ["/v1/completions"] * 2
    assert provider.requests[0]["stop"] == ["<|im_end|>", "\n"]
