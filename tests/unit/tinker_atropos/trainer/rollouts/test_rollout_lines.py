"""Records of groups by hand, and properties: each token has one fate, and the runs and counts cover all of them."""

from collections import Counter
from dataclasses import replace
from itertools import pairwise
from typing import Any

import numpy as np
import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_contract.rollout_fates import TOKEN_FATES
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.data.groups import Group, Shaping, TokenSequence
from tinker_atropos.trainer.rollouts.rollout_lines import (
    GroupFacts,
    TrainedStep,
    fate_totals,
    group_facts,
    group_record,
    runs,
)
from tinker_atropos.trainer.trajectories.batch_collector import Collected, DroppedGroup
from tinker_atropos.trainer.trajectories.deliveries import read_group

PAIR: dict[str, Any] = {
    "tokens": [[11, 12, 13, 14], [11, 12, 15]],
    "masks": [[-100, -100, 13, 14], [-100, -100, 15]],
    "scores": [1.0, 0.0],
    "inference_logprobs": [[1.0, 1.0, -0.3, -0.4], [1.0, 1.0, -0.5]],
}
LOGPROBS = [[-9.0, -0.31, -0.41], [-9.0, -0.51]]
"""By the trainer's forward pass, of the tokens after the first."""


def pieces(tokens) -> list[str]:
    return [f"<{token}>" for token in tokens]


def step_of(*groups: Group, unusable: tuple[DroppedGroup, ...] = (), logprobs=None, **settings) -> list[GroupFacts]:
    """What became of the groups of a step. Unless given, the trainer's logprobs are those at sampling."""
    config = TrainerSettings(**settings)
    batch = build_batch(groups, config)
    if logprobs is None:
        logprobs = [np.nan_to_num(datum.logprobs_T) for datum in batch.datums]
    rows = [np.array(row) for row in logprobs]
    collected = Collected(groups, Counter(), 0, 0, 0, waited=0.0, unusable=unusable)
    return list(group_facts(TrainedStep(collected, batch, rows), config))


def record_of(group: dict[str, Any], **settings) -> dict[str, Any]:
    """As readers read it."""
    (facts,) = step_of(read_group(group), **settings)
    return written(group_record(facts, pieces))


def written(record: dict[str, Any]) -> dict[str, Any]:
    read: dict[str, Any] = orjson.loads(orjson.dumps(record, option=orjson.OPT_SERIALIZE_NUMPY))
    return read


def fates(record: dict[str, Any]) -> list[list[str]]:
    """The fate of each token of each sequence."""
    sequences = [sequence for rollout in record["rollouts"] for sequence in rollout["sequences"]]
    return [[fate for start, end, fate in sequence["fates"] for _ in range(start, end)] for sequence in sequences]


def test_logprobs_that_were_recomputed_are_not_the_samplers() -> None:
    group = read_group(PAIR)
    first = group.sequences_S[0]
    recomputed = replace(first, recomputed_T=np.array([False, False, True, True]))
    (facts,) = step_of(replace(group, sequences_S=(recomputed, group.sequences_S[1])))
    sampled = [rollout["sequences"][0]["logprobs"] for rollout in written(group_record(facts, pieces))["rollouts"]]
    assert sampled == [[None, None], [-0.5]]


def test_a_trained_group_by_hand() -> None:
    record = record_of({**PAIR, "group_overrides": {"item": {"sum": 3}, "environment": 2}}, logprobs=LOGPROBS)
    assert record == {
        "record": "group",
        "group": 0,
        "fate": "trained",
        "item": {"sum": 3},
        "environment": 2,
        "prompt": {"tokens": [11, 12], "pieces": ["<11>", "<12>"]},
        "rollouts": [
            {
                "reward": 1.0,
                "advantage": 0.5,
                "sequences": [
                    {
                        "tokens": [13, 14],
                        "pieces": ["<13>", "<14>"],
                        "logprobs": [-0.3, -0.4],
                        "policy_steps": [],
                        "fates": [[0, 2, "trained"]],
                        "trained_logprobs": [-0.31, -0.41],
                    }
                ],
            },
            {
                "reward": 0.0,
                "advantage": -0.5,
                "sequences": [
                    {
                        "tokens": [15],
                        "pieces": ["<15>"],
                        "logprobs": [-0.5],
                        "policy_steps": [],
                        "fates": [[0, 1, "trained"]],
                        "trained_logprobs": [-0.51],
                    }
                ],
            },
        ],
    }


