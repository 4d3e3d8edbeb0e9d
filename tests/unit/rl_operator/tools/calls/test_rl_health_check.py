import platform
from dataclasses import replace

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, without_the_service
from tests.unit.rl_operator.tools.contexts import Call, call_at, drafted, refusal

from rl_operator.targets import local_needs
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.calls.rl_start_training import NO_RUNTIME


def test_this_machine(context: CallContext, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "made-up-for-a-test")
    answer = call("rl_health_check").answer
    assert answer["target"] == context.target.label
    assert answer["versions"]["python"] == platform.python_version()
    assert set(answer["versions"]) == {"rl_operator", "api", "python"}
    assert answer["runtimes"] == ["default", "tiny"]
    [key] = answer["missing"]
    assert (key["name"], key["needed"]) == ("TINKER_API_KEY", True)
    assert "made-up-for-a-test" not in str(answer)


def test_the_tinker_service_is_missing_with_the_command_that_installs_it(
    context: CallContext, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    for key in ("TINKER_API_KEY", "WANDB_API_KEY"):
        monkeypatch.setenv(key, "made-up-for-a-test")
    monkeypatch.setattr(local_needs, "find_program", without_the_service)
    [service] = call("rl_health_check").answer["missing"]
    assert (service["name"], service["needed"]) == ("tinker-service", True)
    assert service["how"] == "install it beside rlctl: pip install tinker-atropos tinker-service"
    run_id = drafted(context)
    assert [each["name"] for each in call("rl_start_training", dry_run=True).answer["missing"]] == ["tinker-service"]
    assert f"{run_id} is not started: program tinker-service is missing" in refusal(call("rl_start_training"))["error"]


def test_each_key_is_missing_once(context: CallContext) -> None:
    cluster = replace(context, target=MemoryTarget(runs_files=False))
    missing = call_at(cluster, "rl_health_check").answer["missing"]
    assert [each["name"] for each in missing] == ["tinker", "wandb"]


def test_a_cluster_without_runtimes(context: CallContext) -> None:
    class Bare(MemoryTarget):
        def runtimes(self) -> dict[str, object]:  # type: ignore[override]
            return {}

    answer = call_at(replace(context, target=Bare()), "rl_health_check").answer
    assert (answer["runtimes"], answer["missing"]) == ([], [NO_RUNTIME.to_wire()])
