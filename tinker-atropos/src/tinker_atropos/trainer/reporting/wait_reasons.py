"""What the trainer is waiting for, and why: a sentence for people that changes only when the reason does. Pure."""

from dataclasses import dataclass

from rl_contract.wire import more_than
from tinker_atropos.trainer.trajectories.api_client import Peer

PATIENCE_SECONDS = 10.0
"""Shorter waits are normal in training, and not reported."""

TELLING = ("evaluating", "waiting for ", "making groups that all fail: ")
"""How an environment's own word on what it does begins, where that is why there are no groups."""

SILENT_SECONDS = 30.0
"""Inference is idle after this long without a sample request."""


@dataclass(frozen=True, slots=True)
class GroupsMade:
    """The environments' own counts of groups: sent to be learned from, of equal scores and so mostly dropped, and
    withheld by the environment's own code.
    """

    kept: float = 0.0
    equal: float = 0.0
    withheld: float = 0.0

    def plus(self, more: "GroupsMade") -> "GroupsMade":
        return GroupsMade(self.kept + more.kept, self.equal + more.equal, self.withheld + more.withheld)

    def since(self, before: "GroupsMade") -> "GroupsMade":
        """The increase since `before`; counts start over when an environment is restarted."""
        increase = GroupsMade(self.kept - before.kept, self.equal - before.equal, self.withheld - before.withheld)
        return self if min(increase.kept, increase.equal, increase.withheld) < 0 else increase


@dataclass(frozen=True, slots=True)
class WaitForBatch:
    """The current wait for groups: what is known about the environment, sampling and the queue."""

    seconds: float
    environment: Peer
    made: GroupsMade
    seconds_without_sample: float | None
    queued: int
    group_rollouts: int
    batch_rollouts: int


def why_no_batch(wait: WaitForBatch) -> str | None:
    """Why there is no batch yet; None while the wait is short."""
    if wait.seconds < PATIENCE_SECONDS:
        return None
    return f"Waiting for a batch for {more_than(wait.seconds)}: {_reason(wait)}."


def _reason(wait: WaitForBatch) -> str:
    environment, made = wait.environment, wait.made
    if environment.state == "absent":
        return "no environment has come yet"
    if environment.state == "away":
        return environment.reason or "no environment is live"
    if environment.state == "starting":
        return f"the environment is {environment.reason or 'starting'}"
    if made.equal + made.withheld and not made.kept:
        return _nothing_to_learn(made)
    if (environment.reason or "").startswith(TELLING):
        return f"the environment is {environment.reason}"
    if wait.seconds_without_sample is None or wait.seconds_without_sample > SILENT_SECONDS:
        since = wait.seconds_without_sample
        return "the environment has asked for no sample " + ("yet" if since is None else f"for {more_than(since)}")
    at_hand = wait.queued * wait.group_rollouts
    return f"about {at_hand} of {wait.batch_rollouts} rollouts are there, and the environment is sampling"


def _nothing_to_learn(made: GroupsMade) -> str:
    count = _rounded(made.equal + made.withheld)
    if made.withheld > made.equal:
        return (
            f"the environment returned none of the last {count} groups that it made, and most do that when all scores "
            f"of a group are equal: the task is too hard or too easy for the model, or its scoring does not tell "
            f"answers apart"
        )
    return (
        f"every one of the last {count} groups had equal scores and teaches nothing: the task is too hard or too easy "
        f"for the model, or its scoring does not tell answers apart"
    )


def _rounded(count: float) -> str:
    """Rounded down to 1, 2 or 5 times a power of ten, so that the sentence stays: what is true of the last 32 groups is
    true of the last 20.
    """
    digits = f"{count:.0f}"
    first = next(each for each in (5, 2, 1, 0) if each <= int(digits[0]))
    return f"{first}" + "0" * (len(digits) - 1)


def slow_call(call: tuple[str, float] | None, now: float) -> str | None:
    """The backend call in progress (what, since when), once it takes long."""
    if call is None or now - call[1] < PATIENCE_SECONDS:
        return None
    return f"Waiting for the backend for {more_than(now - call[1])}: {call[0]}."
