"""The data port over real HTTP; the sampler behind it is scripted."""

import asyncio

import pytest

from rl_contract.trainer_settings import RolloutSampling
from tinker_atropos.chat.request_handling import MAX_BODY_BYTES
from tinker_atropos.chat.sampling import SampleRefusedError
from tinker_atropos.errors import BackendError
from tinker_atropos.trainer.backend.policy import Policy
from tinker_atropos.trainer.inference.inference_routes import InferenceServer, inference_app


async def test_generate_in_sglangs_shape(inference) -> None:
    ids = inference.tokenizer.encode("sort 4 1 3 2").tolist()
    params = {"max_new_tokens": 8, "temperature": 0.7, "top_p": 0.9, "top_k": 5}
    response = await inference.client.post("/generate", json={"input_ids": ids, "sampling_params": params})
    answer = response.json()
    output = inference.sampler.outputs[0]
    assert answer["text"] == "1234"
    assert answer["output_ids"] == output
    meta = answer["meta_info"]
    assert meta["prompt_tokens"] == len(ids)
    assert meta["completion_tokens"] == len(output)
    assert meta["finish_reason"] == {"type": "stop", "matched": 2}
    assert meta["policy_step"] == 7
    expected = [[pytest.approx(-0.1 * (at + 1)), token, None] for at, token in enumerate(output)]
    assert meta["output_token_logprobs"] == expected
    ((asked_ids, n, settings),) = inference.sampler.asked
    assert (asked_ids, n) == (ids, 1)
    assert (settings.max_tokens, settings.temperature, settings.top_p, settings.top_k) == (8, 0.7, 0.9, 5)


async def test_generate_takes_text_and_answers_a_list_for_several(inference) -> None:
    body = {"text": "sort 4 1 3 2", "sampling_params": {"n": 3}, "return_text_in_logprobs": True}
    answers = (await inference.client.post("/generate", json=body)).json()
    assert [answer["text"] for answer in answers] == ["1234"] * 3
    assert "".join(text for _, _, text in answers[0]["meta_info"]["output_token_logprobs"][:-1]) == "1234"
    assert len(inference.sampler.asked) == 1  # one request to the backend, which shares the prompt


async def test_samples_are_in_the_ledger_with_their_policy_step(inference) -> None:
    ids = inference.tokenizer.encode("sort 1").tolist()
    await inference.client.post("/generate", json={"input_ids": ids})
    inference.policy.swap(Policy(8, inference.sampler))
    inference.sampler.outputs = [[9, 9, 2]]
    await inference.client.post("/v1/completions", json={"prompt": ids})
    first = inference.remembered(ids, [*inference.tokenizer.encode("1234").tolist(), 2])
    second = inference.remembered(ids, [9, 9, 2])
    assert set(first.policy_step_T[len(ids) :]) == {7}
    assert second.policy_step_T[len(ids) :].tolist() == [8, 8, 8]
    assert second.logprobs_T[len(ids) :].tolist() == pytest.approx([-0.1, -0.2, -0.3])


async def test_completions(inference) -> None:
    inference.sampler.outputs = [inference.tokenizer.encode("12").tolist()]
    body = {"model": "m", "prompt": "sort 2 1", "max_tokens": 2, "n": 2, "logprobs": 0}
    answer = (await inference.client.post("/v1/completions", json=body)).json()
    assert answer["object"] == "text_completion"
    assert answer["model"] == "m"
    assert [choice["index"] for choice in answer["choices"]] == [0, 1]
    choice = answer["choices"][0]
    assert choice["text"] == "12"
    assert choice["finish_reason"] == "length"
    assert choice["logprobs"]["tokens"] == ["1", "2"]
    assert choice["logprobs"]["text_offset"] == [0, 1]
    assert choice["logprobs"]["token_logprobs"] == pytest.approx([-0.1, -0.2])
    prompt_tokens = len(inference.tokenizer.encode("sort 2 1"))
    assert answer["usage"] == {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": 4,
        "total_tokens": prompt_tokens + 4,
    }


