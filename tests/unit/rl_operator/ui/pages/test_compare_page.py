"""Runs side by side."""

from tests.unit.rl_operator.experiments.rows import row

from rl_operator.ui.pages.runs_page import side_by_side_rows


def test_figures_settings_and_the_verdict() -> None:
    one = row("one", 0.9, step=5, total_steps=10, settings={"trainer.seed": 1, "config.a": "x"}, seconds=61.0)
    other = row("other", 0.5, rollout_reward=0.25, settings={"trainer.seed": 2, "config.a": "x"})
    found = side_by_side_rows((one, other))
    figures = {each.name: each.cells for each in found.figures}
    assert figures["held-out"] == ("0.900 [0.870, 0.930]", "0.500 [0.470, 0.530]")
    assert (figures["step"], figures["rollout reward"], figures["took"]) == (
        ("5/10", "-"),
        ("–", "0.250"),
        ("1m01s", "–"),
    )
    assert [(each.name, each.cells) for each in found.settings] == [("trainer.seed", ("1", "2"))]
    assert found.verdicts[0].startswith("one is better: ")
    assert side_by_side_rows((one, row("other", 0.91))).verdicts[0].startswith("Not decided: ")


def test_values_of_settings_cannot_hide_and_are_not_long() -> None:
    one = row("one", settings={"config.prompt": "a\u202eb" + "x" * 1000})
    (setting,) = side_by_side_rows((one, row("other"))).settings
    assert r"\u202e" in setting.cells[0]
    assert len(setting.cells[0]) <= 200
    assert setting.cells[1] == "default"
