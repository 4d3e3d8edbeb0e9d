"""All that the page of a step says: its figures, its groups, and where one can go from here. Pure."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from rl_operator.rollouts.rollout_figures import finite
from rl_operator.rollouts.rollout_query import RolloutSteps
from rl_operator.rollouts.rollout_records import LostRecord
from rl_operator.rollouts.step_reading import Reasons, StepSummary
from rl_operator.rollouts.token_ledger import TRAINER_REASONS
from rl_operator.ui.views.page_text import figure_text, value_text
from rl_operator.ui.views.rollouts.fate_words import FATE_SENTENCES, GROUP_SENTENCES, GROUP_WORDS
from rl_operator.ui.views.rollouts.rollout_address import COLORS, SCOPES, SORTS, VIEWS, RolloutAddress
from rl_operator.ui.views.rollouts.rollout_cards import GroupCard, group_cards
from rl_operator.ui.views.rollouts.step_charts import (
    BAR_WIDTH,
    HISTOGRAM_HEIGHT,
    HISTOGRAM_WIDTH,
    ledger_parts,
    ledger_sentences,
    reward_bars,
)
from rl_operator.ui.views.rollouts.step_groups import EVALUATED, LOST, StepGroups, page_size
from rl_operator.ui.views.rollouts.step_search import SearchAnswer
from rl_operator.ui.views.rollouts.token_marks import MEASURE_SENTENCES, legend_of

MOST_STEPS: Final = 15
"""Links to steps around this one."""

MOST_REASONS: Final = 30
MOST_METRICS: Final = 40


@dataclass(frozen=True, slots=True)
class FateLink:
    fate: str
    words: str
    sentence: str
    count: int
    chosen: bool


@dataclass(frozen=True, slots=True)
class ReasonRow:
    """Why rollouts or groups were dropped or lost. `by`: who dropped them; empty for lost ones."""

    what: str
    by: str
    reason: str
    why: str
    count: int
    tokens: int


@dataclass(frozen=True, slots=True)
class LostRow:
    count: int
    what: str
    reason: str
    why: str
    item: str


def step_values(
    steps: RolloutSteps, groups: StepGroups | None, address: RolloutAddress, search: SearchAnswer | None
) -> dict[str, Any]:
    """What the template rollouts.html needs. Either `groups` of a step, or the answer of a `search` in all steps."""
    known = list(steps.steps)
    step = groups.summary.step if groups else address.step
    values: dict[str, Any] = {
        "address": address,
        "step": step,
        "newest": known[-1],
        "steps": nearby(known, step),
        "first": known[0],
        "earlier": _neighbor(known, step, -1),
        "later": _neighbor(known, step, 1),
        "every": steps.listing.every,
        "note": steps.listing.note and value_text(steps.listing.note),
        "search": search,
        "sorts": {name: words for name, (_, _, words) in SORTS.items()},
        "colors": COLORS,
        "views": VIEWS,
        "scopes": SCOPES,
        "groups": None,
    }
    return values | (_of_groups(groups, address) if groups else {})


def nearby(known: Sequence[int], step: int | None) -> list[int | None]:
    """The first and the last step, and those around this one; None stands for those between that are left out."""
    if step is None or len(known) <= MOST_STEPS:
        return [*known[:1], None, *known[-MOST_STEPS:]] if len(known) > MOST_STEPS else list(known)
    at = bisect_left(known, step)
    start = min(max(0, at - MOST_STEPS // 2), len(known) - MOST_STEPS)
    shown: list[int | None] = list(known[start : start + MOST_STEPS])
    before = [known[0], None] if start > 1 else list(known[:start])
    after = [None, known[-1]] if start + MOST_STEPS < len(known) - 1 else list(known[start + MOST_STEPS :])
    return [*before, *shown, *after]


def _neighbor(known: Sequence[int], step: int | None, by: int) -> int | None:
    if step is None or step not in known:
        return None
    at = known.index(step) + by
    return known[at] if 0 <= at < len(known) else None


def _of_groups(groups: StepGroups, address: RolloutAddress) -> dict[str, Any]:
    summary = groups.summary
    cards, largest = group_cards(groups.groups, summary.step, address)
    sentence, balances = ledger_sentences(summary.ledger)
    return {
        "groups": groups,
        "summary": summary,
        "heading": _heading(summary),
        "notes": [value_text(note) for note in summary.notes()],
        "fate": groups.fate,
        "fates": list(_fate_links(summary, groups.fate)),
        "ledger": ledger_parts(summary.ledger.tokens),
        "ledger_sentence": sentence,
        "not_arrived": _not_arrived(summary),
        "balances": balances,
        "bar_width": BAR_WIDTH,
        "reasons": [*_reasons("dropped", summary.dropped), *_reasons("lost", summary.lost)],
        "bars": reward_bars(groups.rewards, address.reward),
        "histogram": (HISTOGRAM_WIDTH, HISTOGRAM_HEIGHT),
        "cards": cards,
        "legend": legend_of(address.color, largest),
        "measure": MEASURE_SENTENCES[address.color],
        "fate_legend": [(fate, FATE_SENTENCES[fate]) for fate in _fates_of(cards, address)],
        "pages": ceil(groups.found / page_size(groups.fate)),
        "is_held_out": groups.fate == EVALUATED,
        "evaluation": list(_evaluation(summary)),
        "lost_rows": [_lost_row(each) for each in groups.lost],
    }


def _heading(summary: StepSummary) -> str:
    reward = "" if summary.reward is None else f", mean reward {figure_text(summary.reward)}"
    by = f" by attempt {summary.attempt}" if (summary.attempt or 1) > 1 else ""
    held_out = summary.evaluated.value
    evaluated = "" if held_out is None else f"; held-out mean reward {figure_text(held_out)}"
    return f"{f'Trained{by}{reward}' if summary.record else 'Not trained'}{evaluated}."


def _not_arrived(summary: StepSummary) -> int:
    """Tokens that were sampled for what the environment dropped and lost: the trainer's account does not have them."""
    dropped = sum(tokens for why, tokens in summary.dropped.tokens.items() if why.reason not in TRAINER_REASONS)
    return dropped + sum(summary.lost.tokens.values())


