"""The life of a run with sandbox pods; the test plays the kubelet."""

from pathlib import Path

import pytest
from tests.unit.rl_operator.reconcile.life import KEY, Life, MortalClient, make_life
from tests.unit.rl_operator.samples import TINY
from tests.unit.rl_operator.status.builders import ready, running, terminated, waiting

from rl_operator.api.names import RUN_KIND
from rl_operator.api.runtime import Runtime
from rl_operator.api.spec_parts.sandboxes import RuntimeSandboxes
from rl_operator.api.status_fields import SandboxPods
from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import GoneError
from rl_operator.reconcile.run_client import Key
from rl_operator.status.observed.observation import format_time


class ClusterLikeClient(MortalClient):
    """It has sandbox pods, which local mode does not."""

    edited: Runtime | None = None
    """Its RLRuntime, after somebody edited it."""

    def runtime(self, name: str) -> Runtime | None:
        return self.edited or super().runtime(name)

    def run(self, key: Key) -> TrainingRun | None:
        manifest = self._store.get(RUN_KIND, *key)
        return TrainingRun.model_validate(manifest) if manifest else None


@pytest.fixture
def life(tmp_path: Path) -> Life:
    return make_life(tmp_path, ClusterLikeClient)


async def start(life: Life) -> None:
    await life.settle()
    await life.report("Running", ready(), ready(), running())


async def test_from_apply_to_weights(life: Life) -> None:
    life.apply(sandbox={"size": 2})
    await start(life)
    assert list(life.sandboxes) == ["1-sandbox-0-0", "1-sandbox-1-0"]
    assert life.names("Service") == ["sorting-U-box"], "its environment is inside of the run's pod"
    assert life.names("NetworkPolicy") == ["sorting-U-ops", "sorting-U-sandbox"]

    for name in life.sandboxes:
        life.play_sandbox(name, ready())
    await life.report("Running", ready(), ready(), ready())
    assert life.status.sandboxes == SandboxPods(desired=2, ready=2, replaced=0, observed_at=format_time(life.now))

    life.play_sandbox("1-sandbox-0-0", terminated(0), "Succeeded")
    await life.settle()
    assert set(life.sandboxes) >= {"1-sandbox-0-1", "1-sandbox-1-0"}
    life.kubelet()
    await life.settle()
    assert set(life.sandboxes) == {"1-sandbox-0-1", "1-sandbox-1-0"}, "a used one is gone once it has a successor"

    await life.succeed()
    life.kubelet()
    await life.settle()
    assert life.status.phase == "Succeeded"
    assert life.sandboxes == {}


async def test_an_image_that_cannot_be_pulled_is_a_warning(life: Life) -> None:
    life.apply(sandbox={"size": 1})
    await start(life)
    life.play_sandbox("1-sandbox-0-0", waiting("ErrImagePull", "not found"), "Pending")
    await life.settle()
    assert life.client.warned == ("SandboxFailing",)


async def test_beside_an_environment_of_its_own(life: Life) -> None:
    life.apply_own(sandbox={"size": 1})
    await life.settle()
    await life.report("Running", ready(), ready())
    assert list(life.sandboxes) == ["1-sandbox-0-0"]
    assert sorted(life.names("Service")) == ["sorting-U", "sorting-U-box"]
    policies = ["sorting-U-environment", "sorting-U-ops", "sorting-U-sandbox", "sorting-U-trainer"]
    assert sorted(life.names("NetworkPolicy")) == policies


async def test_an_edited_runtime_is_for_later_runs(life: Life) -> None:
    life.apply(sandbox={"size": 2})
    await start(life)
    before = life.sandboxes["1-sandbox-0-0"]["spec"]
    assert isinstance(life.client, ClusterLikeClient)
    bounds = RuntimeSandboxes(image="other:1", max_size=1, max_resources={"memory": "200Mi"}, max_timeout_seconds=1)
    life.client.edited = TINY.with_changes(spec=TINY.spec.with_changes(sandbox=bounds))
    life.play_sandbox("1-sandbox-0-0", terminated(0), "Succeeded")
    await life.settle()
    assert "1-sandbox-1-0" in life.sandboxes
    after = life.sandboxes["1-sandbox-0-1"]["spec"]
    assert after["securityContext"].pop("runAsUser") != before["securityContext"].pop("runAsUser")
    assert after == {name: content for name, content in before.items() if name != "nodeName"} | {
        "nodeName": "localhost"
    }
    assert life.status.refusals == ()


async def test_a_deleted_wall_is_put_back(life: Life) -> None:
    life.apply(sandbox={"size": 1})
    await start(life)
    for policy in tuple(life.store.list_all("NetworkPolicy", KEY[0])):
        life.store.delete("NetworkPolicy", KEY[0], policy["metadata"]["name"])
    await life.settle()
    assert life.names("NetworkPolicy") == ["sorting-U-ops", "sorting-U-sandbox"]


@pytest.mark.parametrize("dies_before", [True, False])
@pytest.mark.parametrize("dies_at", range(1, 17))
async def test_an_operator_that_dies_at_any_write(life: Life, dies_at: int, dies_before: bool) -> None:
    life.client.dies_at, life.client.dies_before = dies_at, dies_before
    life.apply(sandbox={"size": 2})
    await start(life)
    assert list(life.sandboxes) == ["1-sandbox-0-0", "1-sandbox-1-0"]
    life.play_sandbox("1-sandbox-0-0", terminated(0), "Succeeded")
    await life.settle()
    life.kubelet()
    await life.settle()
    assert set(life.sandboxes) == {"1-sandbox-0-1", "1-sandbox-1-0"}


async def test_pods_that_vanish_with_their_run_are_not_replaced(life: Life) -> None:
    life.apply(sandbox={"size": 1})
    await start(life)
    life.play_sandbox("1-sandbox-0-0", ready())
    await life.settle()
    life.store.delete("Pod", KEY[0], life.sandboxes["1-sandbox-0-0"]["metadata"]["name"])
    life.client.run_is_gone = True
    with pytest.raises(GoneError):
        await life.reconcile()
    assert list(life.sandboxes) == ["1-sandbox-0-0"]


async def test_in_local_mode_there_are_none(tmp_path: Path) -> None:
    life = make_life(tmp_path)
    life.apply(sandbox={"size": 2})
    await start(life)
    assert life.sandboxes == {}
    assert life.names("NetworkPolicy") == ["sorting-U-ops"]
