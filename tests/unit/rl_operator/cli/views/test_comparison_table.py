"""How runs stand side by side, and how an experiment is listed."""

import pytest
from tests.unit.rl_operator.experiments.rows import row, swept

from rl_operator.cli.printing import fitted
from rl_operator.cli.views.comparison_table import (
    MOST_SETTINGS,
    comparison_values,
    experiment_table,
    experiment_values,
    side_by_side,
)
from rl_operator.experiments.run_figures import RunFigures

ONE = row("one", 0.81, reward=0.7, step=6, total_steps=6, seconds=12, attempts=1, settings={"tinker.seed": 0})
TWO = row("two", 0.94, step=3, total_steps=6, phase="Failed", settings={"tinker.seed": 1})


def test_figures_settings_and_verdict() -> None:
    assert "\n".join(side_by_side([ONE, TWO])) == (
        """\
              one                    two
phase         Succeeded              Failed
step          6/6                    3/6
reward        0.700                  -
held-out      0.810 [0.780, 0.840]   0.940 [0.910, 0.970]
  before      -                      -
  best        -                      -
took          12s                    -
attempts      1                      -
tinker.seed   0                      1

two is better: held-out 0.940 [0.910, 0.970] against 0.810 [0.780, 0.840] of one; the intervals are apart"""
    )


@pytest.mark.parametrize(("width", "heads"), [(200, ["r0 r1 r2"]), (60, ["r0 r1", "r2"]), (40, ["r0", "r1", "r2"])])
def test_a_narrow_terminal_gets_more_blocks(width: int, heads: list[str]) -> None:
    rows = [row(f"r{at}", 0.5) for at in range(3)]
    blocks = [block.splitlines() for block in side_by_side(rows, width) if "phase" in block]
    assert [" ".join(lines[0].split()) for lines in blocks] == heads
    assert max(len(line) for lines in blocks for line in lines) <= width


def test_each_block_has_a_run_however_narrow_it_is() -> None:
    blocks = [block for block in side_by_side([ONE, TWO], 1) if "phase" in block]
    assert len(blocks) == 2


def test_that_nothing_differs_is_said() -> None:
    same = ONE.with_changes(name="three")
    assert "settings: no difference is known" in list(side_by_side([ONE, same]))


def test_of_many_settings_some_are_shown() -> None:
    rows = [row(name, 0.5, settings={f"config.f{at}": name for at in range(MOST_SETTINGS + 2)}) for name in ("a", "b")]
    lines = list(side_by_side(rows))
    assert "2 more settings differ: -o yaml shows all of them" in lines
    assert lines[0].count("config.") == MOST_SETTINGS


def test_the_values_for_programs() -> None:
    values = comparison_values([ONE, TWO])
    assert values["differences"] == {"tinker.seed": {"one": 0, "two": 1}}
    assert [each["name"] for each in values["runs"]] == ["one", "two"]
    assert "settings" not in values["runs"][0]
    assert values["verdicts"][0]["better"] == "two"


ROWS = (
    swept("trial-a", 0.5, learning_rate=1e-4, seed=0),
    swept("trial-b", 0.9, learning_rate=1e-3, seed=0).with_changes(gone=True),
    swept("trial-c", None, learning_rate=1e-2, seed=0).with_changes(phase="Failed"),
)


def test_the_ranking_says_what_was_swept_what_is_gone_and_why_there_is_no_figure() -> None:
    assert "\n".join(experiment_table(ROWS)) == (
        """\
    NAME      PHASE             STEP   REWARD   HELD-OUT               TOOK   learning_rate
1   trial-b   Succeeded, gone   -      -        0.900 [0.870, 0.930]   -      0.001
2   trial-a   Succeeded         -      -        0.500 [0.470, 0.530]   -      0.0001
3   trial-c   Failed            -      -        -                      -      0.01

trial-c has no held-out figure: it ended without one (Failed)
trial-b is better: held-out 0.900 [0.870, 0.930] against 0.500 [0.470, 0.530] of trial-a; the intervals are apart"""
    )


def test_a_narrow_terminal_does_without_columns_and_their_lines_stay_whole() -> None:
    table = fitted(experiment_table(ROWS, 60), 60).splitlines()
    assert table[0].split() == ["NAME", "HELD-OUT", "learning_rate"]
    assert table[1].split() == ["1", "trial-b", "0.900", "[0.870,", "0.930]", "0.001"]
    assert table[4] == "a wider terminal also shows TOOK, REWARD, STEP, PHASE"
    assert max(map(len, table)) <= 60


def test_fields_of_one_name_are_shown_with_their_section() -> None:
    rows: list[RunFigures] = [
        row(name, 0.5, swept={"tinker.seed": at, "config.seed": at, "tinker.loss": name})
        for at, name in enumerate(("a", "b"))
    ]
    head = next(experiment_table(rows)).splitlines()[0]
    assert head.split()[-3:] == ["tinker.seed", "config.seed", "loss"]


def test_the_ranking_for_programs() -> None:
    values = experiment_values(ROWS)
    assert [(each["place"], each["name"]) for each in values["runs"]] == [
        (1, "trial-b"),
        (2, "trial-a"),
        (3, "trial-c"),
    ]
    assert (values["runs"][0]["gone"], "gone" in values["runs"][1]) == (True, False)
    assert values["runs"][2]["withoutFigure"] == "it ended without one (Failed)"
    assert values["conclusions"] == [values["verdicts"][0]["sentence"]]
