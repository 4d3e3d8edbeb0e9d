"""Requests of atroposlib's servers as they arrive: OpenAI's routes and sglang's, marked and counted."""

import asyncio
import os
from collections.abc import AsyncIterator
from typing import Any

import pytest
from atroposlib.envs.server_handling.server_baseline import APIServerConfig
from atroposlib.envs.server_handling.server_manager import ServerManager
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.environments.rollout.sampled_work import (
    SampledAnswers,
    SampledWork,
    as_rollout,
    greedily,
    item_under_way,
    sampling,
    watch,
)
from tinker_atropos.serving import bind, serve

MESSAGES = [{"role": "user", "content": "sort 1 2"}]


class Recorder:
    """Answers n completions of three tokens, and keeps how each request is marked."""

    def __init__(self) -> None:
        self.marks: list[tuple[str, str | None, int | None]] = []
        self.temperatures: list[float | None] = []
        self.seeds: list[int | None] = []
        self.knows_ids = True

    def app(self) -> Starlette:
        paths = {"/generate": self._generate, "/v1/completions": self._openai, "/v1/chat/completions": self._openai}
        return Starlette(routes=[Route(path, handler, methods=["POST"]) for path, handler in paths.items()])

    async def _generate(self, request: Request) -> Response:
        params = (await request.json())["sampling_params"]
        self.marks.append((request.url.path, params.get("rl_purpose"), params.get("rl_evaluation")))
        self.temperatures.append(params.get("temperature"))
        self.seeds.append(params.get("seed"))
        logprobs = [[-1.0, 5, None]] * 3
        answer = {"text": "x", "meta_info": {"finish_reason": {"type": "stop"}, "output_token_logprobs": logprobs}}
        return JSONResponse([answer] * params["n"])

    async def _openai(self, request: Request) -> Response:
        body = await request.json()
        self.marks.append((request.url.path, body.get("rl_purpose"), body.get("rl_evaluation")))
        self.temperatures.append(body.get("temperature"))
        self.seeds.append(body.get("seed"))
        message = {"role": "assistant", "content": "x"}
        choice = {"index": 0, "finish_reason": "stop", "text": "x", "message": message, "logprobs": None}
        ids = {"prompt_token_ids": [7]} if body.get("return_token_ids") and self.knows_ids else {}
        choice |= {"token_ids": [5, 5, 5]} if ids else {}
        usage = {"prompt_tokens": 1, "completion_tokens": 3 * body["n"], "total_tokens": 1 + 3 * body["n"]}
        head = {"id": "x", "object": "text_completion", "created": 0, "model": "m"}
        return JSONResponse({**head, **ids, "choices": [choice] * body["n"], "usage": usage})


@pytest.fixture
async def recording_server() -> AsyncIterator[tuple[Recorder, ServerManager]]:
    os.environ["NO_PROXY"] = "127.0.0.1"
    recorder = Recorder()
    async with serve(recorder.app(), bind("127.0.0.1", 0, "test")) as port:
        config = APIServerConfig(
            server_type="sglang",
            model_name="m",
            tokenizer_name=str(bundled_model_folder()),
            base_url=f"http://127.0.0.1:{port}/v1",
            api_key="x",
            health_check=False,
        )
        servers = ServerManager([config])
        watch(servers.servers[0])
        async with servers.servers[0].openai:
            yield recorder, servers


async def ask(servers: ServerManager) -> None:
    """Four requests, twelve completions: also split ones, and through the managed server, in separate tasks."""
    sampled: dict[str, Any] = {"max_tokens": 4, "split": "eval", "temperature": 0.7}
    async with servers.managed_server(tokenizer=servers.servers[0].tokenizer) as managed:
        await asyncio.gather(
            servers.chat_completion(messages=MESSAGES, n=2, **sampled),
            servers.completion(prompt="x", n=3, **sampled),
            servers.tokens_and_logprobs_completion(input_ids=[5], n=6, **sampled),
            managed.chat_completion(messages=MESSAGES, n=1, max_tokens=4, temperature=0.7),
        )


async def test_evaluations_are_marked_and_counted_on_every_route(recording_server):
    seen, servers = recording_server
    with sampling("evaluation", step=20) as evaluation:
        await ask(servers)
    assert (evaluation.completions, evaluation.tokens) == (12, 36)
    assert evaluation.independent == 4  # the managed server and the route for tokens send the same messages as ids
    assert len(seen.marks) == 4
    assert {(purpose, step) for _, purpose, step in seen.marks} == {("evaluation", 20)}
    assert {path for path, *_ in seen.marks} == {"/generate", "/v1/completions", "/v1/chat/completions"}


