"""What became of the tokens that arrived for a step, and whether the account balances. Pure."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from rl_contract.rollout_fates import DROP_REASONS, TOKEN_FATES

UNKNOWN: Final = "unknown"

FATE_WORDS: Final[Mapping[str, str]] = {
    **{fate: text.words for fate, text in TOKEN_FATES.items()},
    UNKNOWN: "without a known fate",
}
"""In this order. Any other fate counts as UNKNOWN: files may be anyone's."""

ARRIVED: Final = frozenset({"trained", "no_advantage", "dropped"})
"""Fates of groups that came to the trainer, so that its ledger has their tokens."""

TRAINER_REASONS: Final = frozenset(DROP_REASONS)


@dataclass(frozen=True)
class TokenLedger:
    """`told`: what the step's record says, by known fate; None without a record. `found`: what its groups hold."""

    told: Mapping[str, int] | None
    found: Mapping[str, int]

    @property
    def tokens(self) -> Mapping[str, int]:
        return self.found if self.told is None else self.told

    @property
    def balances(self) -> bool:
        return self.told is None or not self.differences()

    def differences(self) -> dict[str, tuple[int, int]]:
        """By fate: what the record says, and what the groups hold."""
        told = self.told or {}
        pairs = {fate: (told.get(fate, 0), self.found.get(fate, 0)) for fate in FATE_WORDS}
        return {fate: pair for fate, pair in pairs.items() if pair[0] != pair[1]}

    def sentences(self) -> Iterator[str]:
        """One that says it, and one more if it does not balance."""
        total = sum(self.tokens.values())
        parts = [
            f"{count:,} {words} ({percent(count, total)})"
            for fate, words in FATE_WORDS.items()
            if (count := self.tokens.get(fate, 0))
        ]
        yield f"{total:,} tokens arrived: {', '.join(parts)}" if parts else "no tokens arrived"
        if not self.balances:
            wrong = ", ".join(
                f"{FATE_WORDS[fate]} {told:,} and {found:,}" for fate, (told, found) in self.differences().items()
            )
            yield f"the account does NOT balance; what the step says, and what its groups hold: {wrong}"


def is_arrived(fate: str, reason: str | None) -> bool:
    """Whether a group came to the trainer. The environment tells of the others."""
    return fate in ARRIVED and (fate != "dropped" or reason in TRAINER_REASONS)


def by_known_fate(tokens: Mapping[str, int]) -> dict[str, int]:
    """In the order of FATE_WORDS."""
    known = {fate: tokens[fate] for fate in FATE_WORDS if tokens.get(fate)}
    others = sum(count for fate, count in tokens.items() if fate not in FATE_WORDS)
    return known | ({UNKNOWN: known.get(UNKNOWN, 0) + others} if others else {})


def percent(part: int, total: int) -> str:
    """Never 0 % of something, and never 100 % of less than all."""
    if not total or part in (0, total):
        return "100 %" if part else "0 %"
    share = 100 * part / total
    return "< 1 %" if share < 1 else "> 99 %" if share > 99 else f"{share:.0f} %"


FATE_SENTENCES: Final[Mapping[str, str]] = {
    **{fate: text.sentence for fate, text in TOKEN_FATES.items()},
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
