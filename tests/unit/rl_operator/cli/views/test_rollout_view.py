"""What rlctl shows of hostile rollouts, and on narrow terminals."""

from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import MemorySource, frame, group, lost, rollout, source, step

from rl_operator.cli.commands.show_rollouts import size_text, table_lines
from rl_operator.cli.views.rollout_view import StepRow, answer_text, shown_of, step_rows
from rl_operator.rollouts.rollout_query import RolloutQuery, TextSearch, answers
from rl_operator.rollouts.rollout_source import RolloutSteps
from rl_operator.rollouts.visible_text import columns_of


def rows(found: MemorySource) -> list[StepRow]:
    return list(step_rows(RolloutSteps.of(found)))


def test_a_row_for_each_step() -> None:
    evaluated = group(0, rollout(1.0), fate="evaluated")
    dropped = group(0, rollout(1.0), fate="dropped", reason="stale")
    found = source({
        "0-1": [evaluated],
        "12-1": [step(12, {}, **{"reward/mean": 0.1}), group(0, rollout(1.0)), group(1, rollout(1.0)), evaluated],
        "12-2": [lost(count=3), step(12, {}, **{"reward/mean": 0.9}), group(0, rollout(1.0)), dropped],
    })  # fmt: skip
    first, second = rows(found)
    assert (first.step, first.batch_reward, first.counts) == (0, None, {"evaluated": 1})
    assert (second.batch_reward, second.attempts) == (0.9, (1, 2))
    assert second.counts == {"trained": 1, "dropped": 1, "lost": 3, "evaluated": 1}, "as the newest attempt trained it"
    assert second.bytes == sum(len(content) for name, content in found.files.items() if name.startswith("000012"))
    assert len(found.reads) == 3


def test_faults_are_counted() -> None:
    content = frame(step(1, {}), b"[]\n", {"record": "group", "fate": "\x1b[2J"})
    [row] = rows(MemorySource({"000001-1.jsonl.zst": content + b"garbage"}))
    assert (row.faults, row.counts) == (2, {"unknown": 1})


def test_a_file_that_is_removed_meanwhile() -> None:
    found = source({"1-1": [step(1, {})]})
    found.gone = {"000001-1.jsonl.zst"}
    [row] = rows(found)
    assert (row.batch_reward, row.faults) == (None, 1)


HOSTILE = [
    "<script>alert(1)</script>",
    "\x1b[2J\x1b[31mred\x1b]0;title\x07\x1b]8;;http://evil\x07",
    "\x9b31m\x90payload\x9c",
    "a\u202eb\u2066c\u200bd\ufeff\u2028e",
    "\r\x08\x08overwritten\x00",
    "日本語" * 50 + "e\u0301" * 50,
    "\U000e0041\U000e0042 tags",
    "x" * 1_000_000,
    "long words " * 500,
]


def everywhere(text: str) -> list[Any]:
    """The text in every field that holds one."""
    talk = [{"role": text, "content": text}]
    one = rollout(1e308, text, components={text: text, "n": 1e999}, messages=talk, advantage=-1e308)
    return [
        lost(text, item=text, what=text, why=text),
        step(1, {text: 5, "trained": 3}, **{text: 1.0}),
        group(0, one, rollout(float("nan")), prompt=text[:50_000], item={text: [text]}, reason=text, why=text),
        group(10**30, one, fate=text, item=text),
        group(1, one, fate="dropped", reason=text, why=text),
        group(0, one, fate="evaluated", sets=[text] * 40, greedy=True),
        {"record": "evaluation", "step": 1, "metrics": {f"eval/{text}{end}": 0.5 for end in ("", "_low", "_high")}},
        {"record": text},
        {"record": "lost", "item": text, "count": text},
    ]


def shown(records: list[Any], width: int, **query: Any) -> str:
    found = MemorySource({"000001-1.jsonl.zst": frame(*records)})
    asked = RolloutQuery(**query)
    return "\n".join(answer_text("sorting", each, asked, width) for each in answers(RolloutSteps.of(found), asked))


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: ascii(text[:12]))
def test_hostile_text_is_shown_escaped_and_short(text: str) -> None:
    for query in ({}, {"fate": "lost"}, {"search": TextSearch.of("")}):
        said = shown(everywhere(text), 80, **query)
        assert said, query
        assert all(line.isprintable() for line in said.splitlines())
        assert "\x1b" not in said
        assert len(said) < 12_000


