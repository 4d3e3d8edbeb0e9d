"""A step's rollouts as text, and all steps in a row each, reading no more of a line than a row needs.

What models and environments wrote is escaped: nothing of it steers the terminal.
"""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final, NamedTuple

from rl_contract.rollout_records import GroupRecord, LineHead, RolloutRecord, read_head
from rl_contract.status_metrics import EVALUATION_PREFIX, HELD_OUT_METRIC, EvaluatedFigure
from rl_operator.cli.printing import fitted
from rl_operator.operator_errors import GoneError
from rl_operator.rollouts.file_lines import FileFaults, records_of
from rl_operator.rollouts.rollout_figures import FIGURES, Figure, answer_of, finite, prompt_of
from rl_operator.rollouts.rollout_query import RankedGroup, RolloutQuery, StepAnswer
from rl_operator.rollouts.rollout_source import RolloutSource, RolloutSteps, StepFiles
from rl_operator.rollouts.step_reading import BATCH_REWARD, Reasons, StepSummary
from rl_operator.rollouts.token_ledger import FATE_WORDS, TRAINER_REASONS, is_arrived, known_fate
from rl_operator.rollouts.visible_text import columns_of, shortened, visible, wrapped

LOST: Final = "lost"


@dataclass
class StepRow:
    """`counts`: of groups by fate, and of what was lost. `batch_reward`: None if the step was not trained."""

    step: int
    bytes: int
    attempts: tuple[int, ...]
    batch_reward: float | None = None
    counts: Counter[str] = field(default_factory=Counter)
    faults: int = 0
    """Lines and frames that could not be read."""


def step_rows(steps: RolloutSteps) -> Iterator[StepRow]:
    """In the order of steps, each as soon as it has been read."""
    for files in steps.steps.values():
        yield _row(steps.source, files)


def _row(source: RolloutSource, files: StepFiles) -> StepRow:
    row = StepRow(files.step, files.bytes, tuple(reversed(files.files)))
    trained_by: int | None = None
    for attempt, file in files.files.items():
        for head in _heads(source, file.name, row):
            if head.record == "step" and trained_by is None:
                trained_by, row.batch_reward = attempt, finite(head.metrics.get(BATCH_REWARD))
            elif head.record == LOST:
                row.counts[LOST] += head.count
            elif head.record == "group" and (trained_by in (None, attempt) or not is_arrived(head.fate, head.reason)):
                row.counts[known_fate(head.fate)] += 1
    return row


def _heads(source: RolloutSource, name: str, row: StepRow) -> Iterator[LineHead]:
    faults = FileFaults()
    try:
        content = source.content(name)
    except GoneError:
        row.faults += 1
        return
    yield from (head for _, head in records_of(content, faults, read_head))
    row.faults += faults.count


MOST_ROLLOUTS = 8
"""Different ones of a group: the first ones and the last two."""

MARGIN = "    "
"""It holds how often a rollout is there."""

MOST_REASONS = 5
MOST_FIGURES = 12
"""Of an evaluation, besides the held-out figure: pass@k, greedy answers, other held-out sets."""

TEXT_LINES = 3
"""Lines that a prompt, or an answer, takes at most."""

NARROW = 34
"""Columns that an answer needs beside its figures; with less, it goes below them."""

_FORMATS: dict[Figure, tuple[str, int, str]] = {
    "reward": ("REWARD", 6, "{:.3f}"),
    "advantage": ("ADV", 6, "{:.3f}"),
    "length": ("LEN", 5, "{:.0f}"),
    "staleness": ("STALE", 5, "{:.0f}"),
    "gap": ("GAP", 7, "{:.2g}"),
}
"""Heading, width and format of a column."""


def answer_text(run: str, answer: StepAnswer, query: RolloutQuery, width: int) -> str:
    summary = summary_lines(run, answer.summary)
    if query.step is None and query.search is not None:  # one of many steps: which one it is will do
        summary = islice(summary, 1)
    lines = [*summary, *_lost_lines(answer, query)]
    return "\n".join([fitted(lines, width), *_group_lines(answer, query, width)])


