"""The environment container as a process, against the real trajectory API."""

import asyncio
import re
import signal
import time
from pathlib import Path

import pytest

DATA = Path(__file__).parents[3] / "data" / "environments"
PROMPT_LENGTH = 17  # of `sort 4 1 3 2` in the bundled tokenizer's chat template


async def evaluations(run):
    return [record for record in await run.records() if record["source"] == "evaluation"]


async def test_bundled_environment_serves_a_run_and_is_evaluated_before_and_after(run):
    environment = await run.start_environment("sort_digits")
    await asyncio.wait_for(run.train(), 60)
    assert await environment.ends() == 0, environment.output

    assert [len(group["tokens"]) for group in run.batches[0]] == [4, 4]
    group = run.batches[0][0]
    assert group["masks"][0][:PROMPT_LENGTH] == [-100] * PROMPT_LENGTH
    assert group["inference_logprobs"][0] == [1.0] * PROMPT_LENGTH + [-0.25] * 5
    assert group["tokens"][0][-1] == 2
    assert group["tokens"][0][-2] != 2
    assert set(group["scores"]) == {0.0, 1.0}
    assert {request["sampling_params"]["temperature"] for request in run.policy.requests} == {1.0}

    before, after = await evaluations(run)
    assert (before["step"], after["step"]) == (0, 3)
    assert before["metrics"]["eval/n"] == 500
    low, share, high = (before["metrics"][f"eval/percent_correct{end}"] for end in ("_low", "", "_high"))
    assert 0.4 < low < share < high < 0.6
    assert (await run.beat())["peer"] == {"state": "done", "reason": None}


async def test_unmodified_atroposlib_file_serves_a_run(run):
    environment = await run.start_environment(DATA / "plain_digits.py")
    await asyncio.wait_for(run.train(), 60)
    assert await environment.ends() == 0, environment.output

    group = run.batches[0][0]
    assert "inference_logprobs" not in group
    assert [len(tokens) for tokens in group["tokens"]] == [PROMPT_LENGTH + 5] * 4
    before, after = await evaluations(run)
    assert (before["step"], after["step"]) == (0, 3)
    assert set(before["metrics"]) == {"eval/percent_correct"}
    relayed = [record["metrics"] for record in await run.records() if record["source"] == "environment"]
    assert any("plain_digits_0_train/percent_correct" in metrics for metrics in relayed)


async def test_rewards_are_reported_before_groups_are_filtered(run):
    run.policy.share_right = 0.9
    environment = await run.start_environment("sort_digits")
    await asyncio.wait_for(run.train(), 60)
    assert await environment.ends() == 0, environment.output

    runner = [record["metrics"] for record in await run.records() if record["source"] == "runner"]
    assert runner[-1]["env/groups_filtered"] > 0
    assert runner[-1]["env/groups_kept"] >= 6
    trained = [score for batch in run.batches for group in batch for score in group["scores"]]
    assert max(metrics["env/reward_mean"] for metrics in runner) > sum(trained) / len(trained)


BROKEN = {
    "raises_in_setup.py": "the environment failed while setting up: FileNotFoundError: problems.jsonl is not there "
    "(raises_in_setup.py, line 10, in setup)",
    "exits_early.py": "the environment left early: it called sys.exit(0)",
    "never_sends_a_group.py": "the environment makes no groups: collect_trajectories returned no group",
    "syntax_error.py": (
        "the environment failed while it was imported: SyntaxError: expected ':' (syntax_error.py, line 7)"
    ),
}


@pytest.mark.parametrize(("file", "sentence"), BROKEN.items(), ids=BROKEN)
async def test_broken_file_ends_with_a_sentence_and_a_failed_lease(run, file, sentence):
    environment = await run.start_environment(DATA / file)
    training = asyncio.create_task(run.train())
    assert await environment.ends() == 1
    training.cancel()
    assert f"error: {sentence}" in environment.output
    peer = (await run.beat())["peer"]
    assert peer["state"] == "failed"
    assert sentence.startswith(peer["reason"].removesuffix("(0)"))


MISTAKES = {
    "raises in every rollout": (
        "def score(self, item, completion):\n    return {}['reward']",
        r"the environment failed in every rollout: KeyError: 'reward' \(mine.py, line \d+, in score\)",
    ),
    "raises in config_init": (
        "@classmethod\ndef config_init(cls):\n    return 1 / 0",
        r"the environment failed in config_init: ZeroDivisionError: division by zero \(mine.py, line \d+, in config_",
    ),
    "raises in get_next_item": (
        "async def get_next_item(self):\n    raise LookupError",
        r"the environment failed while making rollouts: LookupError \(mine.py, line \d+, in get_next_item\)",
    ),
    "leaves before the run is over": (
        "async def env_manager(self):\n    return None",
        r"the environment left early: its env_manager returned before the run was over",
    ),
    "sends what the api refuses": (
        """
        async def collect_trajectories(self, item):
            group, _ = await super().collect_trajectories(item)
            return {**group, "scores": [1.0, None, 0.0, 0.0]}, []
        """,
        r"the trajectory API refuses every group \(422: .*scores",
    ),
}


@pytest.mark.parametrize(("body", "pattern"), MISTAKES.values(), ids=MISTAKES)
async def test_mistake_of_an_author_is_told_in_one_sentence(run, body, pattern):
    environment = await run.start_environment(run.write_environment(body))
    training = asyncio.create_task(run.train())
    assert await environment.ends() == 1
    training.cancel()
    assert re.search(f"error: {pattern}", environment.output), environment.output