def test_lines_that_are_broken_as_bytes() -> None:
    lines = [
        b'{"record": "lost", "why": "\xff\xfe\x80"}\n',
        b'{"record": "lost", "why": "\\ud800"}\n',
        b'{"record": "group", "fate": "trained", "item": ' + b"[" * 150 + b"]" * 150 + b', "rollouts": []}\n',
        b'{"record": "lost", "item": ' + b"[" * 9_000 + b"]" * 9_000 + b"}\n",
    ]
    said = shown(lines, 80)
    assert "2 rollouts" in said or "1 rollout" in said
    assert "1 line is not readable" in said


@pytest.mark.parametrize("width", [50, 80, 120])
def test_lines_fit_the_terminal(width: int) -> None:
    """Apart from words that are longer than a line."""
    answer = "the answer is a sentence of some length " * 8
    groups = [
        group(n, *(rollout(r / 9, answer, components={"correct": 1, "format": 0.25}) for r in range(10)), item=[1, 2])
        for n in range(2)
    ]
    reasons = [lost("timeout", why="it took longer than the limit that was set for it in the settings of the run")]
    said = shown([*reasons, step(1, {"trained": 20 * len(answer)}, **{"reward/mean": 0.5}), *groups], width)
    assert max(map(columns_of, said.splitlines())) <= width
    assert "… 2 more; -o json has all" in said


@pytest.mark.parametrize("width", [50, 80])
def test_the_table_of_steps_fits(width: int) -> None:
    found = MemorySource(
        {f"{n:06}-1.jsonl.zst": frame(step(n, {}, **{"reward/mean": 0.5})) for n in range(2_498, 2_501)}
    )
    lines = list(table_lines(step_rows(RolloutSteps.of(found)), width))
    assert len(lines) == 4
    assert max(map(len, lines)) <= width


def test_rollouts_that_look_the_same_are_shown_once() -> None:
    same, other = rollout(1.0, "yes"), rollout(0.0, "no")
    lines = shown([step(1, {"trained": 11}), group(0, same, other, same, same)], 80).splitlines()
    assert lines[-2:] == [" 3×  1.000      -     3     0       0  yes", "     0.000      -     2     0       0  no"]


def test_sentences_that_differ_in_an_address_count_together() -> None:
    told = [lost("raised", why=f"no answer at 0x{number:04x}", count=1 + number % 2) for number in range(6)]
    said = shown([step(1, {}), *told], 200, step=1)
    assert "  lost: 9 rollouts, raised: no answer at 0x0001 (and 5 other sentences)" in said.splitlines()


def test_groups_that_are_not_kept_are_not_called_lost() -> None:
    said = shown([step(1, {}), lost("equal", what="group", count=142)], 200, step=1)
    assert "  only counted: 142 groups, equal: it was equal" in said.splitlines()


def test_of_a_large_group_the_first_and_the_last_are_shown() -> None:
    assert shown_of(range(20), 5) == [0, 1, 2, None, 18, 19]
    assert shown_of(range(5), 5) == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(("size", "said"), [(812, "812 B"), (20_417, "20 kB"), (1_300_000, "1.3 MB")])
def test_sizes(size: int, said: str) -> None:
    assert size_text(size) == said


def test_an_evaluation_of_several_sets() -> None:
    """Besides the held-out figure: pass@k, greedy answers, and other sets, a few of them."""
    names = [
        "percent_correct",
        "pass_at_2",
        "greedy_percent_correct",
        *(f"s{each}/percent_correct" for each in range(20)),
    ]
    metrics = {f"eval/{name}{end}": 0.5 for name in names for end in ("", "_low", "_high")} | {"eval/n": 8}
    records = [
        {"record": "evaluation", "step": 1, "metrics": metrics},
        group(0, rollout(1.0, "ab", "evaluated"), fate="evaluated", step=1, sets=["main"]),
        group(1, rollout(0.0, "ab", "evaluated"), fate="evaluated", step=1, sets=["main", "s3"], greedy=True),
    ]
    lines = shown(records, 120, fate="evaluated").splitlines()
    assert "  evaluated: accuracy 0.500 [0.500, 0.500], mean reward 1.000" in lines
    at = lines.index("    pass_at_2 0.500 [0.500, 0.500]")
    assert lines[at + 1] == "    greedy_percent_correct 0.500 [0.500, 0.500]"
    assert lines[at + 12] == "    10 more; -o json lists them"
    assert [line.split(", item")[0] for line in lines if line.startswith("group")] == [
        "group 0, evaluated",
        "group 1, evaluated, set main, set s3, greedy",
    ]
