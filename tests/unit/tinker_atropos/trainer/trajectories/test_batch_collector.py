"""Batches from an api that fills them from a queue, like the trajectory API."""

import time
from collections.abc import Sequence

import httpx
import numpy as np
import pytest
from tests.unit.tinker_atropos.run_configs import run_config

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.errors import EnvironmentLostError
from tinker_atropos.serving import bind, serve
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.data.groups import Group
from tinker_atropos.trainer.inference.ledger import Ledger
from tinker_atropos.trainer.trajectories.admission import Admission
from tinker_atropos.trainer.trajectories.api_client import ApiClient
from tinker_atropos.trainer.trajectories.batch_collector import PATIENCE, Collector, TrajectoryApi
from tinker_atropos.trainer.trajectories.deliveries import DeliveredBatch, read_group
from tinker_atropos.trajectory_api.api_routes import trajectory_app
from tinker_atropos.trajectory_api.service.trajectory_service import TrajectoryService
from tinker_atropos.trajectory_api.store.journal import Journal

STEP = 10


class Queue:
    """Groups by id; a batch holds the first `size` remaining ones. None while there are too few."""

    def __init__(self, groups: Sequence[Group], size: int) -> None:
        self.groups = dict(enumerate(groups))
        self.size = size
        self.dropped: list[tuple[list[int], str]] = []
        self.asked: list[int] = []
        self.empty_answers = 0

    async def batch(self, step: int) -> DeliveredBatch | None:
        self.asked.append(step)
        if self.empty_answers:
            self.empty_answers -= 1
            return None
        ids = tuple(self.groups)[: self.size]
        assert len(ids) == self.size, "the test's queue is empty"
        return DeliveredBatch(ids, tuple(self.groups[key] for key in ids), waited=0.25)

    async def drop(self, ids: Sequence[int], reason: str) -> None:
        self.dropped.append((list(ids), reason))
        for key in ids:
            del self.groups[key]


class Warnings(dict[str, str | None]):
    def __call__(self, topic: str, sentence: str | None) -> None:
        self[topic] = sentence


def group(token: int, **fields) -> Group:
    fields = {"scores": [1.0, 0.0], **fields}
    return read_group({"tokens": [[1, token]] * 2, "masks": [[-100, token]] * 2, **fields})


def collector_of(
    queue: TrajectoryApi, steps: dict[int, int], warnings: Warnings | None = None, **settings
) -> Collector:
    """`steps`: after which policy step each token was sampled. Nothing is known of other tokens."""
    ledger, policy = Ledger(), CurrentPolicy()
    policy.swap(Policy(STEP, sampler=None))
    for token, step in steps.items():
        ledger.record(np.array([1]), np.array([token]), np.array([-0.5]), step)
    config = TrainerSettings(missing_logprobs="refuse", **settings)
    return Collector(queue, Admission(ledger, policy, config), warnings if warnings is not None else Warnings())


async def test_a_batch_of_usable_groups_is_taken_unchanged() -> None:
    queue = Queue([group(2), group(3)], size=2)
    queue.empty_answers = 2
    collected = await collector_of(queue, {2: 10, 3: 9}).next_batch(STEP)
    assert [one.sequences_S[0].tokens_T[1] for one in collected.groups] == [2, 3]
    assert (queue.asked, queue.dropped, dict(collected.dropped)) == ([STEP] * 3, [], {})
    assert 0.25 <= collected.waited < 1  # the empty answers came at once


async def test_unusable_groups_are_dropped_with_their_reason_and_replaced() -> None:
    queue = Queue([group(2), group(3), group(4), group(5), group(6)], size=2)
    warnings = Warnings()
    collector = collector_of(queue, {2: 1, 4: 10, 5: 1, 6: 10}, warnings, max_staleness=8)
    collected = await collector.next_batch(STEP)
    assert queue.dropped == [([1], "no_logprobs"), ([0], "stale"), ([3], "stale")]
    assert [one.sequences_S[0].tokens_T[1] for one in collected.groups] == [4, 6]
    assert dict(collected.dropped) == {"stale": 4, "no_logprobs": 2}  # in rollouts
    assert collected.dropped_tokens == 6
    unusable = [(one.group.sequences_S[0].tokens_T[1], one.reason) for one in collected.unusable]
    assert sorted(unusable) == [(2, "stale"), (3, "no_logprobs"), (5, "stale")]
    (stale, *_) = (one for one in collected.unusable if one.reason == "stale")
    assert stale.why.startswith("it was sampled 9 policy steps ago")
    assert stale.group.sequences_S[0].policy_step_T[1] == 1, "with what the ledger knows"
    assert dict(collector.dropped) == {"stale": 4, "no_logprobs": 2}
    assert warnings["stale"].startswith("a group was dropped as stale: it was sampled 9 policy steps ago")
    following = await collector.next_batch(STEP + 1)
    assert (dict(following.dropped), following.unusable) == ({}, ())
    assert set(warnings.values()) == {None}  # it is over


async def test_a_rollout_of_several_sequences_is_dropped_as_one() -> None:
    one = group(3, scores=[1.0, 1.0], group_overrides={"group_size": 2, "rollouts": [0, 0]})
    collector = collector_of(Queue([one, group(2)], size=1), {2: 10})
    assert dict((await collector.next_batch(STEP)).dropped) == {"no_logprobs": 1}


