"""The environment container as a process, against the real trajectory API."""

import asyncio
import contextlib
import re
import selectors
import signal
import time
from pathlib import Path
from types import SimpleNamespace

import httpx
import pytest

from tinker_atropos.environments.items.item_warnings import DRAWS_ITEMS
from tinker_atropos.environments.runner.evaluations import EvaluationPlan
from tinker_atropos.environments.runner.run_end import RunEnd
from tinker_atropos.environments.runner.serve_loop import SETUP_SECONDS, _finish

DATA = Path(__file__).parents[4] / "data" / "environments"
PROMPT_LENGTH = 17  # of `sort 4 1 3 2` in the bundled tokenizer's chat template


def some_nightly(cases, *merge):
    """Cases by name: those that are named run at each landing."""
    nightly = pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
    return [pytest.param(*case, id=name, marks=() if name in merge else nightly) for name, case in cases.items()]


async def evaluations(run):
    return [record for record in await run.records() if record["source"] == "evaluation"]


async def test_bundled_environment_serves_a_run_and_is_evaluated_before_and_after(run):
    await run.served("sort_digits")

    assert [len(group["tokens"]) for group in run.batches[0]] == [4, 4]
    group = run.batches[0][0]
    assert group["masks"][0][:PROMPT_LENGTH] == [-100] * PROMPT_LENGTH
    assert group["inference_logprobs"][0] == [1.0] * PROMPT_LENGTH + [-0.25] * 5
    assert group["tokens"][0][-1] == 2
    assert group["tokens"][0][-2] != 2
    assert set(group["scores"]) == {0.0, 1.0}
    asked = [request["sampling_params"] for request in run.policy.requests]
    temperatures = {(params.get("rl_purpose"), params.get("temperature")) for params in asked}
    assert temperatures == {("evaluation", 1.0), (None, None)}, "that of training is the inference server's to say"
    marks = [(params.get("rl_purpose"), params.get("rl_evaluation")) for params in asked]
    assert marks.count(("evaluation", 0)) == marks.count(("evaluation", 3)) == 250
    assert set(marks) == {("evaluation", 0), ("evaluation", 3), (None, None)}

    before, after = await evaluations(run)
    assert (before["step"], after["step"]) == (0, 3)
    assert before["metrics"]["eval/n"] == 500
    low, share, high = (before["metrics"][f"eval/percent_correct{end}"] for end in ("_low", "", "_high"))
    assert 0.4 < low < share < high < 0.6
    assert (await run.beat())["peer"] == {"state": "done", "reason": None}


async def test_real_start_of_the_console_script_serves_a_run(run, monkeypatch):
    """The other tests fork (tests/forking.py). This one really starts: script, interpreter and imports.

    The run's tokenizer is a folder. The environment's data sets are not: the Hub must stay within reach for them.
    """
    file = run.write_environment(
        """
        async def setup(self):
            import huggingface_hub
            print("offline:", huggingface_hub.is_offline_mode(), flush=True)
            await super().setup()
        """
    )
    monkeypatch.delenv("HF_HUB_OFFLINE", raising=False)  # another test's module sets it
    environment = await run.served(file, wrapper=())
    assert "Traceback" not in environment.output
    assert "offline: False" in environment.output


async def test_unmodified_atroposlib_file_serves_a_run(run):
    await run.served(DATA / "plain_digits.py")

    group = run.batches[0][0]
    assert "inference_logprobs" not in group
    assert [len(tokens) for tokens in group["tokens"]] == [PROMPT_LENGTH + 5] * 4
    before, after = await evaluations(run)
    assert (before["step"], after["step"]) == (0, 3)
    assert before["metrics"]["eval/n"] == 8  # completions of its evaluation
    low, share, high = (before["metrics"][f"eval/percent_correct{end}"] for end in ("_low", "", "_high"))
    assert 0 < low < share < high < 1
    relayed = [record["metrics"] for record in await run.records() if record["source"] == "environment"]
    assert any("plain_digits_0_train/percent_correct" in metrics for metrics in relayed)
    judged = [metrics for metrics in relayed if "plain_digits_0_eval/percent_correct" in metrics]
    assert [metrics["plain_digits_0_eval/n"] for metrics in judged] == [8, 8]


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_two_processes_of_an_unmodified_file_share_its_draws_and_promise_nothing(run):
    """They draw the same sequence, and each draws past what the other was dealt."""
    run.env_section |= {"total_steps": 8}
    file = DATA / "plain_digits.py"
    environments = [await run.start_environment(file, RL_ENVIRONMENT_INDEX=str(index)) for index in range(2)]
    for environment in environments:

        async def warns(environment=environment) -> bool:
            with contextlib.suppress(httpx.TransportError):
                return (await environment.ops("/status")).json()["warnings"] == [DRAWS_ITEMS]
            return False

        await run.eventually("it waits for the trainer, and has said that it draws its items itself", warns)
    await run.train()
    assert [await environment.ends() for environment in environments] == [0, 0]
    groups = [group for batch in run.batches for group in batch]
    assert len({tuple(group["tokens"][0][:PROMPT_LENGTH]) for group in groups}) == len(groups) == 16


