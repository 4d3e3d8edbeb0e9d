"""Groups on their way to the trajectory API: real connections to a scripted server."""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tinker_atropos.environments.runner.reporting.counters import HOPELESS_AFTER, Counters
from tinker_atropos.environments.runner.reporting.group_sender import GroupSender
from tinker_atropos.errors import EnvironmentLostError

ENV = SimpleNamespace(env_id=3)
RECEIVED = (200, {"status": "received"})
CONNECTION_LOST = (0, {})


@dataclass
class ScriptedApi:
    """Answers with the script's answers, then always with the last one. Keeps the requests."""

    script: list[tuple[int, dict[str, Any]]]
    paths: list[str] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    bodies: list[Any] = field(default_factory=list)
    connections: list[asyncio.Task[None] | None] = field(default_factory=list)

    async def answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections.append(asyncio.current_task())
        with contextlib.suppress(asyncio.IncompleteReadError):  # the client is gone
            while True:
                await self._answer_one(reader, writer)
        writer.close()
        await writer.wait_closed()

    async def until_all_have_left(self) -> None:
        await asyncio.gather(*filter(None, self.connections))

    async def _answer_one(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().strip().split("\r\n")
        headers = dict(line.lower().split(": ", 1) for line in lines)
        body = await reader.readexactly(int(headers["content-length"]))
        self.paths.append(request.split()[1])
        self.keys.append(headers["idempotency-key"])
        self.bodies.append(json.loads(gzip.decompress(body) if "content-encoding" in headers else body))
        status, answer = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if not status:
            raise asyncio.IncompleteReadError(b"", None)
        content = json.dumps(answer).encode()
        writer.write(b"HTTP/1.1 %d x\r\ncontent-length: %d\r\n\r\n%b" % (status, len(content), content))
        await writer.drain()


@contextlib.asynccontextmanager
async def sender_to(
    *script: tuple[int, dict[str, Any]],
) -> AsyncIterator[tuple[ScriptedApi, GroupSender, Counters, list]]:
    api, counters, given_up = ScriptedApi(list(script)), Counters(), list[EnvironmentLostError]()
    async with await asyncio.start_server(api.answer, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        sender = GroupSender(f"http://127.0.0.1:{port}", counters, given_up.append)
        async with contextlib.aclosing(sender._client):
            yield api, sender, counters, given_up
        await api.until_all_have_left()


async def test_a_group_is_sent_with_its_environment_and_its_own_key() -> None:
    async with sender_to(RECEIVED) as (api, sender, counters, _):
        await sender.send(ENV, {"tokens": np.array([[1, 2]])})
        await sender.send(ENV, {"tokens": [[1] * 2000]})
    assert api.paths == ["/scored_data"] * 2
    stamp = {"env_id": 3, "group_overrides": {"environment": 0}}
    assert api.bodies == [{"tokens": [[1, 2]], **stamp}, {"tokens": [[1] * 2000], **stamp}]
    assert len(set(api.keys)) == 2
    assert (counters.kept, counters.accepted, counters.refused) == (2, 2, 0)


@pytest.mark.parametrize("trouble", [(503, {"detail": "full"}), (500, {}), CONNECTION_LOST])
async def test_a_repeat_carries_the_same_key(trouble) -> None:
    async with sender_to(trouble, RECEIVED) as (api, sender, counters, _):
        await sender.send(ENV, [{"tokens": [[1]]}, {"tokens": [[2]]}])
    assert api.paths == ["/scored_data_list"] * 2
    assert (len(set(api.keys)), api.bodies[0]) == (1, api.bodies[1])
    assert counters.accepted == 2


async def test_a_refused_group_is_counted_and_not_sent_again() -> None:
    async with sender_to((422, {"detail": "scores has 1 entries"})) as (api, sender, counters, _):
        await sender.send(ENV, {"scores": [1.0]})
    assert (len(api.keys), counters.accepted, counters.refused) == (1, 0, 1)
    assert counters.last_failure == '422: {"detail": "scores has 1 entries"}'


async def test_the_good_groups_of_a_list_count_as_accepted() -> None:
    answer = {"status": "received", "groups_processed": 2, "refused": ["tokens[0] is empty"]}
    async with sender_to((200, answer)) as (_, sender, counters, _given_up):
        await sender.send(ENV, [{}, {}, {}])
    assert (counters.kept, counters.accepted, counters.refused, counters.last_failure) == (
        3,
        2,
        1,
        "tokens[0] is empty",
    )


async def test_a_value_that_is_not_json_is_refused_here() -> None:
    async with sender_to(RECEIVED) as (api, sender, counters, _):
        await sender.send(ENV, {"tokens": [[1]], "images": object()})
    assert (api.keys, counters.refused) == ([], 1)
    assert "cannot be written as JSON: Type is not JSON serializable: object" in str(counters.last_failure)


async def test_an_environment_with_only_refused_groups_gives_up() -> None:
    async with sender_to((422, {"detail": "no"})) as (_, sender, _counters, given_up):
        for _ in range(HOPELESS_AFTER):
            assert not given_up
            await sender.send(ENV, {})
        assert str(given_up[0]) == 'the trajectory API refuses every group (422: {"detail": "no"})'