SHARED_PROMPTS = {
    "the whole prompt of one sequence": ([[1, 2, 3]], [[-100, -100, 3]], 2),
    "what all begin with": ([[1, 2, 9], [1, 5, 9]], [[-100, -100, 9], [-100, -100, 9]], 1),
    "nothing": ([[1, 9], [2, 9]], [[-100, 9], [-100, 9]], 0),
    "no prompt": ([[9, 9], [9, 9]], [[9, 9], [9, 9]], 0),
    "only prompts": ([[1, 2], [1, 2, 3]], [[-100, -100], [-100, -100, -100]], 2),
    "equal answers are not shared": ([[1, 9, 9], [1, 9, 9]], [[-100, 9, 9], [-100, 9, 9]], 1),
    "a prompt that is another one's answer": ([[1, 2, 3], [1, 2, 3, 4]], [[-100, 2, 3], [-100, -100, -100, 4]], 1),
}


@pytest.mark.parametrize(("tokens", "masks", "shared"), SHARED_PROMPTS.values(), ids=SHARED_PROMPTS)
def test_the_shared_prompt(tokens, masks, shared) -> None:
    scores = [float(index) for index in range(len(tokens))]
    record = record_of({"tokens": tokens, "masks": masks, "scores": scores})
    assert record["prompt"]["tokens"] == tokens[0][:shared]
    sequences = [rollout["sequences"][0]["tokens"] for rollout in record["rollouts"]]
    assert [record["prompt"]["tokens"] + rest for rest in sequences] == tokens


FATES = {
    "a tool's answer in between": (
        {"masks": [[-100, 12, -100, 14], [-100, -100, 15]]},
        {},
        [["trained", "prompt", "trained"], ["prompt", "trained"]],
    ),
    "sampled with nothing before it": (
        {"masks": [[11, 12, 13, 14], [11, 12, 15]]},
        {},
        [["first", "trained", "trained", "trained"], ["first", "trained", "trained"]],
    ),
    "muted": (
        {"overrides": [{"set_advantage_to_zero": True}, {}]},
        {},
        [["muted", "muted"], ["trained"]],
    ),
    "equal scores": ({"scores": [1.0, 1.0]}, {}, [["no_advantage", "no_advantage"], ["no_advantage"]]),
    "equal scores, and one is muted": (
        {"scores": [1.0, 1.0], "overrides": [{"set_advantage_to_zero": True}, {}]},
        {},
        [["muted", "muted"], ["no_advantage"]],
    ),
    "advantages of tokens, one of them 0": (
        {"advantages": [[0.0, 0.0, 0.0, 2.0], [0.0, 0.0, 0.5]]},
        {},
        [["no_advantage", "trained"], ["trained"]],
    ),
    "nothing was generated in one": (
        {"masks": [[-100, -100, 13, 14], [-100, -100, -100]]},
        {},
        [["trained", "trained"], ["prompt"]],
    ),
}


@pytest.mark.parametrize(("fields", "settings", "expected"), FATES.values(), ids=FATES)
def test_fates(fields, settings, expected) -> None:
    assert fates(record_of({**PAIR, **fields}, **settings)) == expected


def cut_off(group: Group, *rollouts: int) -> Group:
    """The same, with these rollouts (of one sequence each) cut off by length."""
    sequences = enumerate(group.sequences_S)
    return replace(group, sequences_S=tuple(replace(each, truncated=index in rollouts) for index, each in sequences))


TRUNCATED = {
    "masked": ((0,), {"truncated_rollouts": "mask"}, [["truncated", "truncated"], ["trained"]]),
    "all are masked": ((0, 1), {"truncated_rollouts": "mask"}, [["truncated", "truncated"], ["truncated"]]),
    "trained": ((0,), {}, [["trained", "trained"], ["trained"]]),
    "of the same reward after it was set to zero": (
        (0,),
        {"truncated_rollouts": "zero"},
        [["no_advantage", "no_advantage"], ["no_advantage"]],
    ),
}


