"""rl_start_training, and which keys it misses."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.samples import DEFAULT, inputs_of, make_run, make_runtime, own_environment, own_inputs
from tests.unit.rl_operator.targets.fakes import MemoryTarget
from tests.unit.rl_operator.tools.contexts import Call, Unattended, call_at, drafted, refusal, spec_of, write_status

from rl_operator.api.kubernetes_objects import Manifest
from rl_operator.api.names import STARTED_AS_ANNOTATION
from rl_operator.api.run_inputs import RunInputs, choose_environment
from rl_operator.api.runtime import SecretKey
from rl_operator.local.state.layout import Layout
from rl_operator.targets.local_needs import LocalNeeds
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_start_training import missing_for, missing_in

STARTED = "2026-11-22T00:30:00Z"
KEYS = ("TINKER_API_KEY", "WANDB_API_KEY")


class NeedsOfACluster(LocalNeeds):
    def refuse_what_would_wait(self, manifest: Manifest) -> None:
        """On a cluster the pod waits."""


class LikeACluster(Unattended):
    """Keys are in Secrets; `keys` says what is known of them."""

    runs_files = False
    keys: dict[str, bool | None] = dict.fromkeys(KEYS, True)

    def has_key(self, namespace: str, runtime: str, variable: str, secret: SecretKey) -> bool | None:  # type: ignore[override]
        assert namespace, (runtime, secret)
        return self.keys[variable]

    @property
    def _needs(self) -> LocalNeeds:
        return NeedsOfACluster(self._store)


@pytest.fixture
def like_a_cluster(tmp_path: Path) -> LikeACluster:
    return LikeACluster(Layout(tmp_path), "", print)


@pytest.fixture
def context(like_a_cluster: LikeACluster) -> CallContext:
    return CallContext(like_a_cluster, "default")


def suspended(context: CallContext, name: str) -> bool:
    return bool(spec_of(context, name).get("suspend"))


def test_a_draft_starts_and_its_answer_has_all_that_matters(context: CallContext, call: Call) -> None:
    name = drafted(context)
    call("rl_edit_config", field="total_steps", value=7)
    outcome = call("rl_start_training")
    answer = outcome.answer
    assert outcome.code is None, answer
    assert not suspended(context, name)
    assert answer["run_id"] == name
    assert answer["status"] == "pending"
    assert answer["config"] == {
        "model": "bundled",
        "total_steps": 7,
        "group_size": 8,
        "batch_size": 32,
        "max_token_length": 64,
        "learning_rate": 0.001,
    }
    assert answer["wandb"] == {"run_name": name}
    assert answer["wandb_run_name"] == name
    assert answer["config_path"].startswith(f"ConfigMap default/{name}-")
    assert answer["logs"]["env"] == f"rl_get_logs(run_id='{name}', container='environment')"
    assert answer["missing"] == []
    assert answer["next_check_in_seconds"] > 0


def test_a_dry_run_says_the_same_and_writes_nothing(context: CallContext, call: Call) -> None:
    name = drafted(context)
    dry = call("rl_start_training", dry_run=True).answer
    assert suspended(context, name)
    assert dry["status"] == "draft"
    started = call("rl_start_training").answer
    told_again = {"status", "message", "next_check_in_seconds"}
    assert {**dry, **dict.fromkeys(told_again)} == {**started, **dict.fromkeys(told_again)}


def test_a_running_one_is_left_alone(context: CallContext, call: Call) -> None:
    name = drafted(context)
    first = call("rl_start_training").answer
    write_status(context, name, phase="Running", observedGeneration=2, startTime=STARTED)
    version = context.target.run("default", name)
    again = call("rl_start_training").answer
    assert again["status"] == "running"
    assert "already" in again["message"]
    assert (again["run_id"], again["config"]) == (first["run_id"], first["config"])
    assert context.target.run("default", name) == version


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_finished_one_is_answered_with_its_results(context: CallContext, call: Call, phase: str) -> None:
    name = drafted(context)
    call("rl_start_training")
    weights = {"samplerPath": "tinker://s", "statePath": "tinker://w"}
    write_status(context, name, phase=phase, observedGeneration=2, startTime=STARTED, weights=weights)
    before = context.target.run("default", name)
    answer = call("rl_start_training", run_id=name).answer
    assert answer["weights"] == {"sampler_path": "tinker://s", "state_path": "tinker://w"}
    assert f'start_from to {{"run": "{name}"}}' in answer["message"]
    assert context.target.run("default", name) == before


def test_a_stopped_one_is_resumed_whatever_its_runtime_allows_now(context: CallContext, call: Call) -> None:
    name = drafted(context)
    call("rl_edit_config", field="total_steps", value=7)
    status = {"phase": "Stopped", "observedGeneration": 2, "startTime": STARTED, "configMapName": "frozen"}
    checkpoint = {"step": 3, "statePath": "tinker://w"}
    write_status(context, name, **status, checkpoint=checkpoint)
    answer = call("rl_start_training").answer
    assert "continues from step 3" in answer["message"]
    assert answer["status"] == "pending"
    assert answer["config_path"] == "ConfigMap default/frozen"
    assert not suspended(context, name)


def test_a_restored_one_trains_from_the_beginning_on_request(context: CallContext, call: Call) -> None:
    name = drafted(context)
    context.target.change_spec("default", name, {"suspend": False}, {STARTED_AS_ANNOTATION: f"{name}.another-uid"})
    write_status(context, name, phase="Stopped", observedGeneration=2, startTime=STARTED)
    assert suspended(context, name) is False
    assert "dry run" in call("rl_start_training", dry_run=True).answer["message"]
    assert "from the beginning" in call("rl_start_training").answer["message"]
    manifest = context.target.run("default", name)
    assert manifest
    assert STARTED_AS_ANNOTATION not in manifest["metadata"]["annotations"]


def test_a_refused_draft_is_not_started(context: CallContext, call: Call) -> None:
    name = drafted(context)
    context.target.change_spec("default", name, {"config": {"group_size": "many"}})
    dry = call("rl_start_training", dry_run=True)
    assert dry.code is None
    outcome = call("rl_start_training")
    assert outcome.code == "refused"
    assert outcome.answer["refusals"] == dry.answer["refusals"]
    assert outcome.answer["refusals"][0]["field"] == "spec.config.group_size"
    assert suspended(context, name)


def test_a_missing_runtime_is_a_refusal(context: CallContext, call: Call) -> None:
    name = drafted(context)
    context.target.change_spec("default", name, {"runtime": "gone"})
    dry = call("rl_start_training", dry_run=True).answer
    assert dry["refusals"][0]["code"] == "RuntimeNotFound"
    assert call("rl_start_training").code == "refused"


def test_a_missing_key_of_the_backend_refuses_the_start(
    context: CallContext, call: Call, like_a_cluster: LikeACluster
) -> None:
    name = drafted(context, runtime="default")
    like_a_cluster.keys = dict.fromkeys(KEYS, False)
    dry = call("rl_start_training", dry_run=True).answer
    assert [(each["name"], each["needed"]) for each in dry["missing"]] == [("tinker", True), ("wandb", False)]
    outcome = call("rl_start_training")
    assert outcome.code == "refused"
    assert "kubectl -n default create secret generic tinker" in outcome.answer["error"]
    assert outcome.answer["missing"] == dry["missing"]
    assert suspended(context, name)


@pytest.mark.parametrize("trainer", [True, None], ids=["there", "not to be looked at"])
def test_other_missing_keys_do_not_refuse_it(
    context: CallContext, call: Call, like_a_cluster: LikeACluster, trainer: bool | None
) -> None:
    name = drafted(context, runtime="default")
    like_a_cluster.keys = {"TINKER_API_KEY": trainer, "WANDB_API_KEY": False}
    answer = call("rl_start_training").answer
    assert not any(each["needed"] for each in answer["missing"])
    assert answer["wandb_project"] == "atropos-tinker"
    assert not suspended(context, name)


def test_on_this_machine_the_start_needs_the_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key in KEYS:
        monkeypatch.delenv(key, raising=False)
    context = CallContext(Unattended(Layout(tmp_path), "", print), "default")
    name = drafted(context, runtime="default")
    assert "export TINKER_API_KEY=…" in refusal(call_at(context, "rl_start_training"))["error"]
    assert suspended(context, name)
    monkeypatch.setenv("TINKER_API_KEY", "tml-made-up-for-a-test")
    assert call_at(context, "rl_start_training").code is None
    assert not suspended(context, name)


def test_a_run_kept_in_git_gets_a_warning(context: CallContext, call: Call) -> None:
    name = drafted(context)
    context.target.change_spec("default", name, {}, {"argocd.argoproj.io/instance": "runs"})
    assert "Argo CD" in call("rl_start_training").answer["warning"]


def test_without_a_draft_nothing_starts(context: CallContext, call: Call) -> None:
    drafted(context)
    other = replace(context, agent="another")
    assert "rl_select_environment" in refusal(call_at(other, "rl_start_training"))["error"]


CLUSTER = {"runs_files": False}


def keys_of(keys: dict[str, bool | None], **target: Any) -> MemoryTarget:
    found = MemoryTarget(**target)
    found.keys = keys
    return found


def test_nothing_is_missing_when_the_keys_exist() -> None:
    assert missing_in(keys_of({"TINKER_API_KEY": True, "WANDB_API_KEY": True}), "team-a", DEFAULT) == ()


def test_a_secret_is_named_with_the_command_to_create_it() -> None:
    tinker, wandb = missing_in(keys_of({}, **CLUSTER), "team-a", DEFAULT)
    assert (tinker.what, tinker.name, tinker.needed) == ("Secret", "tinker", True)
    assert tinker.how == "kubectl -n team-a create secret generic tinker --from-literal=TINKER_API_KEY=…"
    assert (wandb.name, wandb.needed) == ("wandb", False)


def test_an_unreadable_secret_is_not_reported_missing() -> None:
    [unseen] = missing_in(keys_of({"TINKER_API_KEY": None, "WANDB_API_KEY": True}, **CLUSTER), "team-a", DEFAULT)
    assert not unseen.needed
    assert "it may be there" in unseen.why


def test_on_this_machine_it_is_a_variable() -> None:
    [tinker] = missing_in(keys_of({"WANDB_API_KEY": True}), "default", DEFAULT)
    assert (tinker.what, tinker.name, tinker.needed) == ("variable", "TINKER_API_KEY", True)
    assert tinker.how == "export TINKER_API_KEY=… where this is called from"


JUDGE = {"name": "judge", "key": "JUDGE_KEY"}


@pytest.mark.parametrize(
    ("allowed", "asked", "names"),
    [
        pytest.param([JUDGE], [JUDGE], ["judge"], id="asked for and allowed"),
        pytest.param([], [JUDGE], [], id="asked for only"),
        pytest.param([JUDGE], [], [], id="allowed only"),
    ],
)
def test_keys_of_own_environments(allowed: list[dict[str, str]], asked: list[dict[str, str]], names: list[str]) -> None:
    runtime = make_runtime(secretEnvironment=allowed)
    inputs = own_inputs(make_run(environment="own/digits"), runtime, own_environment(secretEnvironment=asked))
    assert [each.name for each in missing_for(keys_of({}, **CLUSTER), "team-a", inputs)] == names


def test_bundled_environments_get_every_key_that_the_runtime_lists() -> None:
    inputs = inputs_of(make_run(), make_runtime(secretEnvironment=[JUDGE]))
    assert [each.name for each in missing_for(keys_of({}, **CLUSTER), "team-a", inputs)] == ["judge"]


def test_unread_environments_are_waited_for() -> None:
    runtime = make_runtime()
    chosen = choose_environment("sort_digits", runtime, None, None)
    [pending] = missing_for(keys_of({}, **CLUSTER), "team-a", RunInputs(runtime, chosen))
    assert (pending.what, pending.name, pending.needed) == ("environment", "CatalogPending", False)
    assert pending.how.startswith("Wait")
