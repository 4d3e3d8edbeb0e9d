"""Which sandboxes an environment gets, by what it asks for and where it is."""

from typing import Any

import pytest

from tinker_atropos.environments.agents.sandbox_source import NO_PODS, sandbox_source
from tinker_atropos.errors import ConfigError
from tinker_atropos.sandboxes.sandbox import SandboxLimits

LIMITS = SandboxLimits(memory_mb=64)
NOWHERE: dict[str, str] = {}
IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
WITH_PODS = {
    **IN_CLUSTER,
    "RL_SANDBOX_HOST": "sorting-sandboxes",
    "RL_SANDBOX_PORT": "8090",
    "RL_SANDBOX_SHARE": "3",
    "RL_RUN_UID": "uid",
    "RL_RUN_NAME": "sorting",
}


def told(make_pool: Any) -> tuple[Any, ...]:
    """What a pool would be made with, which is not made."""
    keywords = {**make_pool.keywords}
    while hasattr(make_pool, "func"):
        make_pool = make_pool.func
    return make_pool.__name__, keywords


@pytest.mark.parametrize("place", [None, "kubernetes"])
def test_the_runs_pods(place: Any) -> None:
    source = sandbox_source(place, LIMITS, WITH_PODS)
    assert source.capacity == 3
    assert source.make_pool.args == ("sorting-sandboxes", 8090, "uid", 3)
    assert told(source.make_pool) == ("PodSandboxes", {"run_name": "sorting"})


@pytest.mark.parametrize(
    ("place", "environ", "must_isolate"),
    [(None, NOWHERE, False), ("local", NOWHERE, False), (None, IN_CLUSTER, True), ("local", WITH_PODS, True)],
)
def test_this_machine(place: Any, environ: dict[str, str], must_isolate: bool) -> None:
    source = sandbox_source(place, LIMITS, environ)
    assert source.capacity is None
    assert told(source.make_pool)[0] == "LocalSandboxes"
    assert source.make_pool.args == (SandboxLimits(memory_mb=64, must_isolate=must_isolate),)
    assert (source.trial is not None) == must_isolate


@pytest.mark.parametrize("environ", [NOWHERE, IN_CLUSTER])
def test_pods_that_are_not_there(environ: dict[str, str]) -> None:
    with pytest.raises(ConfigError) as refused:
        sandbox_source("kubernetes", LIMITS, environ)
    assert str(refused.value) == NO_PODS
