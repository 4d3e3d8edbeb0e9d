"""What a run is checked against matters until it starts, but not afterwards."""

import asyncio
import json
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.family import CountingClient, Family
from tests.unit.rl_operator.samples import DEFAULT, TINY, inputs_of, make_run, make_runtime, own_inputs
from tests.unit.rl_operator.status.builders import failed_result

from rl_operator.api.runtime import Runtime
from rl_operator.api.settings.size_limits import SMALL_CHARACTERS, SMALL_VALUES
from rl_operator.documents.parse import parse_runtime
from rl_operator.local.state.layout import Layout
from rl_operator.local.state.state_store import StateStore
from rl_operator.reconcile.inputs import is_quick, off_loop


class Platform(CountingClient):
    """The administrator's side may be edited: one runtime `lab`, and the namespace's labels."""

    lab: Runtime | None = None
    labels: Mapping[str, str] = {}

    def runtime(self, name: str) -> Runtime | None:
        return self.lab if name == "lab" else super().runtime(name)

    def namespace_labels(self, namespace: str) -> Mapping[str, str]:  # noqa: ARG002 -- one namespace
        return self.labels

    def offer(self, **spec: Any) -> None:
        """Set the runtime: `tiny`, except for what is given here."""
        tiny = super().runtime("tiny")
        document = {**tiny.to_wire(), "metadata": {"name": "lab"}, "status": {}}
        self.lab = parse_runtime({**document, "spec": {**document["spec"], **spec}})


@pytest.fixture
def family(tmp_path: Path) -> Family:
    return Family(StateStore(Layout(tmp_path)), world_class=Platform)


@pytest.fixture
def platform(family: Family) -> Platform:
    assert isinstance(family.client, Platform)
    family.client.offer()
    return family.client


def codes(family: Family) -> list[str]:
    return [refusal.code for refusal in family.status("a").refusals]


async def test_a_draft_shows_what_it_would_run(family: Family, platform: Platform) -> None:
    await family.start("a", runtime="lab", suspend=True)
    draft = family.status("a")
    assert (draft.phase, draft.start_time, draft.frozen, draft.config_map_name) == ("Draft", None, None, None)
    assert draft.config_hash is not None
    assert family.children("a") == ()

    await family.change("a", config={"total_steps": 3})
    edited = family.status("a").config_hash
    assert edited not in (None, draft.config_hash)

    await family.change("a", suspend=False)
    begun = family.status("a")
    assert (begun.phase, begun.config_hash, begun.config_map_name) == ("Starting", edited, f"a-{edited[:8]}")


async def test_a_draft_follows_its_runtime(family: Family, platform: Platform) -> None:
    await family.start("a", runtime="lab", suspend=True, trainer={"lora_rank": 8})
    before = family.status("a").config_hash
    platform.offer(image="tinker-atropos:next")
    await family.settle("a")
    assert family.status("a").config_hash not in (None, before)

    platform.offer(locked={"trainer": {"lora_rank": 32}})
    await family.settle("a")
    refused = family.status("a")
    assert (codes(family), refused.phase, refused.config_hash) == (["LockedField"], "Pending", None)

    platform.lab = None
    await family.settle("a")
    assert codes(family) == ["RuntimeNotFound"]

    platform.offer()
    await family.settle("a")
    assert (
        family.status("a").phase,
        codes(family),
        family.status("a").config_hash,
    ) == ("Draft", [], before)


async def test_labels_only_matter_before_the_start(family: Family, platform: Platform) -> None:
    platform.offer(namespaceSelector={"matchLabels": {"team": "ml"}})
    await family.start("a", runtime="lab")
    assert codes(family) == ["NamespaceNotAllowed"]
    platform.labels = {"team": "ml"}
    await family.settle("a")
    assert (codes(family), family.status("a").phase) == ([], "Starting")
    platform.labels = {}
    await family.settle("a")
    assert (codes(family), family.status("a").phase) == ([], "Starting")


OF_AN_ATTEMPT = ("RL_ATTEMPT", "RL_OPS_TOKEN", "RL_CHECKPOINT_STEP", "RL_CHECKPOINT_PATH", "RL_BEST_CHECKPOINT")


@pytest.mark.parametrize("gone", [True, False], ids=["runtime deleted", "runtime edited"])
async def test_a_started_run_does_not_change(family: Family, platform: Platform, gone: bool) -> None:
    await family.start("a", runtime="lab", config={"group_size": 8})
    first = family.pods("a")[-1]
    platform.offer(image="tinker-atropos:next", locked={"env": {"group_size": 4}}, backend={"url": "http://elsewhere"})
    platform.lab = None if gone else platform.lab
    await family.fail("a")
    await family.later("a", seconds=11)
    assert (family.status("a").attempt, codes(family)) == (2, [])
    second = family.pods("a")[-1]
    assert first["metadata"]["name"] != second["metadata"]["name"]
    for pod in (first, second):
        for container in (*pod["spec"]["containers"], *pod["spec"]["initContainers"]):
            container["env"] = [each for each in container["env"] if each["name"] not in OF_AN_ATTEMPT]
    assert second["spec"] == first["spec"]


