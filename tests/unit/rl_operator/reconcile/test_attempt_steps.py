"""What an attempt is started with: its token and its wall. And the operator's log, which has one line for each change
of a run, and nothing else about it.
"""

import json
import logging
import re
from typing import Any

import pytest
from tests.unit.rl_operator.reconcile.life import KEY, Life
from tests.unit.rl_operator.status.builders import ready, result, running, terminated

from rl_operator.api.kubernetes_objects import KubernetesObject
from rl_operator.api.names import RUN_KIND


@pytest.fixture(autouse=True)
def info_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


async def test_a_run_that_succeeds(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start()
    await life.report("Pending", ready(), running(), running())
    await life.report("Running", ready(), ready(), ready())
    await life.succeed()
    pod, message = life.status.pod_name, life.status.message
    assert lines(caplog) == [
        ("INFO", f"run default/sorting attempt 1 starts: sort_digits, pod {pod}"),
        ("INFO", f"run default/sorting is over: Succeeded: {message}"),
    ]


async def test_a_lost_attempt_is_followed_by_the_next(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start()
    lost = terminated(4, result(outcome="running", stepsTrained=7))
    await life.report("Failed", ready(), lost, terminated(0))
    await life.later(400)
    first, ended, second = lines(caplog)
    assert "attempt 1 starts" in first[1]
    assert ended[1].startswith("run default/sorting attempt 1 has ended after step 7: BackendUnreachable in trainer")
    assert "attempt 2 starts" in second[1]


async def test_a_failure_is_a_warning_in_one_line(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start(backoffLimit=0)
    await life.fail()
    level, line = lines(caplog)[-1]
    assert level == "WARNING"
    assert line.startswith(f"run default/sorting is over: Failed: {life.status.failure.reason}")
    assert "\n" not in line
    assert len(lines(caplog)) == 2


async def test_a_refusal_is_told_once(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start(config={f"group_sise_{number}": 8 for number in range(9)})
    await life.settle()
    [(level, line)] = lines(caplog)
    assert (level, line.startswith("run default/sorting is refused: UnknownField: spec.config.")) == ("WARNING", True)
    assert line.endswith("(and 8 more)")


async def test_an_edit_of_a_started_run_is_named(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start()
    await life.change(config={"group_size": 9})
    sentence = "spec.config: it is frozen since the run started: make a new run for other settings"
    assert lines(caplog)[-1] == ("WARNING", f"run default/sorting is refused: FrozenField: {sentence}")


def token_of(pod: dict[str, Any]) -> str:
    """What the trainer's ops port asks for. No other container has it."""
    spec = pod["spec"]
    holders = {
        container["name"]: each["value"]
        for container in (*spec["initContainers"], *spec["containers"])
        for each in container.get("env", ())
        if each["name"] == "RL_OPS_TOKEN"
    }
    assert list(holders) == ["trainer"]
    assert re.fullmatch(r"[\w-]{40,}", holders["trainer"]), "the kubelet expands nothing in it"
    return str(holders["trainer"])


async def test_each_attempt_has_a_token_that_is_in_its_pod_alone(life: Life) -> None:
    await life.train()
    first = token_of(life.pods[0])
    assert [pod.ops_token for pod in life.client.pods(KEY)] == [first], "so that an operator that starts again knows it"
    await life.fail(inside=False)
    await life.later(11)
    tokens = [token_of(pod) for pod in life.pods]
    assert len(set(tokens)) == 2
    others = [each for kind in ("ConfigMap", "NetworkPolicy", RUN_KIND) for each in life.store.list_all(kind, KEY[0])]
    assert not [token for token in tokens if token in json.dumps(others)]


async def test_the_wall_around_ops_ports_is_there_before_the_pod_and_put_back(life: Life) -> None:
    """Also of a run whose environment is inside of its pod."""
    life.client.ops_peers = ({"ipBlock": {"cidr": "10.0.0.0/24"}},)
    order = []
    create = life.client.create_child

    async def watched(manifest: KubernetesObject) -> None:
        order.append(manifest["kind"])
        await create(manifest)

    life.client.create_child = watched  # type: ignore[method-assign]
    await life.train()
    assert order == ["ConfigMap", "NetworkPolicy", "Pod"]
    [policy] = life.store.list_all("NetworkPolicy", KEY[0])
    assert policy["metadata"]["name"] == f"sorting-{life.run.metadata.uid[:5]}-ops"
    assert policy["spec"]["ingress"][0]["from"] == [{"ipBlock": {"cidr": "10.0.0.0/24"}}]
    life.store.delete("NetworkPolicy", KEY[0], policy["metadata"]["name"])
    await life.settle()
    [again] = life.store.list_all("NetworkPolicy", KEY[0])
    assert again["spec"] == policy["spec"]
    assert (life.status.phase, life.status.attempt) == ("Running", 1)