async def test_rewards_are_reported_before_groups_are_filtered(run):
    run.policy.share_right = 0.9
    await run.served("sort_digits")

    runner = [record["metrics"] for record in await run.records() if record["source"] == "runner"]
    last = await run.runner_metrics()
    assert last["env/groups_filtered"] == last["env/groups_filtered_equal"] > 0
    assert last["env/tokens_filtered"] == last["env/groups_filtered_equal"] * 4 * 5
    assert last["env/groups_kept"] >= 6
    made = last["env/groups_kept"] + last["env/groups_filtered"]
    assert last["env/groups_kept_ratio"] == pytest.approx(last["env/groups_kept"] / made)
    trained = [score for batch in run.batches for group in batch for score in group["scores"]]
    assert max(metrics.get("env/reward_mean", 0) for metrics in runner) > sum(trained) / len(trained)


@pytest.mark.parametrize("environment", ["sort_digits", DATA / "plain_digits.py"], ids=["ours", "unmodified"])
async def test_a_solved_task_is_not_searched_forever_for_a_group_to_learn_from(run, environment):
    run.policy.share_right = 1.0
    config = run.write_config(tinker={"max_all_right_replaced": 2})
    await run.served(environment, config=config)
    assert {score for batch in run.batches for group in batch for score in group["scores"]} == {1.0}
    counts = await run.runner_metrics()
    assert counts["env/groups_kept_all_right"] == counts["env/groups_kept"] >= sum(map(len, run.batches))
    assert counts["env/groups_filtered"] == counts["env/groups_filtered_equal"] == 2


async def test_conversations_are_sent_with_every_answer_marked(run):
    run.env_section |= {"max_token_length": 64}
    await run.served(DATA / "second_chance.py")
    groups = [group for batch in run.batches for group in batch]
    assert {score for group in groups for score in group["scores"]} == {0.0, 0.5, 1.0}
    for group in groups:
        assert group["group_overrides"].keys() == {"environment", "item", "position", "holder"}, "one sequence for each"
        for score, masks, logprobs in zip(group["scores"], group["masks"], group["inference_logprobs"], strict=True):
            answers = 1 if score == 1.0 else 2
            assert len([mask for mask in masks if mask != -100]) == 5 * answers
            assert logprobs.count(-0.25) == 5 * answers
            assert masks[-1] == 2


async def test_unmodified_conversation_goes_through_the_managed_server(run):
    run.env_section |= {"max_token_length": 64}
    await run.served(DATA / "plain_conversation.py")
    group = run.batches[0][0]
    assert "inference_logprobs" not in group
    assert set(group["scores"]) == {-1.0, 1.0}
    before, after = await evaluations(run)
    assert before["metrics"]["eval/n"] == after["metrics"]["eval/n"] == 12
    counts = await run.runner_metrics()
    assert counts["env/groups_filtered"] == counts["env/groups_filtered_by_environment"]


SOMETIMES = {  # what goes wrong with every other group, and what is counted
    "raises": ("    raise ValueError('no reward')", "env/groups_failed_raised"),
    "hangs": ("    await asyncio.sleep(600)", "env/groups_failed_overdue"),
    "too long": (
        "    group['tokens'][0] += [5] * 99; group['masks'][0] += [-100] * 99",
        "env/groups_filtered_too_long",
    ),
    "foreign size": (
        "    group = {name: rows[:3] for name, rows in group.items() if isinstance(rows, list)}",
        "env/groups_filtered_wrong_size",
    ),
    "not a number": ("    group['scores'] = [float('nan'), *group['scores'][1:]]", "env/groups_refused"),
    "ragged": ("    group['masks'][1] = group['masks'][1][:-1]", "env/groups_refused"),
    "ids out of range": ("    group['tokens'][1][0] = 512", "env/groups_refused"),
    "negative ids": ("    group['tokens'][1][0] = -7", "env/groups_refused"),
    "no scores": ("    del group['scores']", "env/groups_failed_raised"),
    "nothing": ("    return None, []", "env/groups_filtered_by_environment"),
    "text": ("    return 'a group', []", "env/groups_failed_raised"),
}


