"""Episodes as verifiers records them, without verifiers."""

from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from rl_contract.scored_group import PROMPT_LOGPROB, PROMPT_MASK
from tinker_atropos.environments.adapters.verifiers.episodes import PlayedEpisode, played_episode, seat_groups
from tinker_atropos.environments.rollout.rollouts import FailedRollout, scored_group


@dataclass(eq=False)
class Node:
    token_ids: list[int]
    mask: list[bool]
    logprobs: list[float] = field(default_factory=list)


def asked(*tokens: int) -> Node:
    return Node(list(tokens), [False] * len(tokens))


def answered(*tokens: int) -> Node:
    """A token of the template, then what was sampled."""
    return Node([1, *tokens], [False] + [True] * len(tokens), [-0.1 * token for token in tokens])


def trace(*branches: list[Node], agent: str = "agent", reward: float = 1.0, **others: Any) -> Any:
    nodes = list({id(node): node for branch in branches for node in branch}.values())
    given = {
        "agent": SimpleNamespace(name=agent, trainable=True),
        "nodes": nodes,
        "branches": [SimpleNamespace(nodes=branch, trainable=True) for branch in branches],
        "reward": reward,
        "rewards": {},
        "metrics": {},
        "ok": True,
        "errors": [],
        "is_truncated": False,
    }
    return SimpleNamespace(**{**given, **others})


def episode(*traces: Any, ok: bool = True, errors: tuple[Any, ...] = ()) -> Any:
    return SimpleNamespace(traces=list(traces), ok=ok, errors=list(errors), is_timeout=False)


def played(*traces: Any) -> PlayedEpisode:
    made = played_episode(episode(*traces), lambda each: each.agent.trainable)
    assert isinstance(made, PlayedEpisode)
    return made


def test_tokens_masks_and_logprobs():
    (sequence,) = played(trace([asked(5, 6), answered(7, 8)])).sequences
    assert sequence.tokens == [5, 6, 1, 7, 8]
    assert sequence.masks == [PROMPT_MASK, PROMPT_MASK, PROMPT_MASK, 7, 8]
    assert sequence.logprobs == [PROMPT_LOGPROB] * 3 + [-0.7000000000000001, -0.8]


def test_what_two_branches_share_is_trained_once():
    first = answered(7)
    question = asked(5)
    one, two = played(
        trace([question, first, asked(6), answered(8)], [question, first, asked(9), answered(4)])
    ).sequences
    assert one.masks == [-100, -100, 7, -100, -100, 8]
    assert two.masks == [-100, -100, -100, -100, -100, 4]


def test_a_branch_that_adds_nothing_and_one_that_is_not_trained_are_left_out():
    question, answer = asked(5), answered(7)
    made = trace([question, answer], [question, answer, asked(6)])
    assert len(played(made).sequences) == 1
    made.branches[0].trainable = False
    assert len(played(made).sequences) == 1


def test_each_seat_has_a_group_and_what_is_not_trained_has_none():
    judge = trace([asked(5), answered(3)], agent="judge")
    judge.agent.trainable = False
    episodes = [
        played(trace([asked(5), answered(7)], agent="b", reward=r), trace([asked(5), answered(8)], agent="a"), judge)
        for r in (0.0, 1.0)
    ]
    groups = seat_groups(episodes)
    assert [[each.score for each in group] for group in groups] == [[1.0, 1.0], [0.0, 1.0]]
    assert episodes[0].score == 1.0  # the first seat is a's, though it ended last


def test_a_seat_that_was_silent_in_an_episode_has_a_smaller_group():
    spoke = [trace([asked(5), answered(7)], agent="a"), trace([asked(5), answered(8)], agent="b")]
    silent = [spoke[0], trace([asked(5)], agent="b")]
    groups = seat_groups([played(*spoke), played(*spoke), played(*silent)])
    assert [len(group) for group in groups] == [3, 2]
    assert scored_group(groups[1], 3)["group_overrides"] == {"group_size": 2, "rollouts": [0, 1]}
    assert "group_overrides" not in scored_group(groups[0], 3)


def test_a_seat_that_spoke_in_one_episode_only_is_compared_with_nothing():
    both = [trace([asked(5), answered(7)], agent="a"), trace([asked(5), answered(8)], agent="b")]
    assert len(seat_groups([played(*both), played(both[0])])) == 1


def test_an_episode_without_an_answer_has_failed():
    failed = played_episode(episode(trace([asked(5)])), lambda _: True)
    assert isinstance(failed, FailedRollout)
    assert "no agent that is trained has said anything" in failed.message


def test_errors_say_what_kind_of_failure_it_was():
    def failed(kind: str, message: str = "m", status: int | None = None) -> FailedRollout:
        error = SimpleNamespace(type=kind, message=message, status_code=status, traceback=None)
        made = played_episode(
            episode(trace([asked(5), answered(7)], ok=False, errors=[error]), ok=False), lambda _: True
        )
        assert isinstance(made, FailedRollout)
        return made

    assert failed("TaskError", "task scoring: KeyError: 'x'\nmore") == FailedRollout(
        "raised", "TaskError: task scoring: KeyError: 'x'", 1
    )
    assert failed("TaskError", "task scoring timed out").kind == "timeout"
    assert failed("TimeoutError").kind == "timeout"
    assert failed("ProviderError", status=503).kind == "transport"
    assert failed("ProviderError", status=400).kind == "raised"
    said = "Error code: 400 - {'error': {'message': 'leave it out', 'type': 'invalid_request_error'}}"
    assert failed("ProviderError", said, 400).message == "ProviderError: leave it out"