def _evaluation(summary: StepSummary) -> Iterator[tuple[str, str]]:
    """What the environment reports of it."""
    for name, value in list(summary.evaluation.metrics.items())[:MOST_METRICS] if summary.evaluation else ():
        yield value_text(name), figure_text(finite(value))


def _fate_links(summary: StepSummary, chosen: str) -> Iterator[FateLink]:
    """Those that there are, the chosen one even if there is none; all that were sampled for training come first."""
    counts = {**summary.groups, LOST: sum(summary.lost.counts.values())}
    everything = sum(summary.groups.values()) - summary.groups[EVALUATED]
    yield FateLink("", "all for training", "All groups but the held-out ones.", everything, chosen == "")
    for fate, words in GROUP_WORDS.items():
        if counts.get(fate) or fate == chosen:
            yield FateLink(fate, words, GROUP_SENTENCES[fate], counts.get(fate, 0), fate == chosen)


def _lost_row(record: LostRecord) -> LostRow:
    item = "–" if record.item is None else value_text(record.item)
    what, reason = value_text(record.what)[:20], value_text(record.reason) or "no reason"
    return LostRow(record.count, what, reason, value_text(record.why), item)


def _reasons(what: str, reasons: Reasons) -> Iterator[ReasonRow]:
    for why, count in reasons.counts.most_common(MOST_REASONS):
        word, by = why.word, ""
        if what == "dropped":
            word = what
            by = "by the trainer" if why.reason in TRAINER_REASONS else "by the environment"
        kind = f"{value_text(why.what)[:20]}{'' if count == 1 else 's'} {word}"
        reason = value_text(why.reason) or "no reason"
        yield ReasonRow(kind, by, reason, value_text(why.why), count, reasons.tokens[why])
    if (more := len(reasons.counts) - MOST_REASONS) > 0:
        yield ReasonRow(f"{what}, for other reasons", "", f"{more} more", "The download has them.", 0, 0)


def _fates_of(cards: Sequence[GroupCard], address: RolloutAddress) -> list[str]:
    """Those that are on the page, in the order of their sentences; all of them, if tokens are marked by them."""
    shown = {
        run.fate
        for card in cards
        for rollout in card.rollouts
        for sequence in rollout.sequences
        for turn in sequence.turns
        for run in turn.runs
    }
    return [fate for fate in FATE_SENTENCES if fate in shown or (address.color == "fate" and shown)]