CONFIG_MISTAKES = {
    "unknown field": ({"grup_size": 3}, "env.grup_size is not a field of this environment; did you mean 'group_size'"),
    "wrong type": ({"group_size": "four"}, "env.group_size is 'four': input should be a valid integer"),
}


@pytest.mark.parametrize(("change", "sentence"), CONFIG_MISTAKES.values(), ids=CONFIG_MISTAKES)
async def test_wrong_config_is_refused(run, change, sentence):
    run.env_section |= change
    environment = await run.start_environment("sort_digits")
    assert await environment.ends() == 2
    assert f"error: {sentence}" in environment.output


async def test_unknown_environment_is_refused(run):
    environment = await run.start_environment("sort_digit")
    assert await environment.ends() == 2
    assert "error: there is no environment 'sort_digit'; did you mean 'sort_digits'?" in environment.output


async def test_file_without_an_environment_is_refused(run):
    empty = run.folder / "empty.py"
    empty.write_text("from tinker_atropos.environments.sort_digits import SortDigits\n")
    environment = await run.start_environment(empty)
    assert await environment.ends() == 2
    assert "must define exactly one environment, a class derived from BaseEnv; it has none" in environment.output


async def test_trainer_that_never_starts_is_waited_for_until_the_deadline(run):
    environment = await run.start_environment("sort_digits", "--trainer-deadline", "1")
    assert await environment.ends() == 1
    assert "error: the trainer did not start within 1 s" in environment.output


async def test_environment_without_contrast_ends_at_the_first_group_deadline(run):
    run.policy.share_right = 1.0
    environment = await run.start_environment("sort_digits", RL_FIRST_GROUP_DEADLINE="1")
    training = asyncio.create_task(run.train())
    assert await environment.ends() == 1
    training.cancel()
    assert re.search(r"error: no group accepted yet: .*\d+ groups made, \d+ dropped", environment.output)


async def test_sigterm_ends_an_environment_that_blocks_while_its_lease_goes_on(run):
    file = run.write_environment(
        "def score(self, item, completion):\n    print('blocked', flush=True)\n    time.sleep(600)"
    )
    environment = await run.start_environment(file)
    training = asyncio.create_task(run.train())
    await environment.says("blocked")
    training.cancel()
    await run.client.put("/rl/lease/environment", json={"state": "starting", "ttl_seconds": 60})

    async def renewed() -> bool:
        return (await run.beat())["peer"]["state"] == "working"

    await run.eventually("the blocked environment renews its lease", renewed)
    started = time.monotonic()
    environment.handle.send_signal(signal.SIGTERM)
    assert await environment.ends() == 0
    assert time.monotonic() - started < 5


async def test_sigterm_ends_an_idle_environment_at_once(run):
    environment = await run.start_environment("sort_digits")
    await environment.says("Waiting to register")
    started = time.monotonic()
    environment.handle.send_signal(signal.SIGTERM)
    assert await environment.ends() == 0
    assert time.monotonic() - started < 5
    assert "stopped as asked" in environment.output


async def test_lost_trainer_ends_the_environment_in_order_and_without_an_evaluation(run):
    environment = await run.start_environment("sort_digits")
    await asyncio.wait_for(run.train(steps=1), 60)
    await run.beat("failed", "out of memory")
    assert await environment.ends() == 0, environment.output
    assert [record["step"] for record in await evaluations(run)] == [0]
    assert "the run is over: the trainer is failed: out of memory" in environment.output


async def test_environment_survives_a_restart_of_the_trajectory_api(run):
    environment = await run.start_environment("sort_digits")
    await asyncio.wait_for(run.train(steps=1), 60)
    await run.restart_api()
    await asyncio.wait_for(run.train(steps=3, start=2), 60)
    assert await environment.ends() == 0, environment.output
    assert len(run.batches) == 3


async def test_env_manager_of_an_author_is_wrapped_around_ours(run):
    file = run.write_environment(
        """
        async def env_manager(self):
            print("sandbox started", flush=True)
            try:
                await super().env_manager()
            finally:
                print("sandbox stopped", flush=True)
        """
    )
    environment = await run.start_environment(file)
    await asyncio.wait_for(run.train(), 60)
    assert await environment.ends() == 0, environment.output
    assert re.search(r"sandbox started.*evaluation at step 3.*sandbox stopped", environment.output, re.DOTALL)


async def test_evaluations_follow_steps_per_eval(run):
    run.env_section |= {"steps_per_eval": 1}
    environment = await run.start_environment("sort_digits")
    await asyncio.wait_for(run.train(), 60)
    assert await environment.ends() == 0, environment.output
    steps = [record["step"] for record in await evaluations(run)]
    assert steps[0] == 0
    assert steps[-1] == 3
    assert 1 in steps


async def test_ops_port_says_why_it_is_not_ready(run):
    environment = await run.start_environment("sort_digits")
    await environment.says("Waiting to register")
    unready = await environment.ops("/healthz")
    assert unready.status_code == 503
    assert unready.text.startswith("no group accepted yet: waiting for the trainer to start (0 groups made")
    await asyncio.wait_for(run.train(steps=1), 60)
    assert (await environment.ops("/healthz")).status_code == 200
    status = (await environment.ops("/status")).json()
    assert status["totalSteps"] == 3
    assert status["groupsAccepted"] >= 2
    assert 'rl_environment_groups{outcome="accepted"}' in (await environment.ops("/metrics")).text
