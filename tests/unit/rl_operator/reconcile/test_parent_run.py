"""A run that starts from another one."""

from datetime import timedelta
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.family import NOW, Family, KilledError

from rl_contract.content_hash import sha256_of_texts
from rl_operator.api.names import RUN_KIND
from rl_operator.reconcile.inputs import gather_parent
from rl_operator.status.observed.observation import format_time

STATE = "tinker://m/weights/end"
SUCCEEDED: dict[str, Any] = {
    "phase": "Succeeded",
    "startTime": "2026-05-01T10:00:00Z",
    "progress": {"step": 40, "totalSteps": 40, "percent": 100},
    "weights": {"samplerPath": "tinker://m/sampler_weights/end", "statePath": STATE},
    "wandb": {"url": "https://wandb.ai/a/b/runs/c"},
}


def refusal(family: Family, name: str = "child") -> str:
    """The hint of the only refusal."""
    [refused] = family.status(name).refusals
    assert (refused.code, refused.field) == ("StartFromRefused", "spec.startFrom.run")
    assert family.pods(name) == ()
    return refused.hint


async def test_a_child_starts_from_its_parents_last_state(family: Family) -> None:
    await family.parent(**SUCCEEDED)
    await family.start("child", startFrom={"run": "parent", "withOptimizer": True})
    assert family.status("child").started_from.to_wire() == {
        "run": "parent",
        "uid": family.run("parent").metadata.uid,
        "step": 40,
        "statePath": STATE,
        "wandbUrl": "https://wandb.ai/a/b/runs/c",
    }
    assert family.trainer("child") == {
        "RL_START_FROM": STATE,
        "RL_START_FROM_OPTIMIZER": "1",
        "RL_PARENT_RUN": "parent",
        "RL_PARENT_STEP": "40",
        "RL_PARENT_WANDB_URL": "https://wandb.ai/a/b/runs/c",
    }


async def test_a_second_attempt_starts_from_the_same_state(family: Family) -> None:
    await family.parent(**SUCCEEDED)
    await family.start("child", startFrom={"run": "parent"})
    began, told = family.status("child").started_from, family.trainer("child")
    family.store.delete(RUN_KIND, "default", "parent")

    await family.fail("child")
    await family.later("child", seconds=11)
    assert (family.status("child").attempt, len(family.pods("child"))) == (2, 2)
    assert (family.status("child").started_from, family.trainer("child")) == (began, told)


async def test_an_interrupted_start_continues_from_the_frozen_inputs(family: Family) -> None:
    """The operator died before it created anything; the parent is gone when it returns."""
    await family.parent(**SUCCEEDED)
    family.apply("child", startFrom={"run": "parent"})
    family.client.dies_at_child = True
    with pytest.raises(KilledError):
        await family.settle("child")
    began = family.status("child")
    assert (began.phase, family.pods("child")) == ("Starting", ())
    family.store.delete(RUN_KIND, "default", "parent")
    family.client.dies_at_child = False
    await family.settle("child")
    assert family.trainer("child")["RL_START_FROM"] == STATE
    assert family.status("child").config_hash == began.config_hash


async def test_an_unfinished_parent_is_waited_for(family: Family) -> None:
    await family.start("child", startFrom={"run": "parent"})
    assert refusal(family) == "there is no such run in namespace default: name one that is over"
    await family.parent(phase="Running")
    await family.settle("child")
    assert refusal(family) == "it is Running and not over: start from it once it is"
    assert family.client.live_reads == 0, "what the caches know is not read"
    family.set_status("parent", **SUCCEEDED)
    await family.settle("child")
    assert (family.status("child").phase, family.status("child").refusals) == ("Starting", ())


async def test_a_failed_parent_gives_its_newest_checkpoint(family: Family) -> None:
    await family.parent(phase="Failed")
    await family.start("child", startFrom={"run": "parent"})
    assert refusal(family) == "it is Failed and kept no state: name another run"
    family.set_status("parent", checkpoint={"step": 25, "statePath": "tinker://m/weights/000025"})
    await family.settle("child")
    assert family.trainer("child") == {
        "RL_START_FROM": "tinker://m/weights/000025",
        "RL_PARENT_RUN": "parent",
        "RL_PARENT_STEP": "25",
    }