async def test_chat_renders_the_tokenizers_template(inference) -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "sort 4 1 3 2"}], "logprobs": True}
    answer = (await inference.client.post("/v1/chat/completions", json=body)).json()
    rendered = "<|im_start|>user\nsort 4 1 3 2<|im_end|>\n<|im_start|>assistant\n"
    ((asked_ids, _, settings),) = inference.sampler.asked
    assert asked_ids == inference.tokenizer.encode(rendered).tolist()
    assert settings.max_tokens == 64
    choice = answer["choices"][0]
    assert choice["message"] == {"role": "assistant", "content": "1234"}
    assert choice["finish_reason"] == "stop"
    assert [entry["token"] for entry in choice["logprobs"]["content"]][:4] == ["1", "2", "3", "4"]


@pytest.mark.parametrize(
    ("stop", "expected"),
    [
        (None, None),
        ([], None),  # an empty list would switch EOS off in Tinker
        ("\n", ("\n", "<|im_end|>")),
        (["a", "b"], ("a", "b", "<|im_end|>")),
    ],
)
async def test_eos_ends_a_sample_whatever_stop_says(inference, stop, expected) -> None:
    await inference.client.post("/v1/completions", json={"prompt": "sort", "stop": stop})
    await inference.client.post("/generate", json={"text": "sort", "sampling_params": {"stop": stop}})
    assert [settings.stop for _, _, settings in inference.sampler.asked] == [expected, expected]


async def test_stop_token_ids_replace_eos_and_eos_is_added(inference) -> None:
    for params in ({"stop_token_ids": [7]}, {"stop_token_ids": [7], "ignore_eos": True}, {"ignore_eos": True}):
        await inference.client.post("/generate", json={"text": "sort", "sampling_params": params})
    assert [settings.stop for _, _, settings in inference.sampler.asked] == [(7, 2), (7,), ()]


async def test_stop_may_hold_token_ids(inference) -> None:
    for params in ({"stop": [7]}, {"stop": [2]}, {"stop": [7], "stop_token_ids": [9]}):
        await inference.client.post("/generate", json={"text": "sort", "sampling_params": params})
    await inference.client.post("/v1/chat/completions", json={**CHAT, "stop": [2, 7]})
    assert [settings.stop for _, _, settings in inference.sampler.asked] == [(7, 2), (2,), (9, 7, 2), (2, 7)]


STOPS = {
    "eos": ({}, "1234<|im_end|>", "1234", 2),
    "a string": ({"stop": "3"}, "123", "12", "3"),
    "the first of two strings": ({"stop": ["3", "23"]}, "123", "1", "23"),
    "a token id": ({"stop_token_ids": "3"}, "123", "12", "3"),
    "a string that is not there": ({"stop": "x"}, "12<|im_end|>", "12", 2),
}


@pytest.mark.parametrize(("params", "sampled", "text", "matched"), STOPS.values(), ids=STOPS)
async def test_text_ends_before_the_stop_and_tokens_with_it(inference, params, sampled, text, matched) -> None:
    ids = inference.tokenizer.encode(sampled).tolist()
    if "stop_token_ids" in params:
        (matched,) = inference.tokenizer.encode(params["stop_token_ids"]).tolist()
        params = {"stop_token_ids": [matched]}
    inference.sampler.outputs, inference.sampler.stop_reason = [ids], "stop"
    body = {"text": "sort", "sampling_params": params}
    answer = (await inference.client.post("/generate", json=body)).json()
    assert answer["text"] == text
    assert answer["output_ids"] == ids
    assert answer["meta_info"]["finish_reason"] == {"type": "stop", "matched": matched}
    body = {"prompt": "sort", "logprobs": 1, **params}
    (choice,) = (await inference.client.post("/v1/completions", json=body)).json()["choices"]
    assert (choice["text"], choice["finish_reason"]) == (text, "stop")
    assert len(choice["logprobs"]["tokens"]) == len(ids)


async def test_special_tokens_are_in_the_text_when_asked_for(inference) -> None:
    inference.sampler.outputs = [inference.tokenizer.encode("1<|im_start|>2").tolist()]
    for skip, text in ((True, "12"), (False, "1<|im_start|>2")):
        params = {"skip_special_tokens": skip}
        answer = await inference.client.post("/generate", json={"text": "sort", "sampling_params": params})
        assert answer.json()["text"] == text