def summary_lines(run: str, summary: StepSummary) -> Iterator[str]:
    """What the step was, what became of its tokens, what was dropped and lost, and what is wrong with its files."""
    reward = "" if summary.batch_reward is None else f", batch reward {summary.batch_reward:.3f}"
    by = f" (attempt {summary.attempt})" if summary.attempt is not None and summary.attempt > 1 else ""
    state = "" if summary.record else ", not trained"
    total = sum(summary.groups.values())
    fates = [f"{summary.groups[fate]} {words}" for fate, words in FATE_WORDS.items() if fate in summary.groups]
    groups = ", ".join([f"{total} group{'' if total == 1 else 's'}", *fates])
    yield f"{run}, step {summary.step}{by}{state}{reward}: {groups}"
    if summary.record or summary.found:
        yield from (f"  {sentence}" for sentence in summary.ledger.sentences())
    yield from _evaluation_line(summary)
    yield from _reason_lines("dropped", summary.dropped)
    yield from _reason_lines("lost", summary.lost)
    yield from (f"  note: {visible(note)}" for note in summary.notes())


def _evaluation_line(summary: StepSummary) -> Iterator[str]:
    told = summary.evaluation.metrics if summary.evaluation else {}
    mean = summary.evaluated.value
    parts = [
        *_held_out_figures(told, HELD_OUT_METRIC, "accuracy"),
        *([] if mean is None else [f"mean reward {mean:.3f}"]),
    ]
    if parts:
        yield f"  evaluated: {', '.join(parts)}"
    others = [
        name
        for name in told
        if name.startswith(EVALUATION_PREFIX) and f"{name}_low" in told and name != HELD_OUT_METRIC
    ]
    for name in others[:MOST_FIGURES]:
        words = shortened(name.removeprefix(EVALUATION_PREFIX), 60)
        yield from (f"    {each}" for each in _held_out_figures(told, name, words))
    if len(others) > MOST_FIGURES:
        yield f"    {len(others) - MOST_FIGURES} more; -o json lists them"


def _held_out_figures(told: Mapping[str, float | None], name: str, words: str) -> Iterator[str]:
    if (figure := EvaluatedFigure.found(told, name)) is not None:
        yield f"{words} {figure.text}"


def _reason_lines(what: str, reasons: Reasons) -> Iterator[str]:
    totals = reasons.totals()
    for why, count, tokens, sentences in totals[:MOST_REASONS]:
        word = why.word if what == "lost" else what
        by = " by the environment" if what == "dropped" and why.reason not in TRAINER_REASONS else ""
        number = f"{count} {shortened(why.what, 10)}{'' if count == 1 else 's'}"
        cost = f", {tokens:,} tokens" if tokens else ""
        sentence = f": {shortened(why.why, 300)}" if why.why else ""
        more = f" (and {sentences - 1} other sentences)" if sentences > 1 else ""
        yield f"  {word}{by}: {number}{cost}, {shortened(why.reason, 40) or 'no reason'}{sentence}{more}"
    if len(totals) > MOST_REASONS:
        yield f"  {what}: for {len(totals) - MOST_REASONS} more reasons; -o json lists them"


def _lost_lines(answer: StepAnswer, query: RolloutQuery) -> Iterator[str]:
    """Only if they are asked for: the reasons are in the summary."""
    if query.fate != "lost":
        return
    shown = answer.lost[: query.limit]
    for _, record in shown:
        item = f", item {item_text(record.item, 40)}" if record.item is not None else ""
        yield f"  {record.count} × {shortened(record.what, 10)}{item}: {shortened(record.reason, 40)}"
    if len(shown) < len(answer.lost):
        yield f"  … and {len(answer.lost) - len(shown)} more; --limit {len(answer.lost)} shows them"


def _group_lines(answer: StepAnswer, query: RolloutQuery, width: int) -> Iterator[str]:
    for group in answer.groups:
        yield ""
        yield from _one_group(group, answer.summary.step, query, width)
    if answer.found > len(answer.groups):
        yield ""
        yield fitted([f"{len(answer.groups)} of {answer.found} groups; --limit {answer.found} shows them"], width)