@pytest.mark.parametrize(("rollouts", "settings", "expected"), TRUNCATED.values(), ids=TRUNCATED)
def test_fates_of_truncated_rollouts(rollouts, settings, expected) -> None:
    """Their rewards stay the environment's own, and the account of tokens has all of them."""
    (facts,) = step_of(cut_off(read_group(PAIR), *rollouts), **settings)
    record = written(group_record(facts, pieces))
    assert fates(record) == expected
    assert [rollout["reward"] for rollout in record["rollouts"]] == PAIR["scores"]
    assert fate_totals([facts]) == Counter(fate for row in expected for fate in row)


HIGHER = [[0.0, 0.3, 0.0], [0.0, -0.3]]
"""Added to the logprobs at sampling: the first token became likelier, and its advantage is positive; the last one
became unlikelier, and its advantage is negative. Ratios 1.35 and 0.74.
"""

CLIPPED = {
    "ppo, both ways": ("ppo", {}, HIGHER, [["clipped", "trained"], ["clipped"]]),
    "ppo, against the advantage": ("ppo", {}, [[0.0, -0.3, 0.0], [0.0, 0.3]], [["trained", "trained"], ["trained"]]),
    "ppo, within the thresholds": ("ppo", {}, [[0.0, 0.18, 0.0], [0.0, -0.22]], [["trained", "trained"], ["trained"]]),
    "ppo, own thresholds": (
        "ppo",
        {"clip_low_threshold": 0.0, "clip_high_threshold": 1.4},
        HIGHER,
        [["trained", "trained"], ["trained"]],
    ),
    "gspo, whose ratio is the sequence's": ("gspo", {}, HIGHER, [["clipped", "clipped"], ["clipped"]]),
    "gspo, moved against the advantage": (
        "gspo",
        {},
        [[0.0, 0.1, -0.2], [0.0, 0.1]],
        [["trained", "trained"], ["trained"]],
    ),
    "gspo, within": (
        "gspo",
        {"clip_low_threshold": 0.8, "clip_high_threshold": 1.2},
        [[0.0, 0.3, -0.01], [0.0, -0.1]],
        [["trained", "trained"], ["trained"]],
    ),
    "dro, which has no clip": ("dro", {}, HIGHER, [["trained", "trained"], ["trained"]]),
    "cispo, which never stops a gradient": ("cispo", {}, HIGHER, [["trained", "trained"], ["trained"]]),
    "importance_sampling": ("importance_sampling", {}, HIGHER, [["trained", "trained"], ["trained"]]),
}


@pytest.mark.parametrize(("loss", "settings", "added", "expected"), CLIPPED.values(), ids=CLIPPED)
def test_clipped_tokens_have_no_gradient(loss, settings, added, expected) -> None:
    sampling = [[0.0, -0.3, -0.4], [0.0, -0.5]]
    logprobs = [np.add(first, second) for first, second in zip(sampling, added, strict=True)]
    assert fates(record_of(PAIR, loss=loss, logprobs=logprobs, **settings)) == expected


def test_advantages_are_told_where_they_differ_from_the_rollouts() -> None:
    per_token = [[0.0, 0.0, 0.25, -2.0], [0.0, 0.0, -0.5]]
    first, second = record_of({**PAIR, "advantages": per_token})["rollouts"]
    assert (first["advantage"], first["sequences"][0]["advantages"]) == (-0.875, [0.25, -2.0])
    assert second["advantage"] == -0.5
    assert "advantages" not in second["sequences"][0]
    muted = record_of({**PAIR, "overrides": [{"set_advantage_to_zero": True}, {}]})["rollouts"][0]
    assert (muted["advantage"], muted["sequences"][0]["advantages"]) == (0.5, [0.0, 0.0])


