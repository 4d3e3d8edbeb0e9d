"""From the pods that read an image to the next step; and how their output is read."""

import json
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.api.catalog import Catalog
from rl_operator.api.names import DISCOVERY_ATTEMPT_LABEL, DISCOVERY_LABEL
from rl_operator.status.image_reading import (
    FIRST_PAUSE_SECONDS,
    MAX_PAUSE_SECONDS,
    Begin,
    ReadingPod,
    TakeOutput,
    Wait,
    next_step,
    observe_reading_pod,
    parse_output,
)

NOW = datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC)
JUST_NOW = "2026-01-02T03:04:05Z"


def pod(attempt: int = 1, phase: str = "Pending", state: dict[str, Any] | None = None, **status: Any) -> ReadingPod:
    statuses = [{"name": "environments", "imageID": "sha256:1", "state": state}] if state else []
    return observe_reading_pod(
        {
            "metadata": {
                "name": f"rl-discovery-k-{attempt}",
                "namespace": "ops",
                "uid": f"u{attempt}",
                "creationTimestamp": JUST_NOW,
                "labels": {DISCOVERY_LABEL: "k", DISCOVERY_ATTEMPT_LABEL: str(attempt)},
                "ownerReferences": [{"uid": "owner"}],
            },
            "status": {"phase": phase, "containerStatuses": statuses, **status},
        }
    )


def ended(code: int, message: str = "") -> dict[str, Any]:
    reason = "Error" if code else "Completed"
    return {"terminated": {"exitCode": code, "reason": reason, "message": message, "finishedAt": JUST_NOW}}


UNSCHEDULABLE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no node"}
OBSTACLES = {
    "nothing yet": (pod(), "Discovering", "is being read by pod ops/rl-discovery-k-1"),
    "starting": (pod(state={"waiting": {"reason": "ContainerCreating"}}), "Discovering", "is being read"),
    "no image": (
        pod(state={"waiting": {"reason": "ErrImagePull", "message": "not  found\n"}}),
        "DiscoveryFailed",
        "ErrImagePull: not found",
    ),
    "no place": (pod(conditions=[UNSCHEDULABLE]), "DiscoveryFailed", "Unschedulable: no node"),
    "no program": (
        pod(phase="Failed", state=ended(127, "not found")),
        "DiscoveryFailed",
        "Error, exit code 127: not found (tried again at 2026-01-02T03:04:20Z)",
    ),
    "too slow": (
        pod(phase="Failed", reason="DeadlineExceeded", message="too long"),
        "DiscoveryFailed",
        "DeadlineExceeded: too long",
    ),
}


@pytest.mark.parametrize(("seen", "reason", "said"), OBSTACLES.values(), ids=OBSTACLES)
def test_a_blocked_pod_is_reported_with_image_and_pod(seen: ReadingPod, reason: str, said: str) -> None:
    step = next_step("img:1", [seen], NOW)
    assert isinstance(step, Wait)
    assert step.reason == reason
    assert step.message.startswith("Image img:1 ")
    assert said in step.message


def test_without_a_pod_one_is_created_and_its_success_is_used() -> None:
    assert next_step("i", [], NOW) == Begin(1)
    good = pod(2, "Succeeded", ended(0))
    assert next_step("i", [pod(1, "Failed", ended(1)), good], NOW) == TakeOutput(good)
    assert good.image_id == "sha256:1"


@pytest.mark.parametrize(("attempt", "pause"), [(1, FIRST_PAUSE_SECONDS), (2, 2 * FIRST_PAUSE_SECONDS), (99, 900.0)])
def test_a_failure_is_retried_later_and_later(attempt: int, pause: float) -> None:
    failed = pod(attempt, "Failed", ended(1))
    early = next_step("i", [failed], NOW + timedelta(seconds=pause - 1))
    assert isinstance(early, Wait)
    assert early.seconds == 1
    assert next_step("i", [failed], NOW + timedelta(seconds=pause)) == Begin(attempt + 1)
    assert pause <= MAX_PAUSE_SECONDS


def test_an_invalid_catalog_is_a_failure() -> None:
    seen = pod(phase="Succeeded", state=ended(0))
    step = next_step("i", [seen], NOW, unreadable="it printed a poem")
    assert isinstance(step, Wait)
    assert "it printed a poem" in step.message
    later = NOW + timedelta(seconds=FIRST_PAUSE_SECONDS)
    assert next_step("i", [seen], later, unreadable="it printed a poem") == Begin(2)


def test_the_json_is_found_between_other_output() -> None:
    text = json.dumps({"environments": [{"name": "maze"}]}, indent=2)
    for log in (text, f"hello {{}}\n{text}\nbye\n"):
        read = parse_output(log)
        assert isinstance(read, Catalog)
        assert list(read.names) == ["maze"]


POEMS = ["", "a poem", '{"environments": 3}', '{"environments": [', "[1]", "{" * 100_000, '{"a":' * 100_000]


@pytest.mark.parametrize("log", POEMS, ids=range(len(POEMS)))
def test_an_invalid_catalog_is_described_briefly(log: str) -> None:
    said = parse_output(log)
    assert isinstance(said, str)
    assert "printed no catalog" in said
    assert len(said) <= 400
    assert "\n" not in said


@given(st.text())
def test_any_output_is_parsed_or_described(log: str) -> None:
    assert isinstance(parse_output(log), Catalog | str)


@pytest.mark.parametrize("label", ["", "x", "-1", "9" * 63])
def test_labels_may_be_edited_by_users(label: str) -> None:
    labels = {DISCOVERY_ATTEMPT_LABEL: label}
    metadata = {"name": "a", "namespace": "ops", "uid": "u", "creationTimestamp": JUST_NOW, "labels": labels}
    assert observe_reading_pod({"metadata": metadata}).attempt == 1
