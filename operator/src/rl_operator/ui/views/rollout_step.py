"""All that the page of a step says: its figures, charts and groups, and where one can go from here. Pure."""

from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Final

from rl_contract.rollout_records import LostRecord
from rl_operator.rollouts.rollout_figures import finite
from rl_operator.rollouts.rollout_source import RolloutSteps
from rl_operator.rollouts.step_reading import Reasons, StepSummary
from rl_operator.rollouts.token_ledger import (
    FATE_SENTENCES,
    FATE_WORDS,
    GROUP_SENTENCES,
    GROUP_WORDS,
    TRAINER_REASONS,
    TokenLedger,
    percent,
)
from rl_operator.ui.views.marked_tokens import MEASURE_SENTENCES, legend_of
from rl_operator.ui.views.page_text import figure_text, value_text
from rl_operator.ui.views.rollout_address import COLORS, SCOPES, SORTS, VIEWS, RewardRange, RolloutAddress, number_text
from rl_operator.ui.views.rollout_cards import GroupCard, group_cards
from rl_operator.ui.views.step_groups import EVALUATED, LOST, SearchAnswer, StepGroups, page_size

BAR_WIDTH: Final = 1000
MOST_BARS: Final = 12
HISTOGRAM_WIDTH, HISTOGRAM_HEIGHT = 480, 90
WIDEST_BAR: Final = 60
SMALLEST: Final = 3
"""Of a box: nothing that is there is invisible."""


@dataclass(frozen=True, slots=True)
class LedgerPart:
    """`x`, `width`: in the bar, of BAR_WIDTH."""

    fate: str
    words: str
    sentence: str
    count: int
    share: str
    x: float
    width: float


@dataclass(frozen=True, slots=True)
class RewardBar:
    """`chosen`: it is what is filtered for."""

    words: str
    range: RewardRange
    count: int
    x: float
    y: float
    width: float
    height: float
    chosen: bool


def ledger_parts(tokens: Mapping[str, int]) -> tuple[LedgerPart, ...]:
    """In the order of FATE_WORDS, side by side."""
    total = sum(tokens.values())
    counts = [(fate, count) for fate in FATE_WORDS if (count := tokens.get(fate, 0))]
    room = BAR_WIDTH - SMALLEST * len(counts)
    parts, x = [], 0.0
    for fate, count in counts:
        width = SMALLEST + room * count / total
        parts.append(
            LedgerPart(
                fate=fate,
                words=FATE_WORDS[fate],
                sentence=FATE_SENTENCES[fate],
                count=count,
                share=percent(count, total),
                x=round(x, 2),
                width=round(width, 2),
            )
        )
        x += width
    return tuple(parts)


def ledger_sentences(ledger: TokenLedger) -> tuple[str, bool]:
    """Whether it balances, in words, and as a truth value."""
    total = sum(ledger.tokens.values())
    if ledger.told is None:
        return f"{total:,} tokens so far: the step has not been trained.", True
    if ledger.balances:
        return f"{total:,} tokens arrived, and the account balances: each has one of these fates.", True
    return f"{list(ledger.sentences())[-1]}.", False


def reward_bars(rewards: Counter[float], chosen: RewardRange | None) -> tuple[RewardBar, ...]:
    """One for each reward if they are few, else for intervals of equal width, as far as there are rewards in them.

    The range of a bar is that of the rewards in it: no reward is in two.
    """
    bins = _bins(sorted(rewards))
    slots = max(bins, default=0) + 1
    counts = {slot: sum(rewards[value] for value in values) for slot, values in bins.items()}
    most, width = max(counts.values(), default=0), HISTOGRAM_WIDTH / slots
    bars = []
    for slot, values in bins.items():
        of, count = RewardRange(_below(values[0]), _above(values[-1])), counts[slot]
        height = max(float(SMALLEST), HISTOGRAM_HEIGHT * count / most)
        bars.append(
            RewardBar(
                words=_words(of),
                range=of,
                count=count,
                x=round(slot * width, 2),
                y=round(HISTOGRAM_HEIGHT - height, 2),
                width=round(min(width - 4, WIDEST_BAR), 2),
                height=round(height, 2),
                chosen=of == chosen,
            )
        )
    return tuple(bars)


def _bins(values: Sequence[float]) -> dict[int, list[float]]:
    """Sorted values by slot."""
    if len(values) <= MOST_BARS:
        return {index: [value] for index, value in enumerate(values)}
    bins = defaultdict[int, list[float]](list)
    span = values[-1] - values[0]
    for value in values:
        bins[min(MOST_BARS - 1, int(MOST_BARS * ((value - values[0]) / span)))].append(value)
    return dict(bins)


def _below(value: float) -> float:
    """A number that an address holds whole, and that is not larger: 1/3 must be within its own bar."""
    short = float(number_text(value))
    return short if short <= value else float(number_text(value - _slack(value)))


def _above(value: float) -> float:
    short = float(number_text(value))
    return short if short >= value else float(number_text(value + _slack(value)))


def _slack(value: float) -> float:
    return 1e-9 * max(1.0, abs(value))


def _words(each: RewardRange) -> str:
    low, high = figure_text(each.low), figure_text(each.high)
    return low if low == high else f"{low} to {high}"


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


def step_values(
    steps: RolloutSteps, groups: StepGroups | None, address: RolloutAddress, search: SearchAnswer | None
) -> dict[str, object]:
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


def _of_groups(groups: StepGroups, address: RolloutAddress) -> dict[str, object]:
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
    reward = "" if summary.batch_reward is None else f", batch reward {figure_text(summary.batch_reward)}"
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


def _lost_row(record: LostRecord) -> LostRecord:
    """With texts as they are shown."""
    item = "–" if record.item is None else value_text(record.item)
    what, reason = value_text(record.what)[:20], value_text(record.reason) or "no reason"
    return record.model_copy(update={"what": what, "reason": reason, "why": value_text(record.why), "item": item})


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