@pytest.mark.parametrize(("mistake", "metric"), some_nightly(SOMETIMES, "raises", "hangs", "ids out of range"))
async def test_lost_groups_are_counted_by_reason_and_the_run_continues(run, mistake, metric):
    run.env_section |= {"worker_timeout": 1.0, "max_num_workers": 4, "eval_items": 4}
    file = run.write_environment(
        f"""
        calls = 0

        async def collect_trajectories(self, item):
            group, _ = await super().collect_trajectories(item)
            type(self).calls += 1
            if self.calls % 2:
            {mistake}
            return group, []
        """
    )
    environment = await run.served(file)
    counts = await run.runner_metrics()
    assert counts[metric] > 0, counts
    others = ("env/groups_refused", "env/groups_failed_", "env/groups_filtered_")
    lost = {name for name, count in counts.items() if name.startswith(others) and count}
    assert lost <= {metric, "env/groups_filtered_equal", "env/groups_filtered_in_row"}
    books = (await run.client.get("/rl/books")).json()["items"]
    assert books["seen"] == books["trained"] + books["under_way"] + sum(books["dropped"].values())
    reason = re.sub("env/groups_(failed_|filtered_)?", "", metric)
    assert {reason} <= books["dropped"].keys() <= {reason, "equal"}
    assert books["dropped"][reason] == counts[metric]
    assert environment.output.count("refused a group") == (metric == "env/groups_refused")


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_a_stall_because_every_group_is_equal_says_exactly_that(run):
    run.policy.share_right = 0.0
    environment = await run.start_environment("sort_digits")
    training = asyncio.create_task(run.train())

    async def stalled() -> bool:
        return (await run.runner_metrics()).get("env/groups_filtered_in_row", 0) >= 20

    await run.eventually("the runner reports groups in a row that are equal", stalled)
    status = (await environment.ops("/status")).json()
    assert re.fullmatch(r"the last \d+ groups were dropped, because all rewards .* were equal, .*", status["stalled"])
    assert status["groupsFiltered"].keys() == {"equal"}
    training.cancel()


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
    environment = await run.failed(DATA / file)
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
    "forgets to return": (
        "async def collect_trajectories(self, item):\n    await super().collect_trajectories(item)",
        r"the environment failed in every rollout: TypeError: collect_trajectories returned NoneType",
    ),
    "returns a text": (
        "async def collect_trajectories(self, item):\n    return 'a group', []",
        r"the environment failed in every rollout: AttributeError: 'str' object has no attribute 'get'",
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


@pytest.mark.parametrize(("body", "pattern"), some_nightly(MISTAKES, "raises in every rollout", "forgets to return"))
async def test_mistake_of_an_author_is_reported_in_one_sentence(run, body, pattern):
    environment = await run.failed(run.write_environment(body))
    assert re.search(f"error: {pattern}", environment.output), environment.output


async def test_wrong_config_is_refused(run):
    run.env_section |= {"group_size": "four"}
    environment = await run.start_environment("sort_digits")
    assert await environment.ends() == 2
    assert "error: env.group_size is 'four': input should be a valid integer" in environment.output


async def test_trainer_that_never_starts_is_waited_for_until_the_deadline(run):
    environment = await run.start_environment("sort_digits", "--trainer-deadline", "1")
    assert await environment.ends() == 1
    assert "error: the trainer did not start within 1 s" in environment.output


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_environment_without_contrast_ends_at_the_first_group_deadline(run):
    run.policy.share_right = 1.0
    config = run.write_config(tinker={"max_all_right_replaced": None})
    environment = await run.failed("sort_digits", config=config, RL_FIRST_GROUP_DEADLINE="1")
    assert re.search(r"error: no group accepted yet: .*\d+ groups made, \d+ dropped", environment.output)


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_environment_that_runs_out_of_items_ends_and_says_so(run):
    file = run.write_environment(
        """
        left = 2

        async def get_next_item(self):
            self.left -= 1
            return await super().get_next_item() if self.left >= 0 else None
        """
    )
    message = run.folder / "termination-log"
    environment = await run.failed(file, RL_NEXT_ITEM_DEADLINE="1", RL_RESULT_FILE=str(message))
    sentence = "error: get_next_item gave no item for 1 s, and the run is not over"
    assert sentence in environment.output
    assert message.read_text().startswith(sentence)


async def test_sigterm_ends_a_blocking_environment_while_its_lease_is_renewed(run):
    file = run.write_environment(
        """
        def gold_answer(self, item):
            return None

        def score(self, item, completion):
            if completion in ("", *self.wrong_answers(item)):
                return 0.0  # the grader's check at the start
            print('blocked', flush=True)
            time.sleep(600)
        """
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
    assert time.monotonic() - started < 20


async def test_sigterm_ends_an_idle_environment_at_once(run):
    environment = await run.start_environment("sort_digits")
    await environment.says("Waiting to register")
    started = time.monotonic()
    environment.handle.send_signal(signal.SIGTERM)
    assert await environment.ends() == 0
    assert time.monotonic() - started < 20
    assert "stopped as asked" in environment.output


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_lost_trainer_ends_the_environment_cleanly_and_without_an_evaluation(run):
    environment = await run.start_environment("sort_digits")
    await run.train(steps=1)
    await run.beat("failed", "out of memory")
    assert await environment.ends() == 0, environment.output
    assert [record["step"] for record in await evaluations(run)] == [0]
    assert "the run is over: the trainer is failed: out of memory" in environment.output


async def test_environment_survives_a_restart_of_the_trajectory_api(run):
    environment = await run.start_environment("sort_digits")
    await run.train(steps=1)
    await run.restart_api()
    await run.train(steps=3, start=2)
    assert await environment.ends() == 0, environment.output
    assert len(run.batches) == 3


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_env_manager_of_an_author_wraps_ours(run):
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
    environment = await run.served(file)
    assert re.search(r"sandbox started.*evaluation at step 3.*sandbox stopped", environment.output, re.DOTALL)


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_a_judge_is_asked_and_never_sampled_as_the_policy(run):
    """The environment's second server, of another model, as its author has it in config_init."""
    file = run.write_environment(
        f"""
        @classmethod
        def config_init(cls):
            from atroposlib.envs.base import APIServerConfig
            config, _ = super().config_init()
            judge = APIServerConfig(
                model_name="judge", base_url="{run.inference_url}/v1", api_key=os.environ["JUDGE_KEY"],
                server_type="openai", health_check=False,
            )
            return config, [APIServerConfig(model_name="m"), judge]

        async def setup(self):
            await super().setup()
            judge = self.server.servers[1]
            answer = await judge.chat_completion(messages=[{{"role": "user", "content": "how good?"}}])
            print(judge.config.model_name, "says", answer.choices[0].message.content, flush=True)
            print("samples come from", *(each.config.model_name for each in self.server.servers), flush=True)
        """
    )
    environment = await run.served(file, JUDGE_KEY="sk-judge")
    assert "judge says hi" in environment.output
    assert "samples come from bundled\n" in environment.output


async def test_evaluations_follow_steps_per_eval(run):
    run.env_section |= {"steps_per_eval": 1}
    await run.served("sort_digits")
    steps = [record["step"] for record in await evaluations(run)]
    assert steps[0] == 0
    assert steps[-1] == 3
    assert 1 in steps


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/environments/runner")
async def test_resumed_run_keeps_its_baseline_and_makes_up_for_a_missed_evaluation_once(run):
    """The trainer registers at step 4 of 9, and trains two steps at a time: 6, 8, 9."""
    run.env_section |= {"steps_per_eval": 5, "total_steps": 9}
    environment = await run.start_environment("sort_digits")
    await run.register(starting_step=4)
    for step in (6, 8, 9):
        await run.next_batch()
        await run.client.post("/rl/progress", json={"steps_trained": step, "training_done": step == 9, "reason": None})
        if step == 6:

            async def evaluated() -> bool:
                return len(await evaluations(run)) == 1

            await run.eventually("the missed evaluation is made", evaluated)
    assert await environment.ends() == 0, environment.output
    assert [record["step"] for record in await evaluations(run)] == [5, 9]
    assert run.policy.evaluations == ["begun 5", "ended 5", "begun 9", "ended 9"]


async def test_ops_port_says_why_it_is_not_ready(run):
    environment = await run.start_environment("sort_digits")
    await environment.says("Waiting to register")
    unready = await environment.ops("/healthz")
    assert unready.status_code == 503
    assert unready.text.startswith("no group accepted yet: waiting for the trainer to start (0 groups made")
    await run.train(steps=1)
    assert (await environment.ops("/healthz")).status_code == 200
    status = (await environment.ops("/status")).json()
    assert status["totalSteps"] == 3
    assert status["groupsAccepted"] >= 2
    figures = (await environment.ops("/metrics")).text
    assert 'rl_environment_groups{outcome="accepted"}' in figures
    assert 'rl_environment_groups_lost{reason="equal"}' in figures


class Skipping(selectors.DefaultSelector):
    now = 0.0

    def select(self, timeout=None):
        self.now += timeout or 0
        return super().select(0)


class SkippingLoop(asyncio.SelectorEventLoop):
    def __init__(self):
        self.skipping = Skipping()
        super().__init__(self.skipping)

    def time(self):
        return self.skipping.now


def test_a_replaced_environment_may_set_up_and_then_evaluate():
    plan, rollouts = EvaluationPlan(deadline=900), SimpleNamespace(finished=False)

    async def env_manager():
        await asyncio.sleep(SETUP_SECONDS)
        await asyncio.sleep(plan.deadline)
        rollouts.finished = True

    async def finish():
        ending = RunEnd()
        ending.settle()
        await _finish(SimpleNamespace(env_manager=env_manager), rollouts, ending, Path("mine.py"), plan)

    with asyncio.Runner(loop_factory=SkippingLoop) as runner:
        runner.run(finish())
    assert rollouts.finished
