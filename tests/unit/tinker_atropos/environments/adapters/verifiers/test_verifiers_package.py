"""The adapter against the real `verifiers` package, in a Python of its own (see `.ci/run`). One process runs all
scenarios of verifiers_program.py: an import takes seconds.
"""

import json
import os
import subprocess
from pathlib import Path

import pytest
from tests.tasksets import RL_TASKSETS

from rl_contract.scored_group import PROMPT_LOGPROB, PROMPT_MASK

PROGRAM = Path(__file__).with_name("verifiers_program.py")
WORDS = ("apple", "bread", "cloud", "dream", "eagle", "flame", "grape", "house", "input", "joker")
HOW_TO = (
    "needs RL_VERIFIERS_PYTHON: a Python with verifiers 0.4.0 beside this package (python3 -m venv V && V/bin/pip "
    "install --editable 'tinker-atropos[verifiers]')"
)


@pytest.fixture(scope="module")
def seen(process, tmp_path_factory):
    python = os.environ.get("RL_VERIFIERS_PYTHON")
    if not python:
        pytest.skip(HOW_TO)
    home = str(tmp_path_factory.mktemp("home"))
    corpus = tmp_path_factory.mktemp("nltk") / "corpora" / "words"
    corpus.mkdir(parents=True)
    for name in ("en", "en-basic"):
        (corpus / name).write_text("\n".join(WORDS))
    env_vars = {
        **os.environ,
        "HOME": home,
        "HF_DATASETS_OFFLINE": "1",
        "RL_TASKSETS": RL_TASKSETS,
        "NLTK_DATA": str(corpus.parents[1]),
    }
    done = subprocess.run([python, PROGRAM], env=env_vars, capture_output=True, timeout=280, check=False)
    assert done.returncode == 0, done.stderr.decode()
    return json.loads(done.stdout)


def trained_parts(group):
    """(what comes before, tokens, logprobs) of each trained span of each sequence."""
    for tokens, masks, logprobs in zip(group["tokens"], group["masks"], group["inference_logprobs"], strict=True):
        start = None
        for position, mask in enumerate([*masks, PROMPT_MASK]):
            if mask != PROMPT_MASK and start is None:
                start = position
            elif mask == PROMPT_MASK and start is not None:
                assert masks[start:position] == tokens[start:position]
                yield tokens[:start], tokens[start:position], logprobs[start:position]
                start = None
        prompts = [each for each, mask in zip(logprobs, masks, strict=True) if mask == PROMPT_MASK]
        assert set(prompts) == {PROMPT_LOGPROB}


@pytest.mark.parametrize(
    ("taskset", "groups", "answers"),
    [("sort-digits-vf", 1, 4), ("guess_number_vf", 1, None), ("ask_and_answer_vf", 2, 8)],
)
def test_groups_have_the_tokens_and_logprobs_that_were_sampled(seen, taskset, groups, answers):
    exact = seen["exact"][taskset]
    assert len(exact["groups"]) == groups
    parts = [part for group in exact["groups"] for part in trained_parts(group)]
    sampled = [(each["prompt"], each["output"], each["logprobs"]) for each in exact["sampled"]]
    assert sorted(map(repr, parts)) == sorted(map(repr, map(tuple, sampled)))
    assert answers is None or len(parts) == answers


def test_a_conversation_whose_prompts_are_not_extended_is_one_rollout(seen):
    (group,) = seen["exact"]["guess_number_vf"]["groups"]
    assert len(group["tokens"]) == 5
    assert len(set(group["group_overrides"]["rollouts"])) == 4


def test_each_agent_has_a_group_of_its_own(seen):
    groups = seen["exact"]["ask_and_answer_vf"]["groups"]
    assert [len(group["scores"]) for group in groups] == [4, 4]


def test_the_tasksets_metrics_are_kept(seen):
    metrics = seen["exact"]["sort-digits-vf"]["metrics"]
    assert metrics == {"metric/length": 5.5, "reward/exact": 0.25, "episodes_truncated": 0.0}


@pytest.mark.parametrize(("cut", "longest"), [("length", 63), ("turns", 255)])
def test_an_episode_that_is_cut_is_scored_as_it_is(seen, cut, longest):
    truncated = seen["truncated"][cut]
    (group,) = truncated["groups"]
    assert truncated["metrics"]["episodes_truncated"] == 1.0
    assert max(map(len, group["tokens"])) <= longest
    assert len(group["scores"]) >= 4


