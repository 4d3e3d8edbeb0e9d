"""kopf is only the shell: what is registered, what it may write, how it waits, and what its lists may have missed."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any

import kopf
import pytest
from tests.unit.rl_operator.cluster.fake_api import Answer, FakeApi
from tests.unit.rl_operator.patience import until

from rl_operator.cluster.api_server.client import ClusterClient
from rl_operator.operator_errors import ForbiddenError, TargetUnreachableError
from rl_operator.process.kopf import Backoffs, Gaps, build_registry, configure

DISCOVERY = "/apis/rl-operator.dev/v1alpha1"
PLURALS = ("rltrainingruns", "rlruntimes", "rlenvironments")
SERVED = {"resources": [{"name": f"{plural}{sub}"} for plural in PLURALS for sub in ("", "/status")]}


def registry_of(client: ClusterClient, refused: Callable[[ForbiddenError], None] = print) -> Any:
    events = dict.fromkeys(PLURALS, print)
    return build_registry(client, events=events, refused=refused, listed=print)


def activity(registry: Any, kind: str) -> Any:
    return next(h.fn for h in registry._activities._handlers if h.activity.name == kind)


def test_one_event_handler_per_kind_and_nothing_that_writes(client: ClusterClient) -> None:
    """Change handlers, timers, daemons, indices and webhooks would write annotations and finalizers."""
    registry = registry_of(client)
    watched = [handler.selector.any_name or handler.selector.plural for handler in registry._watching._handlers]
    assert sorted(watched) == sorted(PLURALS)
    for other in (registry._changing, registry._spawning, registry._indexing, registry._webhooks):
        assert list(other.get_all_handlers()) == []
    assert sorted(h.activity.name for h in registry._activities._handlers) == ["AUTHENTICATION", "STARTUP"]


def test_unused_parts_of_kopf_are_off() -> None:
    settings = kopf.OperatorSettings()
    configure(settings)
    assert settings.scanning.disabled
    assert settings.peering.standalone
    assert not settings.posting.enabled
    assert settings.queueing.worker_limit is None
    assert not settings.watching.initial_streaming
    body = kopf.Body({"metadata": {"name": "x"}, "spec": {"a": 1}})
    patch = kopf.Patch()
    storage = settings.persistence.diffbase_storage
    storage.store(body=body, patch=patch, essence=storage.build(body=body))
    settings.persistence.progress_storage.touch(body=body, patch=patch, value="x")
    assert dict(patch) == {}


def test_pauses_never_end_and_can_be_restarted() -> None:
    backoffs = Backoffs()
    for _ in range(2):
        pauses = list(itertools.islice(backoffs, 50))
        assert all(0 < pause <= 45 for pause in pauses)
        assert pauses[0] < 1


async def test_a_permanently_refused_login_ends_the_process(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", DISCOVERY, Answer({"message": "Unauthorized"}, 401))
    ends: list[ForbiddenError] = []
    with pytest.raises(kopf.PermanentError, match="401: Unauthorized"):
        await activity(registry_of(client, refused=ends.append), "AUTHENTICATION")()
    hint = "it does not know the token or certificate, or no longer does"
    assert [str(end) for end in ends] == [f"GET {DISCOVERY}: the API server answered 401: Unauthorized: {hint}"]


async def test_a_login_is_retried_while_the_api_server_is_unreachable(api: FakeApi, client: ClusterClient) -> None:
    api.answers("GET", DISCOVERY, Answer({"message": "starting"}, 503), Answer(SERVED))
    login = activity(registry_of(client), "AUTHENTICATION")
    with pytest.raises(kopf.TemporaryError):
        await login()
    info = await login()
    assert info.server == api.url
    await info.aiohttp_session.close()


class Looks:
    """Counts the checks; the first ones fail."""

    def __init__(self, failing: int = 0) -> None:
        self.count = 0
        self._failing = failing

    async def __call__(self) -> None:
        self.count += 1
        if self.count <= self._failing:
            raise TargetUnreachableError("the API server is away")


async def closing(looks: Looks, count: int, notes: int = 1) -> None:
    gap = Gaps(looks)
    task = asyncio.create_task(gap.run())
    for _ in range(notes):
        gap.note()
    await until("all lists are looked at", lambda: looks.count >= count)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_several_lists_at_once_are_one_check() -> None:
    looks = Looks()
    await closing(looks, 1, notes=3)
    assert looks.count == 1


async def test_a_failed_check_is_repeated() -> None:
    looks = Looks(failing=1)
    await closing(looks, 2)
    assert looks.count == 2


async def test_a_list_that_starts_during_a_check_is_checked_as_well() -> None:
    looks = Looks()

    async def look() -> None:
        await looks()
        if looks.count == 1:
            gap.note()

    gap = Gaps(look)
    task = asyncio.create_task(gap.run())
    gap.note()
    await until("both lists are looked at", lambda: looks.count >= 2)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)