async def test_without_usable_groups_the_run_ends_with_the_counts_by_reason() -> None:
    groups = [group(3), group(4, overrides=None)] * PATIENCE
    longest = read_group({"tokens": [[1] * 9], "masks": [[1] * 9], "scores": [1.0]})
    queue = Queue([*groups[:40], *[longest] * 24, *groups], size=4)
    with pytest.raises(EnvironmentLostError, match=r"all dropped \(40 no_logprobs, 24 too_long\)"):
        await collector_of(queue, {}, max_token_trainer_length=8).next_batch(STEP)
    assert sum(len(ids) for ids, _ in queue.dropped) == PATIENCE


async def test_stale_groups_do_not_end_a_run_because_fresh_ones_follow() -> None:
    queue = Queue([group(2)] * (2 * PATIENCE) + [group(3)], size=1)
    collected = await collector_of(queue, {2: 0, 3: 10}).next_batch(STEP)
    assert dict(collected.dropped) == {"stale": 4 * PATIENCE}


EQUAL = {"scores": [1.0, 1.0]}


async def test_groups_without_a_gradient_are_part_of_a_batch_unless_they_are_to_be_replaced() -> None:
    groups = [group(2, **EQUAL), group(3), group(4, **EQUAL), group(5), group(6)]
    known = dict.fromkeys(range(2, 7), STEP)
    as_they_come = Queue(groups, size=2)
    kept = await collector_of(as_they_come, known).next_batch(STEP)
    assert (kept.groups[0].scores_R.tolist(), as_they_come.dropped) == ([1.0, 1.0], [])

    replaced, warnings = Queue(groups, size=2), Warnings()
    collected = await collector_of(replaced, known, warnings, dynamic_sampling=True).next_batch(STEP)
    assert [each.sequences_S[0].tokens_T[-1] for each in collected.groups] == [3, 5]
    assert collected.dropped == {"no_gradient": 4}
    assert collected.dropped_tokens == 4
    assert [each.reason for each in collected.unusable] == ["no_gradient"] * 2
    assert replaced.dropped == [([0], "no_gradient"), ([2], "no_gradient")]
    assert not any(warnings.values()), "as intended"


async def test_a_group_whose_shaped_rewards_are_equal_is_replaced_too() -> None:
    """Both answers were cut off, and are worth 0."""
    queue = Queue([group(2), group(3)], size=1)
    collector = collector_of(queue, {3: STEP}, dynamic_sampling=True, truncated_rollouts="zero", max_staleness=1000)
    ledger = collector.admission.ledger
    ledger.record(np.array([1]), np.array([2]), np.array([-0.5]), STEP, truncated=True)
    collected = await collector.next_batch(STEP)
    assert collected.groups[0].sequences_S[0].tokens_T[-1] == 3
    assert collected.dropped == {"no_gradient": 2}


async def test_if_nothing_but_groups_without_a_gradient_comes_a_warning_says_so_until_a_batch_is_full() -> None:
    queue = Queue([group(2, **EQUAL)] * PATIENCE + [group(3)], size=1)
    said: list[str] = []

    class Heard(Warnings):
        def __call__(self, topic: str, sentence: str | None) -> None:
            super().__call__(topic, sentence)
            said.append(f"{topic}: {sentence}")

    warnings = Heard()
    collected = await collector_of(queue, {2: STEP, 3: STEP}, warnings, dynamic_sampling=True).next_batch(STEP)
    assert collected.dropped == {"no_gradient": 2 * PATIENCE}
    assert [each for each in said if f"{PATIENCE} groups or more in a row had no gradient" in each]
    assert warnings["no_gradient"] is None


async def test_a_usable_group_in_between_shows_that_the_environment_works() -> None:
    unusable = [group(3)] * (PATIENCE - 1)
    queue = Queue([*unusable, group(2), *unusable, group(2)], size=1)
    collector = collector_of(queue, {2: 10})
    await collector.next_batch(STEP)
    del queue.groups[PATIENCE - 1]
    await collector.next_batch(STEP + 1)


async def test_unknown_overrides_are_counted_and_named_once(caplog) -> None:
    strange = [{"weight": 2}, {"weight": 1, "set_advantage_to_zero": True}]
    warnings = Warnings()
    queue = Queue([group(2, overrides=strange), group(2, overrides=strange)], size=2)
    collected = await collector_of(queue, {2: 10}, warnings).next_batch(STEP)
    assert collected.unknown_overrides == 2
    assert "'weight'" in warnings["override weight"]
    assert len(caplog.messages) == 1


async def test_with_the_real_trajectory_api_every_dropped_group_is_in_its_totals(tmp_path) -> None:
    journal = Journal(tmp_path / "api", 2**24)
    service = TrajectoryService(journal, time.monotonic, hold_seconds=1)
    async with serve(trajectory_app(service), bind("127.0.0.1", 0, "RL_API_URL")) as port:
        client = ApiClient(f"http://127.0.0.1:{port}")
        await client.register(run_config(), STEP, vocabulary=512, max_staleness=8, environment_state=None, items=None)
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}", trust_env=False, timeout=60) as environment:
            for token in (2, 3, 4, 5):
                sent = {"tokens": [[1, token]] * 2, "masks": [[-100, token]] * 2, "scores": [1.0, 0.0]}
                assert (await environment.post("/scored_data", json=sent)).status_code == 200
        collector = collector_of(client, {2: 1, 4: 10, 5: 10})
        for _ in range(2):  # requested again, it is the same batch
            collected = await collector.next_batch(STEP)
            assert [one.sequences_S[0].tokens_T[1] for one in collected.groups] == [4, 5]
        books = await client.books()
        assert books.rollouts.dropped == {"stale": 2, "no_logprobs": 2}
        assert (books.rollouts.delivered, books.groups.received) == (4, 4)
        await client.close()
    service.close()
    journal.close()