async def test_a_stopped_parent_is_not_finished(family: Family) -> None:
    await family.parent(phase="Stopped", checkpoint={"step": 25, "statePath": "tinker://m/weights/000025"})
    await family.start("child", startFrom={"run": "parent"})
    assert "resume it and let it end" in refusal(family)
    assert "{checkpoint: tinker://m/weights/000025}" in refusal(family)


async def test_a_state_expires_while_a_draft_waits(family: Family) -> None:
    expires = format_time(NOW + timedelta(days=1))
    await family.parent(phase="Failed", checkpoint={"step": 25, "statePath": STATE, "expiresAt": expires})
    await family.start("child", startFrom={"run": "parent"}, suspend=True)
    assert family.status("child").phase == "Draft"
    family.now += timedelta(days=1)
    await family.change("child", suspend=False)
    assert refusal(family) == f"its state of step 25 expired at {expires}: name another run"


async def test_a_parent_deleted_before_the_start_is_reported_missing(family: Family) -> None:
    await family.parent(**SUCCEEDED)
    await family.start("child", startFrom={"run": "parent"}, suspend=True)
    family.store.delete(RUN_KIND, "default", "parent")
    await family.change("child", suspend=False)
    assert refusal(family) == "there is no such run in namespace default: name one that is over"


async def test_a_different_rank_is_refused_until_it_is_fixed(family: Family) -> None:
    await family.parent(**SUCCEEDED)
    await family.start("child", startFrom={"run": "parent"}, trainer={"lora_rank": 4})
    assert "it trained with a LoRA rank of 16, and this run has 4" in refusal(family)
    await family.change("child", trainer={})
    assert family.status("child").phase == "Starting"


async def test_a_parent_whose_config_is_gone(family: Family) -> None:
    await family.parent(**SUCCEEDED)
    family.store.delete("ConfigMap", "default", family.status("parent").config_map_name or "")
    await family.start("child", startFrom={"run": "parent"})
    assert refusal(family).startswith("what it trained is no longer known (its ConfigMap is gone): ")


@pytest.mark.parametrize("text", ["env: [", "- 1", "env: {}\nopenai: x\ntinker: {}", "{}\n---\n{}"])
@pytest.mark.parametrize("known", [True, False], ids=["as it started", "exchanged since"])
async def test_a_parent_with_another_or_an_invalid_config(family: Family, text: str, known: bool) -> None:
    await family.parent(**SUCCEEDED)
    name = family.status("parent").config_map_name or ""
    config_map = family.store.update(
        "ConfigMap", "default", name, lambda found: found["data"].update({"config.yaml": text})
    )
    if known:
        family.set_status("parent", **SUCCEEDED, configHash=sha256_of_texts(config_map["data"]))
    await family.start("child", startFrom={"run": "parent"})
    why = "its ConfigMap is gone" if known else f"ConfigMap default/{name} is not what the run was started with"
    assert refusal(family).startswith(f"what it trained is no longer known ({why}")


async def test_a_run_cannot_start_from_itself(family: Family) -> None:
    await family.start("child", startFrom={"run": "child"})
    assert refusal(family) == "a run cannot start from itself: name another one"


async def test_chains_of_runs(family: Family) -> None:
    await family.parent(**SUCCEEDED)
    await family.start("child", startFrom={"run": "parent"})
    family.set_status("child", **{**SUCCEEDED, "weights": {"samplerPath": "s", "statePath": "tinker://child/end"}})
    await family.start("grandchild", startFrom={"run": "child"})
    assert family.trainer("grandchild")["RL_START_FROM"] == "tinker://child/end"
    assert family.trainer("grandchild")["RL_PARENT_RUN"] == "child"


async def test_two_runs_that_wait_for_each_other_are_reported(family: Family) -> None:
    for name, other in (("one", "other"), ("other", "one")):
        family.apply(name, startFrom={"run": other})
    for name in ("one", "other", "one"):
        await family.settle(name)
    assert refusal(family, "one") == refusal(family, "other") == "it is Pending and not over: start from it once it is"


@pytest.mark.parametrize("start_from", [None, {"checkpoint": "tinker://a/weights/b"}])
async def test_only_runs_that_name_a_parent_read_it(family: Family, start_from: dict[str, Any] | None) -> None:
    family.apply("child", **({"startFrom": start_from} if start_from else {}))
    assert await gather_parent(family.run("child"), family.client, NOW) is None
    assert family.client.live_reads == 0