@pytest.mark.parametrize(("logprobs", "given"), [(None, False), (False, False), (0, True), (1, True), (True, True)])
async def test_logprobs_belong_to_the_sampled_tokens(inference, logprobs, given) -> None:
    body = {"prompt": "sort", "logprobs": logprobs}
    (choice,) = (await inference.client.post("/v1/completions", json=body)).json()["choices"]
    assert (choice["logprobs"] is not None) is given
    if given:
        assert choice["logprobs"]["top_logprobs"] is None


async def test_seed_0_is_a_seed(inference) -> None:
    await inference.client.post("/generate", json={"text": "sort", "sampling_params": {"seed": 0}})
    await inference.client.post("/generate", json={"text": "sort"})
    assert [settings.seed for _, _, settings in inference.sampler.asked] == [0, None]


async def test_a_run_samples_training_as_it_is_set_and_a_request_may_say_otherwise(serve_inference) -> None:
    own = {"temperature": 0.3, "top_p": 0.4, "top_k": 2}
    evaluated = {"rl_purpose": "evaluation"}
    async with serve_inference(sampling=RolloutSampling(temperature=0.7, top_p=0.9, top_k=50)) as inference:
        for said in ({}, own, {"temperature": 1.0}, evaluated):
            await inference.client.post("/generate", json={"text": "sort", "sampling_params": said})
            await inference.client.post("/v1/chat/completions", json={**CHAT, **said})
    shapes = [(each.temperature, each.top_p, each.top_k) for _, _, each in inference.sampler.asked]
    assert shapes == [(0.7, 0.9, 50)] * 2 + [(0.3, 0.4, 2)] * 2 + [(1.0, 0.9, 50)] * 2 + [(1.0, 1.0, -1)] * 2


async def test_the_seed_of_a_rollout_gives_each_prompt_one_of_its_own(inference) -> None:
    for tokens, seed in (([5], 1), ([5], 1), ([6], 1), ([5], 2)):
        body = {"token_ids": tokens, "sampling_params": {"rl_seed": seed}}
        await inference.client.post("/inference/v1/generate", json=body)
    first, again, *others = [settings.seed for _, _, settings in inference.sampler.asked]
    assert first == again
    assert len({first, *others}) == 3


async def test_pings_are_answered_without_the_backend(inference) -> None:
    chat = {"model": "m", "messages": [{"role": "user", "content": "hi"}], "max_tokens": 1}
    for path, body in (
        ("/v1/completions", {"model": "m", "prompt": "hi", "max_tokens": 1}),
        ("/v1/chat/completions", chat),
    ):
        response = await inference.client.post(path, json=body)
        assert response.status_code == 200
        assert response.json()["choices"][0]["finish_reason"] == "stop"
    assert inference.sampler.asked == []
    await inference.client.post("/v1/chat/completions", json={**chat, "max_tokens": 2})
    assert len(inference.sampler.asked) == 1


async def test_nothing_is_healthy_before_there_is_a_policy(serve_inference) -> None:
    async with serve_inference(policy_step=None) as inference:
        answers = [
            await inference.client.get("/health"),
            await inference.client.post("/v1/completions", json={"prompt": "hi", "max_tokens": 1}),
            await inference.client.post("/generate", json={"text": "sort"}),
        ]
        assert [answer.status_code for answer in answers] == [503] * 3
        assert "waits for its backend" in answers[2].text
        inference.policy.swap(Policy(0, inference.sampler))
        assert (await inference.client.get("/health")).status_code == 200


async def test_a_stopping_trainer_refuses_new_samples(inference) -> None:
    inference.generator.closed_because = "the trainer is stopping"
    response = await inference.client.post("/generate", json={"text": "sort"})
    assert response.status_code == 503
    assert response.json()["error"]["message"] == "the trainer is stopping"


async def test_a_prompt_that_fills_the_context_is_refused_with_both_numbers(inference) -> None:
    inference.generator.context_length = 16
    response = await inference.client.post("/generate", json={"input_ids": [5] * 17})
    assert response.status_code == 400
    message = response.json()["error"]["message"]
    assert "17 tokens" in message
    assert "16 tokens" in message
    assert inference.sampler.asked == []