def test_a_rollout_has_the_advantage_that_its_environment_gave_it() -> None:
    """Also where a mean of equal values would be rounded, and where all rewards are equal."""
    own = [[0.0, 0.0, 1.1, 1.1], [0.0, 0.0, -0.37]]
    record = record_of({**PAIR, "scores": [1.0, 1.0], "advantages": own}, advantage="group_normalized")
    assert [rollout["advantage"] for rollout in record["rollouts"]] == [1.1, -0.37]
    assert all("advantages" not in rollout["sequences"][0] for rollout in record["rollouts"])


def test_what_is_not_known_is_null() -> None:
    group = read_group({**PAIR, "inference_logprobs": None, "masks": [[-100, 12, -100, 14], [-100, -100, 15]]})
    (facts,) = step_of(group)
    first = written(group_record(facts, pieces))["rollouts"][0]["sequences"][0]
    assert first["logprobs"] == [None, None, None]
    assert first["trained_logprobs"] == [0.0, None, 0.0]  # the test's own; null where nothing was trained


def test_a_token_that_the_policy_did_not_sample() -> None:
    """The environment marked it, and the ledger knows better."""
    marked = read_group(PAIR)
    first, second = marked.sequences_S
    sampled_T = first.generated_T.copy()
    sampled_T[3] = False
    changed = Group((replaced(first, sampled_T), second), marked.rollout_of_S, shaping=Shaping(1.0, 0.9, -1))
    (facts,) = step_of(changed)
    record = written(group_record(facts, pieces))
    assert fates(record) == [["trained", "not_sampled"], ["trained"]]
    assert record["rollouts"][0]["sequences"][0]["logprobs"] == [-0.3, None]
    assert record["rollouts"][0]["sequences"][0]["policy_steps"] == [[0, 1, 7]]
    assert record["sampling"] == {"temperature": 1.0, "top_p": 0.9, "top_k": -1}


def replaced(sequence: TokenSequence, generated_T: Any) -> TokenSequence:
    steps_T = np.full(len(generated_T), 7)
    return TokenSequence(
        sequence.tokens_T, generated_T, sequence.logprobs_T, steps_T, sequence.score, marked_T=sequence.marked_T
    )


def test_dropped_and_evaluated_groups() -> None:
    group = read_group(PAIR)
    dropped, again = step_of(
        unusable=(DroppedGroup(group, "stale", "it is old"), DroppedGroup(group, "too_long", "it is long"))
    )
    record = written(group_record(dropped, pieces))
    assert (record["fate"], record["reason"], record["why"]) == ("dropped", "stale", "it is old")
    assert (record["group"], written(group_record(again, pieces))["group"]) == (0, 1)
    assert fates(record) == [["dropped", "dropped"], ["dropped"]]
    assert [rollout["advantage"] for rollout in record["rollouts"]] == [None, None]
    evaluated = written(group_record(GroupFacts(group, "evaluated", 3, step=12, worth_R=[1.0, 0.0]), pieces))
    assert (evaluated["group"], evaluated["step"], evaluated["fate"]) == (3, 12, "evaluated")
    assert fates(evaluated) == [["evaluated", "evaluated"], ["evaluated"]]
    assert [rollout["worth"] for rollout in evaluated["rollouts"]] == [1, 0]
    assert "worth" not in record["rollouts"][0]
    assert "trained_logprobs" not in evaluated["rollouts"][0]["sequences"][0]


def test_groups_are_numbered_by_fate() -> None:
    groups = [read_group(PAIR), read_group({**PAIR, "scores": [1.0, 1.0]}), read_group(PAIR)]
    found = [(facts.fate, facts.number) for facts in step_of(*groups)]
    assert found == [("trained", 0), ("no_advantage", 0), ("trained", 1)]


SEVERAL = {
    "tokens": [[1, 2], [1, 3], [1, 4]],
    "masks": [[-100, 2], [-100, 3], [-100, 4]],
    "scores": [1.0, 0.0, 1.0],
    "group_overrides": {"group_size": 3, "rollouts": [5, 9, 5], "components": [{"form": 0.5}, {"form": 0.0}]},
    "messages": [["of the first"], ["of the second"], ["of the first"]],
}


