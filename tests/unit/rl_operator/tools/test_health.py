import platform
from collections.abc import Callable
from dataclasses import replace

import pytest
from tests.unit.rl_operator.backends.fakes import MemoryBackEnd
from tests.unit.rl_operator.tools.desks import call_at

from rl_operator.tools.desk import Desk
from rl_operator.tools.dispatch import Outcome
from rl_operator.tools.health import NO_RUNTIME

Call = Callable[..., Outcome]


def test_this_machine(desk: Desk, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    monkeypatch.setenv("WANDB_API_KEY", "made-up-for-a-test")
    answer = call("rl_health_check").answer
    assert answer["back_end"] == desk.backend.label
    assert answer["versions"]["python"] == platform.python_version()
    assert set(answer["versions"]) == {"rl_operator", "api", "python"}
    assert answer["runtimes"] == ["default", "tiny"]
    [key] = answer["missing"]
    assert (key["name"], key["needed"]) == ("TINKER_API_KEY", True)
    assert "made-up-for-a-test" not in str(answer)


def test_each_key_is_missing_once(desk: Desk) -> None:
    cluster = replace(desk, backend=MemoryBackEnd(runs_files=False))
    missing = call_at(cluster, "rl_health_check").answer["missing"]
    assert [each["name"] for each in missing] == ["tinker", "wandb"]


def test_a_cluster_without_runtimes(desk: Desk) -> None:
    class Bare(MemoryBackEnd):
        def runtimes(self) -> dict[str, object]:  # type: ignore[override]
            return {}

    answer = call_at(replace(desk, backend=Bare()), "rl_health_check").answer
    assert (answer["runtimes"], answer["missing"]) == ([], [NO_RUNTIME.to_wire()])
