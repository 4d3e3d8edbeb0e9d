"""`rlctl compare` over a state folder with runs that are over."""

import json
import re
from collections.abc import Callable
from typing import Any

import pytest
import yaml
from tests.unit.rl_operator.experiments.rows import held_out, row, swept
from tests.unit.rl_operator.targets.fakes import run_manifest

from rl_operator.api.names import EXPERIMENT_LABEL, RUN_KIND, SWEPT_ANNOTATION
from rl_operator.cli.commands.compare_runs import (
    MOST_SETTINGS,
    experiment_table,
    experiment_values,
    side_by_side,
)
from rl_operator.cli.printing import fitted
from rl_operator.experiments.run_figures import RunFigures
from rl_operator.local.state.state_store import StateStore

Call = Callable[..., tuple[int, str, str]]


def add(
    store: StateStore, name: str, accuracy: float | None, *, swept: dict[str, Any] | None = None, **spec: Any
) -> None:
    """A run that succeeded, of the experiment `trial` if something was swept."""
    metrics = {
        "rolloutReward": 0.5,
        "heldOut": {"value": accuracy, "low": accuracy - 0.03, "high": accuracy + 0.03, "samples": 500},
    } if accuracy is not None else {"rolloutReward": 0.5}  # fmt: skip
    manifest = run_manifest(name, spec=spec, phase="Succeeded", startTime="2026-01-01T00:00:00Z", metrics=metrics)
    if swept is not None:
        manifest["metadata"]["labels"] = {EXPERIMENT_LABEL: "trial"}
        manifest["metadata"]["annotations"] = {SWEPT_ANNOTATION: json.dumps(swept)}
    store.create(manifest)


def test_another_held_out_set_gives_no_verdict(store_of_rlctl: StateStore, call_rlctl: Call) -> None:
    add(store_of_rlctl, "one", 0.81, config={"max_token_length": 48})
    add(store_of_rlctl, "two", 0.94)
    out = call_rlctl("compare", "one", "two", "--local")[1]
    assert "different held-out sets: config.max_token_length is" in out


@pytest.mark.parametrize("output", ["json", "yaml"])
def test_for_programs(store_of_rlctl: StateStore, call_rlctl: Call, output: str) -> None:
    add(store_of_rlctl, "one", 0.81, trainer={"seed": 1})
    add(store_of_rlctl, "two", None)
    out = call_rlctl("compare", "one", "two", "-o", output, "--local")[1]
    answer = json.loads(out) if output == "json" else yaml.safe_load(out)
    assert answer["target"].startswith("local:")
    assert answer["verdicts"][0]["kind"] == "no-figure"
    assert answer["runs"][0]["heldOut"]["samples"] == 500
    assert "settings" not in answer["runs"][0]
    assert (answer["namespace"], answer["differences"]) == ("default", {"trainer.seed": {"one": 1, "two": 0}})


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ([], "two runs or more, or --experiment"),
        (["one", "--experiment", "trial"], "two runs or more, or --experiment"),
        (["one"], "one run is named: 2 to 10"),
        (["one", "one"], "one is named twice"),
        (["one", "nothing"], "there is no run 'nothing'"),
        ([f"r{at}" for at in range(11)], "11 runs are named"),
        (["--experiment", "nothing"], "there is no experiment 'nothing'"),
        (["--experiment", "No"], "the experiment's name is 'No'"),
    ],
)
def test_calls_that_make_no_sense(
    store_of_rlctl: StateStore, call_rlctl: Call, arguments: list[str], said: str
) -> None:
    add(store_of_rlctl, "one", 0.81)
    code, out, errors = call_rlctl("compare", *arguments, "--local")
    assert (code, out) == (2, "")
    assert said in errors


def test_an_experiment_is_ranked_and_its_table_outlives_its_runs(store_of_rlctl: StateStore, call_rlctl: Call) -> None:
    add(store_of_rlctl, "trial-a", 0.81, swept={"trainer.seed": 0})
    add(store_of_rlctl, "trial-b", 0.94, swept={"trainer.seed": 1})
    add(store_of_rlctl, "unrelated", 0.99)
    first = call_rlctl("compare", "--experiment", "trial", "--local")[1]
    assert [line.split()[1] for line in first.splitlines()[1:3]] == ["trial-b", "trial-a"]
    assert "they differ in their seed only" in first
    for name in ("trial-a", "trial-b"):
        store_of_rlctl.delete(RUN_KIND, "default", name)
    code, out, errors = call_rlctl("compare", "--experiment", "trial", "--local")
    assert code == 0
    assert [line.split()[1:4] for line in out.splitlines()[1:3]] == [
        ["trial-b", "Succeeded,", "gone"],
        ["trial-a", "Succeeded,", "gone"],
    ]
    assert "2 runs of experiment trial, 2 of them gone" in errors


def test_a_config_map_of_somebody_else_is_not_overwritten(store_of_rlctl: StateStore, call_rlctl: Call) -> None:
    add(store_of_rlctl, "trial-a", 0.81, swept={"trainer.seed": 0})
    metadata = {"name": "experiment-trial", "namespace": "default"}
    store_of_rlctl.create(
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"runs.json": "mine"}}
    )
    code, out, errors = call_rlctl("compare", "--experiment", "trial", "--local")
    assert (code, "trial-a" in out) == (0, True)
    assert "note: the table is not kept: ConfigMap default/experiment-trial is not the table" in errors
    found = store_of_rlctl.get("ConfigMap", "default", "experiment-trial")
    assert found is not None
    assert found["data"] == {"runs.json": "mine"}