def test_nothing_is_sampled_past_the_longest_sequence(seen):
    assert set(seen["truncated"]["length"]["statuses"]) == {200, 400}
    assert set(seen["truncated"]["turns"]["statuses"]) == {200}


def test_a_game_of_textarena_is_played(seen):
    (group,) = seen["game"]["groups"]
    parts = list(trained_parts(group))
    assert len(parts) == len(seen["game"]["sampled"]) > 4  # several turns each
    assert 0 < seen["game"]["metrics"]["episodes_truncated"] < 1  # some end by themselves, after invalid moves


def test_a_task_whose_prompt_leaves_no_room_says_so(seen):
    assert set(seen["unanswered"]["messages"]) == {
        "a prompt of the episode leaves no room for an answer: raise env.max_token_length, or shorten the tasks"
    }


def test_a_reward_that_raises_costs_the_rollout(seen):
    failing = seen["failing"]
    assert failing["kinds"] == ["raised"] * 4
    assert all(tokens > 0 for tokens in failing["tokens"])
    assert failing["error"] == (
        "TaskError: task FragileTask scoring: ZeroDivisionError: float division by zero "
        "(raising_reward_vf.py, line 11, in fragile)"
    )


def test_an_episode_that_takes_too_long_costs_the_rollout(seen):
    assert seen["slow"]["kinds"] == ["timeout"] * 4


@pytest.mark.parametrize(
    ("case", "sentence"),
    [
        ("hub", "verifiers/hub_rows_vf loads data from a hub, which is not here (ConnectionError: "),
        ("hub", "): mount a Hugging Face cache that has it, and set HF_HOME to its folder and HF_DATASETS_OFFLINE=1"),
        ("bash", "agent 'worker' of verifiers/shell_work_vf needs the harness 'bash', which starts programs for each"),
        ("bash", "Set RL_SANDBOX=1 if this environment is in one"),
        ("harness", "agent 'agent' of verifiers/sort_digits_vf needs the harness 'bash'"),
        ("limit", "env.taskset.digits is 12: input should be less than or equal to 9"),
        ("unknown", "env.taskset.digit is not a field of this taskset; did you mean 'digits'? (known: "),
        ("missing", "env.taskset.game is missing; set it to one of Wordle-v0, "),
        ("version", "spec.environment asks for version 0.1 of verifiers/textarena, and 0.4.0 is installed: install"),
        ("file_version", "asks for version 2.0 of verifiers/sort_digits_vf, and it is a file without a version"),
        ("agent", "env.env_config.answerer.max_turns is 'three': input should be a valid integer"),
        ("runtime", "env.env_config.asker.runtime is {'type': 'prime'}: agents run in this process; leave it out"),
        ("renderer", "env.renderer is 'qwen33': "),
        ("warm", "agent 'agent' of verifiers/sort_digits_vf has a temperature of its own (0.5): leave out one of them"),
        ("env_id", "env.env_id is 'nowhere': "),
        ("held_out", "env.held_out_taskset.digits is 1: input should be greater than or equal to 2"),
        ("nothing_left", "has 200 different tasks, of which 200 are held out: none is left to train on; set"),
    ],
)
def test_what_cannot_be_played_is_refused_in_a_sentence(seen, case, sentence):
    assert sentence in seen["refused"][case]


def test_no_agent_runs_in_a_vendors_cloud(seen):
    runtimes = dict(seen["runtimes"])
    assert runtimes.pop("default") == "prime"  # what verifiers would do
    assert set(map(tuple, runtimes.values())) == {("subprocess", "tinker_atropos_policy_chat")}


def test_no_task_is_both_trained_and_held_out_and_each_has_its_position(seen):
    order = {"order": [True, True]}
    assert seen["split"] == {"first": [160, 40, 0], "split": [200, 30, 0], "endless": [50, 2]} | order


def test_samples_of_an_evaluation_are_marked(seen):
    assert seen["evaluation"]["marks"] == [["evaluation", 3]] * 3
    assert seen["evaluation"]["temperatures"] == [1.0, 1.0, 0.0], "the last one was asked for greedily"


def test_a_taskset_that_needs_anthropics_client_imports_the_real_one(seen):
    assert seen["anthropic"]["before"] == []
    assert {"content", "stop_reason", "usage"} <= set(seen["anthropic"]["fields"])
