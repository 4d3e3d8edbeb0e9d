"""From a run's status to what is compared."""

from datetime import UTC, datetime
from typing import Any

import pytest
from tests.unit.rl_operator.experiments.rows import row
from tests.unit.rl_operator.samples import CATALOG
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.experiments.run_figures import (
    TRAINING_ONLY,
    UNSET,
    RunFigures,
    differing_settings,
    figures_of,
    fingerprint,
    held_out_differences,
)

NOW = datetime(2026, 1, 1, 1, 0, tzinfo=UTC)
METRICS = {
    "rolloutReward": 0.7,
    "heldOut": {"value": 0.9, "low": 0.87, "high": 0.93, "samples": 500},
    "baseline": {"value": 0.5},
}
SETTINGS = {"environment": "sort_digits", "config.steps_per_eval": 10}


def of(spec: dict[str, Any] | None = None, settings: dict[str, Any] = SETTINGS, **status: Any) -> RunFigures:
    return figures_of(parsed(run_manifest(spec=spec, **status)), settings, NOW)


def test_the_figures_are_those_of_the_status() -> None:
    best = {"step": 8, "heldOut": {"value": 0.92}, "statePath": "tinker://a", "samplerPath": "tinker://b"}
    found = of(
        phase="Succeeded",
        startTime="2026-01-01T00:00:00Z",
        completionTime="2026-01-01T00:00:38Z",
        attempt=2,
        progress={"step": 10, "totalSteps": 10, "percent": 100},
        metrics=METRICS,
        best=best,
    )
    assert (found.phase, found.steps, found.rollout_reward, found.attempts, found.seconds) == (
        "Succeeded",
        "10/10",
        0.7,
        2,
        38,
    )
    assert found.held_out is not None
    assert found.held_out.text == "0.900 [0.870, 0.930]"
    assert found.before is not None
    assert found.before.text == "0.500"
    assert found.best is not None
    assert (found.best.value, found.best_step, found.without_figure) == (0.92, 8, "")


@pytest.mark.parametrize(
    ("status", "seconds"),
    [
        ({}, None),
        ({"phase": "Running", "startTime": "2026-01-01T00:59:00Z"}, 60),
        (
            {
                "phase": "Stopped",
                "startTime": "2026-01-01T00:00:00Z",
                "attempts": [{"attempt": 1, "pod": "p", "ended": "2026-01-01T00:00:10Z"}],
            },
            10,
        ),
        ({"phase": "Running", "startTime": "2026-01-01T01:00:01Z"}, 0),  # another machine's clock
    ],
)
def test_how_long_it_took(status: dict[str, Any], seconds: float | None) -> None:
    assert of(**status).seconds == seconds


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (of(), "it is Pending, and has none yet"),
        (of(phase="Running"), "it is Running, and has none yet"),
        (of(phase="Running").with_changes(gone=True), "it ended without one (deleted)"),
        (of(phase="Failed"), "it ended without one (Failed)"),
        (of(phase="Succeeded", settings={"config.steps_per_eval": 0}), "steps_per_eval is 0: it is not evaluated"),
        (row("x", swept={"config.steps_per_eval": 0}), "steps_per_eval is 0: it is not evaluated"),
    ],
)
def test_why_it_has_no_figure(found: RunFigures, why: str) -> None:
    assert why in found.without_figure


def test_only_settings_that_differ_are_named() -> None:
    rows = [
        row("a", settings={"environment": "x", "runtime": "tiny", "trainer.seed": 0, "config.a": 1}),
        row("b", settings={"environment": "y", "runtime": "tiny", "trainer.seed": 1, "config.a": 1.0}),
        row("c", settings={"environment": "x", "runtime": "tiny", "trainer.seed": 0, "config.a": 1, "config.b": True}),
    ]
    assert differing_settings(rows) == {
        "environment": ("x", "y", "x"),
        "config.b": (UNSET, UNSET, True),
        "trainer.seed": (0, 1, 0),
    }
    assert next(iter(differing_settings(rows))) == "environment"


def test_what_is_kept_is_read_back() -> None:
    before = of(phase="Succeeded", metrics=METRICS)
    assert "settings" not in before.kept
    assert "gone" not in before.kept
    assert RunFigures.model_validate(before.kept) == before.with_changes(settings={})


BASE = {"environment": "sort_digits", "runtime": "tiny", "config.eval_items": 250, "trainer.seed": 0}


@pytest.mark.parametrize(
    "change",
    [
        {"runtime": "default"},
        {"trainer.seed": 1},
        {"trainer.learning_rate": 1e-4},
        {"config.total_steps": 7},
        {"config.steps_per_eval": 5},
        {"config.item_seed": 3},  # the order in which items are trained
        {"config.eval_items": 100},
        {"config.eval_samples": 4},
        {"model": "another"},
    ],
)
def test_what_only_training_sees_leaves_the_set_alone(change: dict[str, Any]) -> None:
    assert fingerprint(BASE | change) == fingerprint(BASE)
    assert held_out_differences(BASE, BASE | change) == ()


@pytest.mark.parametrize(
    "change",
    [
        {"environment": "gsm_synthetic"},
        {"config.max_token_length": 64},
        {"config.seed": 1},
        {"config.an_own_field": "x"},
        {"trainer.eval_metric": "eval/score"},
        {"files": "0123456789ab"},
    ],
)
def test_what_is_asked_or_counted_makes_another_set(change: dict[str, Any]) -> None:
    assert fingerprint(BASE | change) != fingerprint(BASE)
    assert held_out_differences(BASE, BASE | change) == tuple(change)


def test_true_is_not_one() -> None:
    assert held_out_differences({"config.x": True}, {"config.x": 1}) == ("config.x",)


def test_the_table_names_fields_that_exist() -> None:
    fields = {f"config.{name}" for each in CATALOG.environments for name in each.fields_by_name}
    fields |= {f"config.{field.name}" for family in CATALOG.families for field in family.fields}
    assert fields >= TRAINING_ONLY