def test_the_runs_of_an_experiment_are_listed(store_of_rlctl: StateStore, call_rlctl: Call) -> None:
    add(store_of_rlctl, "trial-a", 0.81, swept={"trainer.seed": 0})
    add(store_of_rlctl, "unrelated", 0.99)
    out = call_rlctl("list", "--experiment", "trial", "--local")[1]
    assert "trial-a" in out
    assert "unrelated" not in out
    assert call_rlctl("list", "--experiment", "trial", "-l", "team=a", "--local")[1].startswith("No runs")


ONE = row("one", 0.81, rollout_reward=0.7, step=6, total_steps=6, seconds=12, attempts=1, settings={"trainer.seed": 0})
TWO = row("two", 0.94, step=3, total_steps=6, phase="Failed", settings={"trainer.seed": 1})


def test_figures_settings_and_verdict() -> None:
    assert "\n".join(side_by_side([ONE, TWO])) == (
        """\
                 one                    two
phase            Succeeded              Failed
step             6/6                    3/6
rollout reward   0.700                  -
held-out         0.810 [0.780, 0.840]   0.940 [0.910, 0.970]
  before         -                      -
  best           -                      -
took             12s                    -
attempts         1                      -
trainer.seed     0                      1

two is better: held-out 0.940 [0.910, 0.970] against 0.810 [0.780, 0.840] of one; the intervals are apart"""
    )


def test_held_out_figures_say_their_temperature() -> None:
    cold, hot = (
        each.with_changes(held_out=held_out(0.9).with_changes(temperature=at)) for at, each in enumerate((ONE, TWO))
    )
    for table in (side_by_side([cold, hot]), experiment_table([cold, hot])):
        assert re.findall(r"0\.930\] (\(temperature \d\))", next(table)) == ["(temperature 0)", "(temperature 1)"]


@pytest.mark.parametrize(
    ("width", "heads"),
    [(200, ["r0 r1 r2"]), (60, ["r0 r1", "r2"]), (40, ["r0", "r1", "r2"]), (1, ["r0", "r1", "r2"])],
)
def test_a_narrow_terminal_gets_more_blocks(width: int, heads: list[str]) -> None:
    rows = [row(f"r{at}", 0.5) for at in range(3)]
    blocks = [block.splitlines() for block in side_by_side(rows, width) if "phase" in block]
    assert [" ".join(lines[0].split()) for lines in blocks] == heads
    assert max(len(line) for lines in blocks for line in lines) <= max(width, 40), "a run in each, however narrow it is"


def test_that_nothing_differs_is_said() -> None:
    same = ONE.with_changes(name="three")
    assert "settings: no difference is known" in list(side_by_side([ONE, same]))


def test_of_many_settings_some_are_shown() -> None:
    rows = [row(name, 0.5, settings={f"config.f{at}": name for at in range(MOST_SETTINGS + 2)}) for name in ("a", "b")]
    lines = list(side_by_side(rows))
    assert "2 more settings differ: -o yaml shows all of them" in lines
    assert lines[0].count("config.") == MOST_SETTINGS


ROWS = (
    swept("trial-a", 0.5, learning_rate=1e-4, seed=0),
    swept("trial-b", 0.9, learning_rate=1e-3, seed=0).with_changes(gone=True),
    swept("trial-c", None, learning_rate=1e-2, seed=0).with_changes(phase="Failed"),
)


def test_the_ranking_says_what_was_swept_what_is_gone_and_why_there_is_no_figure() -> None:
    assert "\n".join(experiment_table(ROWS)) == (
        """\
    NAME      PHASE             STEP   ROLLOUT REWARD   HELD-OUT               TOOK   learning_rate
1   trial-b   Succeeded, gone   -      -                0.900 [0.870, 0.930]   -      0.001
2   trial-a   Succeeded         -      -                0.500 [0.470, 0.530]   -      0.0001
3   trial-c   Failed            -      -                -                      -      0.01

trial-c has no held-out figure: it ended without one (Failed)
trial-b is better: held-out 0.900 [0.870, 0.930] against 0.500 [0.470, 0.530] of trial-a; the intervals are apart"""
        " (not paired by item: trial-b: it was deleted, and its answers with it)"
    )


def test_a_narrow_terminal_does_without_columns_and_their_lines_stay_whole() -> None:
    table = fitted(experiment_table(ROWS, 60), 60).splitlines()
    assert table[0].split() == ["NAME", "HELD-OUT", "learning_rate"]
    assert table[1].split() == ["1", "trial-b", "0.900", "[0.870,", "0.930]", "0.001"]
    assert " ".join(table[4:6]).split()[-5:] == ["TOOK,", "ROLLOUT", "REWARD,", "STEP,", "PHASE"]
    assert max(map(len, table)) <= 60


def test_fields_of_one_name_are_shown_with_their_section() -> None:
    rows: list[RunFigures] = [
        row(name, 0.5, swept={"trainer.seed": at, "config.seed": at, "trainer.loss": name})
        for at, name in enumerate(("a", "b"))
    ]
    head = next(experiment_table(rows)).splitlines()[0]
    assert head.split()[-3:] == ["trainer.seed", "config.seed", "loss"]


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