async def test_too_many_too_long_prompts_in_a_row_end_the_run(serve_inference) -> None:
    async with serve_inference(max_context_overflows=3) as inference:
        inference.generator.context_length = 16

        async def ask(length: int) -> int:
            response = await inference.client.post("/generate", json={"input_ids": [5] * length})
            return response.status_code

        assert [await ask(16), await ask(17)] == [400, 400]
        assert await ask(4) == 200  # it does not bring back lost groups
        inference.generator.batch_taken()
        assert [await ask(20), await ask(20)] == [400, 400]
        assert inference.failures == []
        assert await ask(21) == 400
        (failure,) = inference.failures
        assert failure.error_class == "environment"
        for part in ("3 prompts", "21 tokens", "16 tokens", "trainer.max_context_overflows", "shorten"):
            assert part in str(failure)
        assert inference.generator.totals.context_overflows == 5
        response = await inference.client.post("/v1/completions", json={"prompt": [5] * 16})
        assert response.json()["error"]["code"] == "context_length_exceeded"
        assert len(inference.failures) == 1


async def test_evaluations_are_counted_separately_and_are_not_in_the_ledger(inference) -> None:
    await inference.client.post("/generate", json={"text": "sort", "sampling_params": {"n": 2}})
    for path, body in (
        ("/generate", {"text": "sort", "sampling_params": {"n": 3, "rl_purpose": "evaluation"}}),
        ("/v1/completions", {"prompt": "sort", "rl_purpose": "evaluation"}),
        ("/v1/chat/completions", {**CHAT, "rl_purpose": "evaluation"}),
    ):
        assert (await inference.client.post(path, json=body)).status_code == 200
    length = len(inference.sampler.outputs[0])
    books = inference.generator.totals.to_wire()
    assert books["sampled"] == {"requests": 1, "rollouts": 2, "tokens": 2 * length}
    assert books["evaluation"] == {"requests": 3, "rollouts": 5, "tokens": 5 * length}
    assert books["cancelled"] == {"requests": 0, "rollouts": 0, "tokens": 0}
    assert inference.generator.metrics()["tokens/sampled"] == 2 * length
    assert len(inference.ledger) == 2


async def test_an_evaluation_samples_the_weights_that_it_began_with(inference) -> None:
    """It began at step 7; steps 8 and 9 are trained meanwhile, and rollouts go on with them."""
    newer = type(inference.sampler)(inference.sampler.outputs)
    begun = await inference.client.post("/rl/evaluation", json={"due_step": 7})
    assert begun.json() == {"step": 7}
    for step in (8, 9):
        inference.policy.swap(Policy(step, newer))
    evaluated = {"rl_purpose": "evaluation", "rl_evaluation": 7}
    for path, body in (
        ("/generate", {"text": "sort", "sampling_params": evaluated}),
        ("/inference/v1/generate", {"token_ids": [5], "sampling_params": evaluated}),
        ("/v1/completions", {"prompt": "sort", **evaluated}),
        ("/v1/chat/completions", {**CHAT, **evaluated}),
    ):
        assert (await inference.client.post(path, json=body)).status_code == 200
    assert (len(inference.sampler.asked), len(newer.asked)) == (4, 0)
    rollout = await inference.client.post("/generate", json={"text": "sort"})
    assert rollout.json()["meta_info"]["policy_step"] == 9

    assert (await inference.client.delete("/rl/evaluation/7")).status_code == 200
    over = await inference.client.post("/v1/completions", json={"prompt": "sort", **evaluated})
    assert (over.status_code, over.json()["error"]["message"]) == (503, "the evaluation of step 7 is over")


async def test_max_tokens_are_reduced_to_the_remaining_context(inference) -> None:
    inference.generator.context_length = 16
    await inference.client.post("/generate", json={"input_ids": [5] * 10, "sampling_params": {"max_new_tokens": 99}})
    assert inference.sampler.asked[0][2].max_tokens == 6


