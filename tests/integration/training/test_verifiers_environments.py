"""Tasksets of verifiers, trained for some steps: every process is real. The environment's runs in a Python that has
verifiers. Tasksets of verifiers' own collection are tried where they are installed there.
"""

import os
import subprocess
from pathlib import Path

import pytest
from tests.tasksets import RL_TASKSETS

nightly = pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/adapters/verifiers")

LONGER = {"group_size": 4, "batch_size": 8, "eval_items": 3, "eval_samples": 2}
EVALUATED = {"sort-digits-vf": 6, "guess_number_vf": 4, "ask_and_answer_vf": 6}  # ten different games: two held out


@pytest.fixture
def verifiers_program():
    """The console script beside the Python that has verifiers."""
    python = os.environ.get("RL_VERIFIERS_PYTHON")
    if not python:
        pytest.skip("needs RL_VERIFIERS_PYTHON (tests/unit/…/adapters/verifiers/test_verifiers_package.py says how)")
    return Path(python).with_name("tinker-atropos")


def is_installed(program: Path, taskset: str) -> bool:
    found = subprocess.run([program, "environments"], capture_output=True, check=True, timeout=120)
    return f"verifiers/{taskset} " in found.stdout.decode()


async def trained(half, program, taskset, *, env=None, **env_vars):
    """The history of a run of three steps that succeeded."""
    config = half.write_config(env={**LONGER, **(env or {})}, tinker={"max_token_trainer_length": 2048})
    await half.start_api()
    trainer = await half.start_trainer(config)
    environment = await half.start(
        *("environment", f"verifiers/{taskset}", "serve", "--config", str(config)),
        program=str(program),
        RL_TASKSETS=RL_TASKSETS,
        HOME=str(half.folder),
        **env_vars,
    )
    await half.reached(trainer, 2, seconds=240)  # it imports for seconds, and the first evaluation comes first
    points = (await half.client.get(f"{trainer.ops_url}/history")).json()["points"]
    await half.ends_well(trainer, environment)
    assert half.result["stepsTrained"] == 3
    return points


def assert_exact(points):
    """All that was sent was sampled here: no logprob is made again, and no token's policy step is unknown. What is
    received and not trained is in groups of equal rewards.
    """
    for point in points:
        assert point["batch/received_tokens"] > 0, point
        assert point["batch/recomputed_logprobs"] == point.get("staleness/unknown", 0) == 0, point
        assert point["batch/dropped_no_logprobs"] == point["batch/dropped_untrainable_sampling"] == 0, point


FIELDS = {
    "sort-digits-vf": {"max_token_length": 96, "taskset": {"digits": 3}},
    "guess_number_vf": {"max_token_length": 256, "max_turns": 4},
    "ask_and_answer_vf": {"max_token_length": 256, "env_config": {"largest": 1000}},
}


@pytest.mark.parametrize(
    "taskset", ["sort-digits-vf", *(pytest.param(name, marks=nightly) for name in FIELDS if name != "sort-digits-vf")]
)
async def test_a_users_taskset_is_trained_on_what_was_sampled(half, verifiers_program, taskset) -> None:
    points = await trained(
        half, verifiers_program, taskset, env={**FIELDS[taskset], "ensure_scores_are_not_same": False}
    )
    assert_exact(points)
    assert (
        half.result["metrics"]["baseline"]["samples"]
        == half.result["metrics"]["heldOut"]["samples"]
        == EVALUATED[taskset]
    )


@nightly
async def test_poker_of_two_agents(half, verifiers_program) -> None:
    if not is_installed(verifiers_program, "kuhn_poker"):
        pytest.skip("needs kuhn_poker, of verifiers' repository, in RL_VERIFIERS_PYTHON")
    fields = {"max_token_length": 1024, "ensure_scores_are_not_same": False}
    assert_exact(await trained(half, verifiers_program, "kuhn_poker", env=fields))


@nightly
async def test_a_game_without_its_word_lists_says_what_is_missing(half, verifiers_program) -> None:
    config = half.write_config(env={"taskset": {"game": "Hangman-v0"}, "max_token_length": 1900})
    await half.start_api()
    environment = await half.start(
        *("environment", "verifiers/textarena", "serve", "--config", str(config)),
        program=str(verifiers_program),
        HOME=str(half.folder),
    )
    assert await environment.exit_code() == 2, environment.log
    assert "verifiers/textarena needs word lists, which are not here (LookupError: " in environment.log
    assert "mount a folder with NLTK's data that has it, and set NLTK_DATA to that folder" in environment.log