async def test_the_answers_of_an_evaluation_are_kept_as_they_were_sampled(recording_server):
    _, servers = recording_server
    kept: list[SampledAnswers] = []
    with sampling("evaluation", 20, kept.append) as evaluation:
        await ask(servers)
    assert sum(len(answers.tokens) for answers in kept) == evaluation.completions
    assert {row for answers in kept for row in map(tuple, answers.tokens)} == {(5, 5, 5)}
    by_ids = [answers for answers in kept if answers.logprobs is not None]
    assert ([5], [[-1.0] * 3] * 6) in [(answers.prompt, answers.logprobs) for answers in by_ids]
    assert [answers.prompt for answers in kept if answers.logprobs is None] == [[7], [7]]


async def test_a_server_that_knows_no_token_ids_answers_all_the_same(recording_server):
    seen, servers = recording_server
    seen.knows_ids = False
    kept: list[SampledAnswers] = []
    with sampling("evaluation", 20, kept.append) as evaluation:
        await ask(servers)
    assert evaluation.completions == 12
    assert all(answers.logprobs for answers in kept)


async def test_training_during_an_evaluation_is_counted_separately_and_not_marked(recording_server):
    seen, servers = recording_server

    async def work(purpose) -> int:
        with sampling(purpose) as sampled:
            await ask(servers)
        return sampled.completions

    assert await asyncio.gather(work("training"), work("evaluation")) == [12, 12]
    marks = [purpose for _, purpose, _ in seen.marks]
    assert (marks.count("evaluation"), marks.count(None)) == (4, 4)
    await ask(servers)
    assert marks.count("evaluation") == 4


async def test_what_is_asked_greedily_is_at_temperature_0_on_every_route(recording_server):
    seen, servers = recording_server

    async def greedy() -> None:
        with greedily():
            await ask(servers)

    with sampling("evaluation", step=20) as evaluation:
        await asyncio.gather(greedy(), ask(servers))
    assert sorted(seen.temperatures) == [0.0] * 4 + [0.7] * 4
    assert evaluation.temperature == 0.7, "greedy answers have figures of their own"
    with sampling("training"), greedily():
        await ask(servers)
    assert seen.temperatures[8:] == [0.7] * 4, "what is trained never is"


async def seeds_of(recording_server, seed: int | None, item: int | None, purpose: Any = "training") -> list[int | None]:
    """Of four requests of unknown rollouts, and of two turns in each of two rollouts."""
    seen, servers = recording_server

    async def two_turns() -> None:
        for _ in range(2):
            await servers.tokens_and_logprobs_completion(input_ids=[5], n=1, max_tokens=4)

    seen.seeds.clear()
    item_under_way.set(item)
    with sampling(purpose, seed=seed):
        await ask(servers)
        await as_rollout(two_turns())
        await as_rollout(two_turns())
    return sorted(seen.seeds[:4], key=str) + seen.seeds[4:]


async def test_a_sample_has_a_seed_of_the_run_the_item_the_rollout_and_the_turn(recording_server):
    first, again = [await seeds_of(recording_server, 7, 3) for _ in range(2)]
    assert first == again, "not of time or process"
    others = [(8, 3, "training"), (7, 4, "training"), (7, 3, "evaluation")]
    different = [*first, *[seed for each in others for seed in await seeds_of(recording_server, *each)]]
    assert len(set(different)) == len(different) == 4 * 8
    assert all(isinstance(seed, int) and 0 <= seed < 2**63 for seed in different)
    assert await seeds_of(recording_server, None, 3) == [None] * 8


async def test_a_request_keeps_a_seed_of_its_own(recording_server):
    seen, servers = recording_server
    with sampling("training", seed=7):
        await servers.tokens_and_logprobs_completion(input_ids=[5], n=1, max_tokens=4, seed=12)
    assert seen.seeds == [12]


def test_rollouts_of_an_item_are_numbered_in_the_order_in_which_they_begin():
    work = SampledWork("training", seed=7)
    item_under_way.set(3)
    seeds = [work.rollout_seed(work.next_rollout()) for _ in range(3)]
    assert len({seed["rl_seed"] for seed in seeds}) == 3
    assert work.rollout_seed(0) == seeds[0]


@pytest.mark.parametrize(
    ("temperatures", "told"), [([], None), ([0.7, 0.7], 0.7), ([0.7, 1.0], None), ([0.7, None], None)]
)
def test_the_temperature_of_an_evaluation_is_told_if_there_is_one(temperatures, told):
    work = SampledWork("evaluation")
    for number, temperature in enumerate(temperatures):
        work.add(number, 1, 5, temperature)
    assert work.temperature == told