CHAT = {"messages": [{"role": "user", "content": "x"}]}
REFUSED = [
    ("/generate", {}, "input_ids"),
    ("/generate", {"text": "x", "input_ids": [5]}, "once"),
    ("/generate", {"input_ids": []}, "empty"),
    ("/generate", {"text": "x", "sampling_params": {"n": 0}}, "sampling_params.n"),
    ("/generate", {"text": "x", "sampling_params": {"max_new_tokens": 0}}, "sampling_params.max_new_tokens"),
    ("/generate", {"text": "x", "sampling_params": {"min_p": 0.1}}, "min_p"),
    ("/generate", {"text": "x", "sampling_params": {"regex": "a+"}}, "regex"),
    ("/generate", {"text": "x", "sampling_params": {"stop": "a", "stop_token_ids": [1]}}, "stop_token_ids"),
    ("/generate", {"text": "x", "sampling_params": {"stop": ["a", 1]}}, "stop"),
    ("/generate", {"text": "x", "sampling_params": {"stop": [1.5]}}, "sampling_params.stop"),
    ("/generate", {"text": "x", "top_logprobs_num": 5}, "top_logprobs_num"),
    ("/generate", {"text": "x", "logprob_start_len": 0}, "logprob_start_len"),
    ("/generate", {"input_ids": [[1, 2]]}, "input_ids.0"),
    ("/v1/completions", {"prompt": "x", "temperature": -1}, "temperature"),
    ("/v1/completions", {"prompt": "x", "temperature": "hot"}, "temperature"),
    ("/generate", {"text": "x", "stream": True}, "stream"),
    ("/v1/completions", {"prompt": "x", "echo": True}, "echo"),
    ("/v1/completions", {"prompt": "x", "best_of": 4}, "best_of"),
    ("/v1/completions", {"prompt": "x", "logit_bias": {"5": 1}}, "logit_bias"),
    ("/v1/completions", {"prompt": "x", "frequency_penalty": 0.5}, "frequency_penalty"),
    ("/v1/completions", {"prompt": "x", "logprobs": 5}, "logprobs 5"),
    ("/v1/completions", {"prompt": "x", "max_tokens": -1}, "max_tokens"),
    ("/v1/completions", {"prompt": ["x", "y"]}, "prompt holds 2 prompts"),
    ("/generate", {"text": "x", "temprature": 1}, "temprature"),
    ("/v1/chat/completions", {**CHAT, "temprature": 1, "n": 0}, "n"),
    ("/v1/chat/completions", {"messages": []}, "messages"),
    ("/v1/chat/completions", {**CHAT, "top_logprobs": 3, "logprobs": True}, "top_logprobs"),
    ("/v1/chat/completions", {**CHAT, "tool_choice": "required"}, "tool_choice"),
    ("/v1/chat/completions", {"messages": [{"content": "x"}]}, "messages.0.role"),
    (
        "/v1/chat/completions",
        {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]},
        "messages.0.content.0",
    ),
    ("/v1/chat/completions", {**CHAT, "tools": [{"type": "function", "function": {}}]}, "tools.0"),
    ("/v1/chat/completions", {**CHAT, "tool_choice": {"type": "function", "function": {"name": "f"}}}, "tool_choice"),
]


@pytest.mark.parametrize(("path", "body", "field"), REFUSED, ids=[field for _, _, field in REFUSED])
async def test_a_bad_request_names_its_field(inference, path, body, field) -> None:
    response = await inference.client.post(path, json=body)
    assert response.status_code == 400
    assert field in response.json()["error"]["message"]
    assert inference.sampler.asked == []


async def test_refusals_are_logged_once_by_kind(inference, caplog) -> None:
    for max_tokens in (-1, -2, 0):
        await inference.client.post("/generate", json={"text": "x", "sampling_params": {"max_new_tokens": max_tokens}})
    await inference.client.post("/v1/completions", json={"prompt": "x", "echo": True})
    refusals = [record.getMessage() for record in caplog.records if record.name.endswith("chat.request_handling")]
    assert len(refusals) == 2
    assert refusals[0].startswith("refused a request to /generate: sampling_params.max_new_tokens")


async def test_tools_that_must_not_be_called_are_hidden(inference) -> None:
    tools = [{"type": "function", "function": {"name": "f"}}]
    response = await inference.client.post("/v1/chat/completions", json={**CHAT, "tools": tools, "tool_choice": "none"})
    assert response.status_code == 200


