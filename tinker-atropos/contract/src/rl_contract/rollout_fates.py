"""What becomes of the groups of a run, and of their tokens. Importing this loads nothing else.

Sentences are those of the page and of docs/reference/rollout-files.md; `words` follow a number of tokens.
"""

from collections.abc import Mapping
from typing import Final, Literal, NamedTuple, get_args

GroupFate = Literal["trained", "no_advantage", "dropped", "evaluated"]

DropReason = Literal["stale", "no_logprobs", "untrainable_sampling", "too_long", "no_gradient"]
"""Why the trainer drops a group. One with another reason was dropped by its environment, and never arrived."""

DROP_REASONS: Final[tuple[DropReason, ...]] = get_args(DropReason)

ItemEnd = Literal[
    "equal", "too_long", "wrong_size", "by_environment", "raised", "empty", "overdue", "undelivered", "refused",
    "set_aside", "held_out", "not_drawn",
]  # fmt: skip
"""Why an item that an environment was dealt became no group: as its counters name it; `set_aside` by difficulty pools;
`held_out`, so never trained; `not_drawn`: an environment that draws its items itself is past it.
"""

TokenFate = Literal[
    "trained", "clipped", "no_advantage", "muted", "truncated", "not_sampled", "first", "dropped", "prompt",
    "evaluated",
]  # fmt: skip


class FateText(NamedTuple):
    words: str
    sentence: str


TOKEN_FATES: Final[Mapping[TokenFate, FateText]] = {
    "trained": FateText("trained", "It was in the loss."),
    "clipped": FateText(
        "clipped: no gradient",
        "It was in the loss, but its ratio p/q was beyond the loss's threshold in the direction of its advantage: no "
        "gradient.",
    ),
    "no_advantage": FateText(
        "no advantage",
        "It was sampled, but its advantage is 0: all rollouts of its group earned the same, so there is nothing to "
        "learn from it.",
    ),
    "muted": FateText(
        "muted by the environment",
        "It was sampled, but the environment asked for an advantage of 0 (set_advantage_to_zero).",
    ),
    "truncated": FateText(
        "of rollouts cut off by length",
        "It was sampled, but its rollout was cut off by length, and trainer.truncated_rollouts is mask: none of its "
        "tokens is trained, and its reward counts in the baseline.",
    ),
    "not_sampled": FateText(
        "not sampled",
        "The environment marked it as generated, but the policy did not sample it: a template's token, or one that "
        "was added.",
    ),
    "first": FateText(
        "first, with nothing to predict them from",
        "It was sampled with nothing before it: there is no prediction to train.",
    ),
    "dropped": FateText("dropped", "Its group was dropped; the group says why."),
    "prompt": FateText("given to the policy", "It was given to the policy: a question, a tool's answer or a template."),
    "evaluated": FateText("evaluated", "It was sampled for an evaluation, which is never trained on."),
}
"""In the order in which they are shown."""