async def test_settings_edited_after_the_start_are_named(family: Family, platform: Platform) -> None:
    await family.start("a", runtime="lab", config={"total_steps": 3})
    begun = family.status("a")
    await family.change("a", config={"total_steps": 4}, trainer={"seed": 1})
    edited = family.status("a")
    assert [(r.code, r.field) for r in edited.refusals] == [
        ("FrozenField", "spec.config"),
        ("FrozenField", "spec.trainer"),
    ]
    told = [event.message for event in family.events("a") if event.reason == "FrozenField"]
    assert told == [" ".join(refusal.sentence for refusal in edited.refusals)]
    assert (edited.phase, edited.config_hash, edited.frozen) == (begun.phase, begun.config_hash, begun.frozen)
    assert {c.type: c.status for c in edited.conditions} == {c.type: c.status for c in begun.conditions}

    await family.fail("a")
    await family.later("a", seconds=11)
    assert (family.status("a").attempt, codes(family)) == (2, ["FrozenField", "FrozenField"])

    await family.change("a", config={"total_steps": 3.0}, trainer={})
    assert codes(family) == []


PRICES = {"currency": "EUR", "prefill": 0.1, "sample": 0.4, "train": 0.4}


def spending(family: Family) -> dict[str, str]:
    """What the newest attempt's trainer is told of money."""
    [trainer] = [each for each in family.pods("a")[-1]["spec"]["containers"] if each["name"] == "trainer"]
    names = ("RL_PRICES", "RL_BUDGET", "RL_SPENT", "RL_SPENT_STEPS")
    return {each["name"]: each["value"] for each in trainer["env"] if each["name"] in names}


async def test_a_run_rests_at_its_budget_until_that_is_raised(family: Family, platform: Platform) -> None:
    platform.offer(backend={"url": "http://tinker", "prices": PRICES})
    await family.start("a", runtime="lab", budget={"amount": 20, "currency": "EUR"})
    prices = json.dumps({"prefill": 0.1, "sample": 0.4, "train": 0.4, "currency": "EUR"})
    assert spending(family) == {"RL_PRICES": prices, "RL_BUDGET": "20.0"}

    cost = {"amount": 19.5, "currency": "EUR", "budget": 20.0}
    await family.fail("a", failed_result("budget", "19.50 EUR of 20.00 EUR are spent", cost=cost))
    await family.later("a", minutes=10)
    status = family.status("a")
    assert (status.phase, status.attempt, status.completion_time) == ("Stopped", 1, None)
    assert status.cost.amount == 19.5

    platform.lab = None  # what a started run was made from does not matter anymore
    await family.change("a", budget={"amount": 30, "currency": "EUR"})
    assert (family.status("a").attempt, family.status("a").phase) == (2, "Starting")
    assert spending(family) == {
        "RL_PRICES": prices,
        "RL_BUDGET": "30.0",
        "RL_SPENT": "19.5",
        "RL_SPENT_STEPS": "7",
    }


async def test_a_budget_that_was_raised_in_time_lets_the_next_attempt_follow_at_once(
    family: Family, platform: Platform
) -> None:
    platform.offer(backend={"url": "http://tinker", "prices": PRICES})
    await family.start("a", runtime="lab", budget={"amount": 20, "currency": "EUR"})
    family.edit("a", budget={"amount": 30, "currency": "EUR"})
    cost = {"amount": 19.5, "currency": "EUR", "budget": 20.0}
    await family.fail("a", failed_result("budget", "19.50 EUR of 20.00 EUR are spent", cost=cost))
    assert (family.status("a").attempt, family.status("a").phase) == (2, "Starting")
    assert spending(family)["RL_BUDGET"] == "30.0"


async def test_the_loop_goes_on_while_it_works() -> None:
    asked = threading.Event()

    def work(answer: str) -> tuple[str, str]:
        assert asked.wait(60), "the loop stood still"
        return answer, threading.current_thread().name

    working = asyncio.create_task(off_loop(work, "done"))
    await asyncio.sleep(0)
    asked.set()
    answer, thread = await working
    assert (answer, thread.startswith("documents")) == ("done", True)


async def test_errors_come_back() -> None:
    with pytest.raises(ZeroDivisionError):
        await off_loop(divmod, 1, 0)


QUICK = {
    "a usual run": ({"config": {"total_steps": 40, "group_size": 8}}, {}),
    "the default recipe": ({"runtime": "default"}, {}),
}
SLOW = {
    "a name that must be looked for": ({"config": {"group_sise": 8}}, {}),
    "a name that the trainer does not know": ({"trainer": {"lerning_rate": 1}}, {}),
    "a large value": ({"config": {"total_steps": "x" * SMALL_CHARACTERS}}, {}),
    "a large runtime": ({}, {"locked": {"env": {"choices": list(range(SMALL_VALUES))}}}),
    "an environment that is not there": ({"environment": "sort_digit"}, {}),
}


@pytest.mark.parametrize(
    ("spec", "runtime", "quick"),
    [*((*case, True) for case in QUICK.values()), *((*case, False) for case in SLOW.values())],
    ids=[*QUICK, *SLOW],
)
def test_small_documents_without_misspelled_names_are_quick(
    spec: dict[str, Any], runtime: dict[str, Any], quick: bool
) -> None:
    run = make_run(**spec)
    of_runtime = make_runtime(**runtime) if runtime else DEFAULT if run.spec.runtime == "default" else TINY
    assert is_quick(run, inputs_of(run, of_runtime)) is quick


def test_code_of_ones_own_is_not_quick() -> None:
    run = make_run(environment="own/digits")
    assert not is_quick(run, own_inputs(run))
