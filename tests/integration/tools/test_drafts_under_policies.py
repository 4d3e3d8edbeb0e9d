"""With admission policies installed: they never refuse an edit that the check accepted, and are understood."""

import itertools
from collections.abc import Iterator

import pytest
from tests.integration.cluster.admin import RUNTIMES
from tests.integration.cluster.control_plane import API_SERVER, ControlPlane
from tests.integration.cluster.policies import door
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import install_runtime
from tests.integration.tools.conftest import target_of
from tests.unit.rl_operator.tools.contexts import call_at

from rl_operator.documents.parse import parse_runtime
from rl_operator.documents.shipped import bundled_catalog
from rl_operator.render.catalog_and_history import ImageCatalog, catalog_config_map
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.runs import named_run

pytestmark = [pytest.mark.apiserver, pytest.mark.parametrize("guarded_plane", [API_SERVER], indirect=True)]

_numbers = itertools.count(1)


@pytest.fixture
def runtime(guarded_plane: ControlPlane) -> str:
    """Its image counts as read, as by an operator."""
    admin, name = guarded_plane.admin, f"drafts-{next(_numbers)}"
    install_runtime(admin, "tiny", name=name)
    document = admin.get(f"{RUNTIMES}/{name}")
    config_map = catalog_config_map(parse_runtime(document), "default", ImageCatalog(bundled_catalog()))
    admin.post("/api/v1/namespaces/default/configmaps", config_map)
    reference = {"name": config_map["metadata"]["name"], "namespace": "default"}
    status = {"observedGeneration": 1, "conditions": [], "fieldsRef": reference}
    admin.patch(f"{RUNTIMES}/{name}/status", {"status": status})
    return name


@pytest.fixture
def context(guarded_plane: ControlPlane) -> Iterator[CallContext]:
    with target_of(guarded_plane) as target:
        yield CallContext(target, "default")


def test_the_api_server_accepts_what_the_check_accepts(context: CallContext, runtime: str) -> None:
    assert call_at(context, "rl_select_environment", name="sort_digits", runtime=runtime).code is None
    values = {"group_size": 4, "loss": "ppo", "wandb_tags": ["a"], "wandb_name": "n", "backoff_limit": 0}
    assert call_at(context, "rl_edit_config", values=values).code is None
    assert call_at(context, "rl_edit_config", values=dict.fromkeys(values)).answer["config"] == {}


def test_a_later_lock_is_satisfied_by_the_edit(context: CallContext, runtime: str, guarded_plane: ControlPlane) -> None:
    """The policies check the whole run at every write: a value set before the lock would block every edit."""
    admin = guarded_plane.admin
    run_id = call_at(context, "rl_select_environment", name="sort_digits", runtime=runtime).answer["run_id"]
    assert call_at(context, "rl_edit_config", field="total_steps", value=4).code is None
    admin.patch(f"{RUNTIMES}/{runtime}", {"spec": {"locked": {"env": {"total_steps": 9}}}})
    probe = named_run(context, run_id).to_wire()
    fresh = {"metadata": {"name": "probe"}, **{part: probe[part] for part in ("apiVersion", "kind", "spec")}}
    wait_for("the lock is known to the policy", lambda: door(admin, "default", fresh))
    refused = call_at(context, "rl_edit_config", field="group_size", value=4)
    assert refused.code == "refused"
    assert refused.answer["error"].startswith("the API server rejected the run: spec.config.total_steps is 4")
    assert refused.answer["refusals"][0]["locked"] == 9
    assert call_at(context, "rl_edit_config", values={"group_size": 4, "total_steps": None}).code is None
    assert named_run(context, run_id).spec.config == {"group_size": 4}
