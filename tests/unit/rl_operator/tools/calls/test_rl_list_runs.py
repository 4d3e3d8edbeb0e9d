from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.tools.contexts import Call, drafted, refusal, write_status
from tests.unit.rl_operator.tools.recorded import NAMES, recorded

from rl_operator.api.training_run import TrainingRun
from rl_operator.targets.local_target import LocalTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_list_runs import age, line
from rl_operator.tools.toolset import Outcome

NOW = datetime(2026, 11, 22, 1, 0, tzinfo=UTC)


def names(outcome: Outcome) -> list[str]:
    return [run["run_id"] for run in outcome.answer["runs"]]


def test_an_empty_list(call: Call) -> None:
    answer = call("rl_list_runs").answer
    assert (answer["runs"], answer["count"], "next" in answer) == ([], 0, False)
    assert answer["namespace"] == "default"


def test_pages_hold_every_run_once(context: CallContext, call: Call) -> None:
    drafts = {drafted(context) for _ in range(5)}
    seen, after = list[str](), None
    while True:
        outcome = call("rl_list_runs", limit=2, **({"after": after} if after else {}))
        assert outcome.answer["count"] == 5
        seen += names(outcome)
        after = outcome.answer.get("next")
        if after is None:
            break
    assert len(seen) == 5
    assert set(seen) == drafts


def test_a_page_after_a_deleted_run(context: CallContext, call: Call) -> None:
    drafted(context)
    assert "list again without after" in refusal(call("rl_list_runs", after="gone"))["error"]


def test_one_state_only(context: CallContext, call: Call) -> None:
    drafted(context)
    name = drafted(context)
    write_status(context, name, phase="Failed", startTime="2026-11-22T00:30:00Z")
    assert names(call("rl_list_runs", status="failed")) == [name]
    assert call("rl_list_runs", status="draft").answer["count"] == 1
    assert call("rl_list_runs", status="over").code == "refused"


def test_a_run_of_a_newer_version_does_not_hide_others(context: CallContext, call: Call) -> None:
    readable, newer = drafted(context), drafted(context)
    assert isinstance(context.target, LocalTarget)
    context.target._store.update(
        "RLTrainingRun", context.namespace, newer, lambda run: run["spec"].update(color="blue")
    )
    outcome = call("rl_list_runs")
    assert names(outcome) == [readable]
    assert outcome.answer["not_understood"] == [newer]
    assert "spec.color" in refusal(call("rl_get_current_config", run_id=newer))["error"]
    assert call("rl_get_current_config").answer["run_id"] == readable


def test_a_line() -> None:
    manifest = recorded("running")
    manifest["status"] |= {
        "progress": {"step": 3, "totalSteps": 40, "percent": 7},
        "metrics": {"rolloutReward": 0.5},
    }
    created = datetime.fromisoformat(manifest["metadata"]["creationTimestamp"])
    assert line(TrainingRun.model_validate(manifest), created + timedelta(hours=2, minutes=59)) == {
        "run_id": "sorting",
        "environment": "sort_digits",
        "status": "running",
        "step": "3/40",
        "reward_mean": 0.5,
        "wandb_run_name": "sorting",
        "age": "2h",
    }


@pytest.mark.parametrize("name", NAMES)
def test_every_recorded_run_has_a_line(name: str) -> None:
    found: dict[str, Any] = line(TrainingRun.model_validate(recorded(name)), NOW)
    assert None not in found.values()


@pytest.mark.parametrize(
    ("seconds", "words"), [(-5, "0s"), (59, "59s"), (60, "1m"), (3599, "59m"), (3600, "1h"), (172_800, "2d")]
)
def test_ages(seconds: int, words: str) -> None:
    assert age(NOW, NOW + timedelta(seconds=seconds)) == words