async def test_fields_without_effect_are_not_refused(inference) -> None:
    nothing = {"stream": False, "logit_bias": {}, "frequency_penalty": 0.0, "stop": None, "seed": None, "user": "me"}
    more = {"response_format": {"type": "text"}, "tool_choice": "auto", "top_logprobs": 0, "tools": None}
    for path, body in (
        ("/v1/completions", {"prompt": ["sort"], "max_tokens": None, "best_of": 1, **nothing}),
        ("/v1/chat/completions", {**CHAT, **nothing, **more}),
        ("/generate", {"text": "sort", "return_logprob": True, "logprob_start_len": -1, "stream": False}),
    ):
        response = await inference.client.post(path, json=body)
        assert response.status_code == 200, response.text
    assert [settings.max_tokens for _, _, settings in inference.sampler.asked] == [16, 64, 128]


async def test_a_backends_refusal_is_the_clients_fault_and_not_the_runs(inference) -> None:
    inference.sampler.error = SampleRefusedError("token id 999999 is out of range")
    response = await inference.client.post("/generate", json={"input_ids": [999999]})
    assert response.status_code == 400
    assert "999999" in response.text
    assert inference.failures == []
    assert inference.generator.totals.refused == 1


async def test_a_lost_backend_is_reported_to_the_run(inference) -> None:
    inference.sampler.error = BackendError("sampling: no answer within 300 s")
    response = await inference.client.post("/generate", json={"text": "sort"})
    assert response.status_code == 503
    assert inference.failures == [inference.sampler.error]


async def test_a_client_that_leaves_stops_costing_tokens(inference) -> None:
    inference.sampler.hold = asyncio.Event()
    request = asyncio.create_task(inference.client.post("/generate", json={"text": "sort"}))
    while not inference.sampler.asked:  # bounded by the test's timeout
        await asyncio.sleep(0.01)
    request.cancel()
    await asyncio.wait_for(inference.sampler.cancelled.wait(), 5)
    assert inference.generator.totals.to_wire()["cancelled"] == {"requests": 1, "rollouts": 1, "tokens": 128}
    assert inference.generator.totals.to_wire()["sampled"]["requests"] == 0
    assert len(inference.ledger) == 0


@pytest.mark.parametrize("name", ["chat_template", "tokenize", "tokenizer_kwargs", "return_tensors", "truncation"])
async def test_a_client_cannot_supply_its_own_chat_template(inference, name) -> None:
    """It would run in the trainer's process, which has the key."""
    body = {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": {name: "{{ messages }}"}}
    response = await inference.client.post("/v1/chat/completions", json=body)
    assert response.status_code == 400
    assert response.json()["error"]["message"].startswith(f"chat_template_kwargs.{name} is not a variable")
    assert inference.sampler.asked == []


async def test_variables_of_the_chat_template_are_passed_on(inference) -> None:
    kwargs = {"enable_thinking": False, "documents": []}
    body = {"messages": [{"role": "user", "content": "x"}], "chat_template_kwargs": kwargs}
    assert (await inference.client.post("/v1/chat/completions", json=body)).status_code == 200


@pytest.mark.parametrize("path", ["/generate", "/inference/v1/generate", "/v1/completions", "/v1/chat/completions"])
async def test_an_endless_body_is_refused(inference, path) -> None:
    response = await inference.client.post(path, content=b" " * (MAX_BODY_BYTES + 1))
    assert response.status_code == 413
    assert response.json()["error"]["message"] == (
        f"the body has {MAX_BODY_BYTES + 1} bytes; the limit is {MAX_BODY_BYTES}: shorten the prompt"
    )


def test_there_are_only_routes_for_sampling() -> None:
    app = inference_app(InferenceServer(None, None, 1, "m"))
    sampling = {"/generate", "/inference/v1/generate", "/v1/completions", "/v1/chat/completions", "/v1/messages"}
    other = {"/health", "/v1/models", "/v1/messages/count_tokens"}
    assert {route.path for route in app.routes} == sampling | other | {"/rl/evaluation", "/rl/evaluation/{step:int}"}