def test_a_rollout_of_several_sequences() -> None:
    first, second = record_of(SEVERAL)["rollouts"]
    assert [sequence["tokens"] for sequence in first["sequences"]] == [[2], [4]]
    assert [sequence["tokens"] for sequence in second["sequences"]] == [[3]]
    assert (first["components"], first["messages"]) == ({"form": 0.5}, ["of the first"])
    assert (second["components"], second["messages"]) == ({"form": 0.0}, ["of the second"])


@pytest.mark.parametrize("told", [[], None, 5, "<script>", {"0": 1}, [None], [[]]], ids=repr)
def test_components_and_messages_that_are_not_what_they_should_be(told) -> None:
    record = record_of(
        {**SEVERAL, "group_overrides": {**SEVERAL["group_overrides"], "components": told}, "messages": told}
    )
    assert [rollout["reward"] for rollout in record["rollouts"]] == [1.0, 0.0]
    assert all("components" not in rollout and "messages" not in rollout for rollout in record["rollouts"])


@given(st.lists(st.integers(-1, 3), max_size=40))
def test_runs_cover_all_and_neighbors_differ(values) -> None:
    found = list(runs(np.array(values, np.int64)))
    assert [value for start, end, value in found for _ in range(start, end)] == values
    assert all(one[2] != other[2] and one[1] == other[0] for one, other in pairwise(found))


@st.composite
def groups(draw: st.DrawFn) -> Group:
    size = draw(st.integers(1, 4))
    lengths = [draw(st.integers(1, 8)) for _ in range(size)]
    tokens = [draw(st.lists(st.integers(0, 3), min_size=length, max_size=length)) for length in lengths]
    masks = [[token if draw(st.booleans()) else -100 for token in row] for row in tokens]
    scores = st.sampled_from([0.0, 0.5, 1.0])
    group: dict[str, Any] = {"tokens": tokens, "masks": masks, "scores": [draw(scores) for _ in tokens]}
    group["overrides"] = [{"set_advantage_to_zero": draw(st.booleans())} for _ in tokens]
    if draw(st.booleans()):
        group["advantages"] = [[draw(st.sampled_from([0.0, -1.0, 2.0])) for _ in row] for row in tokens]
    return read_group(group)


@given(
    st.lists(groups(), max_size=4), st.lists(groups(), max_size=2), st.sampled_from(["ppo", "cispo", "gspo"]),
    st.randoms(),
)  # fmt: skip
def test_each_token_has_one_fate_and_the_counts_balance(trained, dropped, loss, random) -> None:
    unusable = tuple(DroppedGroup(group, "stale", "old") for group in dropped)
    config = TrainerSettings(loss=loss)
    batch = build_batch(trained, config)
    logprobs = [np.array([random.uniform(-1, 0) for _ in datum.target_T]) for datum in batch.datums]
    found = step_of(*trained, unusable=unusable, logprobs=logprobs, loss=loss)
    records = [written(group_record(facts, pieces)) for facts in found]
    assert len(records) == len(trained) + len(dropped)

    counted: Counter[str] = Counter()
    for facts, record in zip(found, records, strict=True):
        sequences = [sequence for rollout in record["rollouts"] for sequence in rollout["sequences"]]
        for sequence, whole in zip(sequences, facts.group.sequences_S, strict=True):
            assert record["prompt"]["tokens"] + sequence["tokens"] == whole.tokens_T.tolist()
            length = len(sequence["tokens"])
            assert {len(sequence["pieces"]), len(sequence["logprobs"])} == {length}
            assert len(sequence.get("trained_logprobs", sequence["tokens"])) == length
            assert [end for _, end, _ in sequence["fates"][-1:]] == [length][: length > 0]
        for row in fates(record):
            assert set(row) <= set(TOKEN_FATES)
            counted.update(row)
    totals = fate_totals(found)
    assert totals == dict(counted)
    in_the_loss = sum(totals.get(fate, 0) for fate in ("trained", "clipped"))
    assert in_the_loss == sum(int(np.count_nonzero(datum.advantages_T)) for datum in batch.datums)
    generated = sum(int(np.count_nonzero(one.generated_T)) for group in trained + dropped for one in group.sequences_S)
    assert sum(totals.values()) - totals.get("prompt", 0) == generated