def _one_group(chosen: RankedGroup, step: int, query: RolloutQuery, width: int) -> Iterator[str]:
    record = chosen.record
    yield from fitted([_heading(record, len(chosen.rollouts), query)], width).splitlines()
    first = record.rollouts[chosen.rollouts[0]] if chosen.rollouts else None
    yield from _paragraph("  prompt  ", prompt_of(record, first), width)
    if chosen.rollouts:
        yield f"{MARGIN}{' '.join(heading.rjust(size) for heading, size, _ in _FORMATS.values())}"
    alike = list(_alike(record, chosen.rollouts, step).items())
    for at in shown_of(range(len(alike)), MOST_ROLLOUTS):
        if at is None:
            yield f"  … {len(alike) - MOST_ROLLOUTS} more; -o json has all"
        else:
            yield from _one_rollout(*alike[at], width)


class _Shown(NamedTuple):
    figures: str
    answer: str
    components: str


def _alike(record: GroupRecord, numbers: Iterable[int], step: int) -> Counter[_Shown]:
    """How many look the same, in the order of the first of them."""
    rollouts = (record.rollouts[number] for number in numbers)
    return Counter(
        _Shown(" ".join(_cell(figure, each, step) for figure in _FORMATS), answer_of(each), _components(each))
        for each in rollouts
    )


def shown_of(numbers: Sequence[int], most: int) -> list[int | None]:
    """The first ones and the last two; None stands for those that are left out between them."""
    return list(numbers) if len(numbers) <= most else [*numbers[: most - 2], None, *numbers[-2:]]


def _heading(record: GroupRecord, matching: int, query: RolloutQuery) -> str:
    parts = [f"group {record.group}, {FATE_WORDS.get(record.fate, shortened(record.fate, 20))}"]
    parts += (shortened(each, 60) for each in record.evaluated_as)
    if record.reason:
        parts.append(shortened(record.reason, 40))
    if record.item is not None:
        parts.append(f"item {item_text(record.item, 60)}")
    if query.search is not None:
        parts.append(f"{matching} of {len(record.rollouts)} rollouts match")
    return ", ".join(parts)


def item_text(item: object, width: int) -> str:
    """Texts as they are, other JSON in its compact form."""
    said = item if isinstance(item, str) else json.dumps(item, ensure_ascii=False, separators=(",", ":"))
    return shortened(said, width)


def _one_rollout(shown: _Shown, count: int, width: int) -> Iterator[str]:
    times = f"{count}×".rjust(len(MARGIN) - 1) + " " if count > 1 else MARGIN
    figures = f"{times}{shown.figures}"
    room = width - len(figures) - 2
    if room >= NARROW or columns_of(shortened(shown.answer, NARROW)) <= room:
        yield from _paragraph(f"{figures}  ", shown.answer, width)
    else:
        yield figures
        yield from _paragraph("      ", shown.answer, width)
    if shown.components:
        yield from fitted([f"      {shown.components}"], width).splitlines()


def _components(rollout: RolloutRecord) -> str:
    parts = rollout.components or {}
    return ", ".join(f"{shortened(name, 30)} {_component(value)}" for name, value in parts.items())


def _cell(figure: Figure, rollout: RolloutRecord, step: int) -> str:
    _, size, form = _FORMATS[figure]
    value = FIGURES[figure](rollout, step)
    said = "-" if value is None else form.format(value)
    return (said if len(said) <= size else f"{value:.1e}").rjust(size)


def _component(value: object) -> str:
    if isinstance(value, int | float) and finite(float(value)) is not None:
        return f"{value:.4g}"
    return item_text(value, 20)


def _paragraph(head: str, text: str, width: int) -> Iterator[str]:
    """At most TEXT_LINES lines, below each other."""
    room = max(width - len(head), 10)
    first, *others = wrapped(shortened(text, TEXT_LINES * room), room)
    yield f"{head}{first}".rstrip()
    yield from (" " * len(head) + line for line in others)
