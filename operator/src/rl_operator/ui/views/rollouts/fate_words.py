"""What became of tokens and groups, in plain sentences. Pure."""

from collections.abc import Mapping
from typing import Final

from rl_operator.rollouts.token_ledger import FATE_WORDS, UNKNOWN

FATE_SENTENCES: Final[Mapping[str, str]] = {
    "trained": "It was in the loss.",
    "clipped": "It was in the loss, but its ratio p/q was beyond the loss's threshold in the direction of its "
    "advantage: no gradient.",
    "masked": "It was sampled, but its probability has moved so far since then that tinker.trust_region took its "
    "advantage away: no gradient.",
    "no_advantage": "It was sampled, but its advantage is 0: all rollouts of its group earned the same, so there is "
    "nothing to learn from it.",
    "muted": "It was sampled, but the environment asked for an advantage of 0 (set_advantage_to_zero).",
    "truncated": "It was sampled, but its rollout was cut off by length, and tinker.truncated_rollouts is mask: none "
    "of its tokens is trained, and its reward counts in the baseline.",
    "not_sampled": "The environment marked it as generated, but the policy did not sample it: a template's token, or "
    "one that was added.",
    "first": "It was sampled with nothing before it: there is no prediction to train.",
    "dropped": "Its group was dropped; the group says why.",
    "prompt": "It was given to the policy: a question, a tool's answer or a template.",
    "evaluated": "It was sampled for an evaluation, which is never trained on.",
    UNKNOWN: "This version of rlctl does not know what became of it.",
}

GROUP_WORDS: Final[Mapping[str, str]] = {
    "trained": "trained",
    "no_advantage": "no advantage",
    "dropped": "dropped",
    "evaluated": "held out",
    "lost": "lost",
    UNKNOWN: "of an unknown fate",
}
"""In the order in which they are listed."""

GROUP_SENTENCES: Final[Mapping[str, str]] = {
    "trained": "Its rollouts were compared with each other and trained.",
    "no_advantage": "All its rollouts earned the same, or what differs is masked: there was nothing to learn from it.",
    "dropped": "It was not trained.",
    "evaluated": "Items that the run never trains on, answered with the weights after a step.",
    "lost": "Rollouts that came to nothing, and groups of which the environment tells only the reason.",
    UNKNOWN: "A later version wrote it.",
}


def known_fate(fate: str) -> str:
    return fate if fate in FATE_WORDS else UNKNOWN
