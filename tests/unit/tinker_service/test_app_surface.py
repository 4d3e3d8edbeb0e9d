"""The rest of the SDK's surface: custom losses, several targets, several adapters, scores of prompts, sessions."""

import httpx
import numpy as np
import pytest
import tinker
import torch
from tests.unit.tinker_service import sdk_clients
from tests.unit.tinker_service.sdk_clients import WAIT, new_model, train
from tinker import types

from rl_contract.bundled import bundled_model_folder

TOKENS = [5, 6, 7, 8, 9]
PROMPT = types.ModelInput.from_ints(TOKENS)


def datum(targets: object = TOKENS[1:], weights: object = (1.0, 0.5, 2.0, 0.0)) -> types.Datum:
    weights = list(weights) if isinstance(weights, tuple) else weights
    return sdk_clients.datum(TOKENS[:-1], target_tokens=targets, weights=weights)


def metric(http: httpx.Client, name: str) -> float:
    line = next(line for line in http.get("/metrics").text.splitlines() if line.startswith(name))
    return float(line.rpartition(" ")[2])


def test_a_custom_loss_moves_the_weights_like_the_built_in_one(client: tinker.ServiceClient) -> None:
    built_in, custom = new_model(client), new_model(client)
    weights = torch.tensor([1.0, 0.5, 2.0, 0.0])

    def weighted(_data: list[types.Datum], logprobs: list[torch.Tensor]) -> tuple[torch.Tensor, dict[str, float]]:
        loss = -(logprobs[0] * weights).sum()
        return loss, {"mine": 3.0}

    for _ in range(2):
        (expected,) = train(built_in, [datum()])
        future, optimizer = (
            custom.forward_backward_custom([datum()], weighted),
            custom.optim_step(types.AdamParams(learning_rate=1e-2)),
        )
        output = future.result(WAIT)
        optimizer.result(WAIT)
        np.testing.assert_array_equal(output.loss_fn_outputs[0]["logprobs"].to_numpy(), expected)
        assert output.metrics["mine"] == 3.0
        assert output.metrics["loss:sum"] == pytest.approx(float(-(expected * weights.numpy()).sum()), rel=1e-5)


@pytest.mark.parametrize("as_tensor", [np.array, torch.tensor], ids=["dense", "sparse"])
def test_several_weighted_targets_per_token(client: tinker.ServiceClient, as_tensor) -> None:
    """A distribution to imitate: two tokens per position; next to it, a sequence with one target each."""
    targets = [[6, 0], [7, 4], [8, 0], [9, 3]]
    weights = [[1.0, 0.0], [0.25, 0.75], [1.0, 0.0], [0.5, 0.5]]
    integers = {"dtype": np.int64} if as_tensor is np.array else {}
    floats = {"dtype": np.float32} if as_tensor is np.array else {}
    wide = datum(as_tensor(targets, **integers), as_tensor(weights, **floats))
    model = new_model(client)
    first_wide, first = train(model, [wide, datum()])
    assert first_wide.shape == (4, 2)
    np.testing.assert_allclose(first_wide[:, 0], first, atol=1e-6)
    sampler = client.create_sampling_client(base_model="bundled").result(WAIT)
    scored = types.TensorData.from_numpy(np.array(targets))
    reference = sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1), target_prompt_logprobs=scored)
    expected = reference.result(WAIT).target_prompt_logprobs.to_numpy().reshape(4, 2)
    np.testing.assert_allclose(first_wide, expected, atol=1e-5)
    for _ in range(20):
        last, _ = train(model, [wide, datum()])
    assert (last * weights).sum() > (first_wide * weights).sum() + 1


def test_adapters_do_not_affect_each_other(client: tinker.ServiceClient) -> None:
    """Two models trained in turns equal, bit for bit, each trained alone: the same requests, the same weights."""
    other = datum([9, 9, 9, 9])
    alone = [
        [train(model, [data]) for _ in range(3)]
        for model, data in ((new_model(client), datum()), (new_model(client), other))
    ]
    mine, yours = new_model(client), new_model(client)
    in_turns = [(train(mine, [datum()]), train(yours, [other])) for _ in range(3)]
    np.testing.assert_array_equal([rows[0] for rows in in_turns], alone[0])
    np.testing.assert_array_equal([rows[1] for rows in in_turns], alone[1])


def test_a_batch_split_by_the_sdk_trains_as_one(client: tinker.ServiceClient) -> None:
    """1,024 sequences go into one request: the rest into a second one, before the same optimizer step."""
    data = [datum([6, 7, 8, number % 512]) for number in range(1_030)]
    whole, halves = new_model(client), new_model(client)
    assert len(train(whole, data)) == 1_030
    halves.forward_backward(data[:1_024], "cross_entropy").result(WAIT)
    train(halves, data[1_024:])
    np.testing.assert_array_equal(train(whole, [datum()]), train(halves, [datum()]))


def test_too_short_a_lifetime_is_refused(client: tinker.ServiceClient) -> None:
    with pytest.raises(tinker.APIStatusError, match="ttl_seconds is 60; it must be at least 3600, or None"):
        new_model(client).save_state("brief", ttl_seconds=60).result(WAIT)


@pytest.mark.filterwarnings("ignore:DEPRECATED")
def test_the_next_request_trains_the_loaded_weights(client: tinker.ServiceClient) -> None:
    """Submitted back to back: the load runs before the request that follows it."""
    model = new_model(client)
    state = model.save_state("before").result(WAIT).path
    before = train(model, [datum()])
    train(model, [datum()])
    load = model.load_state_with_optimizer(state)
    after = model.forward_backward([datum()], "cross_entropy")
    load.result(WAIT)
    np.testing.assert_array_equal(after.result(WAIT).loss_fn_outputs[0]["logprobs"].to_numpy(), before[0])


def test_what_a_sample_reports_about_its_prompt_and_tokens(client: tinker.ServiceClient) -> None:
    sampler = client.create_sampling_client(base_model="bundled").result(WAIT)
    targets = types.TensorData.from_numpy(np.array([[6, 1], [7, -1], [8, 2], [-1, -1]]))
    response = sampler.sample(
        PROMPT,
        2,
        types.SamplingParams(max_tokens=3, seed=-1, stop=[]),
        include_prompt_logprobs=True,
        topk_prompt_logprobs=2,
        topk_sample_logprobs=2,
        target_prompt_logprobs=targets,
        prompt_alt_tokens_k=4,
    ).result(WAIT)
    logprobs = response.prompt_logprobs
    assert logprobs is not None
    assert logprobs[0] is None
    assert response.topk_prompt_logprobs is not None
    assert response.topk_prompt_logprobs[0] is None
    assert [len(best) for best in response.topk_prompt_logprobs[1:] if best] == [2] * 4
    named = response.target_prompt_logprobs.to_numpy().reshape(4, 2)
    np.testing.assert_allclose(named[:3, 0], logprobs[1:4], atol=1e-6)
    assert (named[1, 1], *named[3]) == (0.0, 0.0, 0.0)
    assert response.prompt_alt_tokens is not None
    assert response.prompt_alt_tokens.tokens.shape == [4, 4]
    for sequence in response.sequences:
        assert sequence.topk_logprobs is not None
        for token, logprob, best in zip(sequence.tokens, sequence.logprobs, sequence.topk_logprobs, strict=True):
            assert best is not None
            assert len(best) == 2
            assert best[0][1] >= logprob - 1e-6
            assert token not in [token for token, _ in best] or dict(best)[token] == pytest.approx(logprob)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"topk_prompt_logprobs": 9_999}, "topk_prompt_logprobs is 9999; it must be 0"),
        ({"topk_sample_logprobs": -1}, "topk_sample_logprobs is -1"),
        (
            {"target_prompt_logprobs": np.array([[1]])},
            r"must be a dense tensor \[4, K\]: one row per token but the first",
        ),
        (
            {"target_prompt_logprobs": np.array([[1], [2], [3], [512]])},
            "the model knows 0 to 511, and -1 asks for noth",
        ),
    ],
)
def test_prompt_logprob_requests_are_checked(client: tinker.ServiceClient, asked, message: str) -> None:
    sampler = client.create_sampling_client(base_model="bundled").result(WAIT)
    asked = {
        name: types.TensorData.from_numpy(value) if isinstance(value, np.ndarray) else value
        for name, value in asked.items()
    }
    with pytest.raises(tinker.APIStatusError, match=message):
        sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1), **asked).result(WAIT)


def test_sampling_after_temperature_reports_what_it_sampled_from(client: tinker.ServiceClient) -> None:
    """Seed 0 is a seed; temperature scales the returned logprobs."""
    sampler = client.create_sampling_client(base_model="bundled").result(WAIT)

    def sampled(**params: float) -> types.SampledSequence:
        return (
            sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=4, seed=0, stop=[], **params))
            .result(WAIT)
            .sequences[0]
        )

    first, again = sampled(), sampled()
    assert (first.tokens, first.logprobs) == (again.tokens, again.logprobs)
    hot = sampled(temperature=100.0)
    np.testing.assert_allclose(hot.logprobs, -np.log(512), atol=0.3)  # nearly uniform
    assert sampled(temperature=0.0).logprobs == [0.0] * 4
    assert sampled(top_k=1).logprobs == [0.0] * 4


def test_stops_may_be_strings_or_tokens(client: tinker.ServiceClient) -> None:
    """The base model is named by its folder: the SDK looks for the tokenizer by the name it was given."""
    sampler = client.create_sampling_client(base_model=str(bundled_model_folder())).result(WAIT)
    tokenizer = sampler.get_tokenizer()

    def greedy(stop: object) -> types.SampledSequence:
        params = types.SamplingParams(max_tokens=8, temperature=0, stop=stop)
        return sampler.sample(PROMPT, 1, params).result(WAIT).sequences[0]

    free = greedy([])
    assert (len(free.tokens), free.stop_reason) == (8, "length")
    at_token = greedy([free.tokens[2]])
    at_string = greedy(tokenizer.decode([free.tokens[2]]))
    assert (at_token.stop_reason, at_string.stop_reason) == ("stop", "stop")
    assert free.tokens.index(free.tokens[2]) + 1 == len(at_token.tokens)
    assert len(at_string.tokens) <= len(at_token.tokens)


def test_an_inflight_sampler_is_refused(client: tinker.ServiceClient) -> None:
    with pytest.raises(tinker.APIStatusError, match="kind 'inflight' is not supported by this service; use 'snapshot'"):
        new_model(client).save_weights_and_get_sampling_client(kind="inflight").result(WAIT)


def test_a_late_repeat_of_a_request_is_refused(client: tinker.ServiceClient, http: httpx.Client) -> None:
    model = new_model(client)
    first, late = (
        http.post("/api/v1/optim_step", json={"model_id": model.model_id, "seq_id": seq_id, "adam_params": {}})
        for seq_id in (7, 6)
    )
    assert (first.status_code, late.status_code) == (200, 422)
    assert "comes after request 7: it has run already and its result has expired" in late.json()["detail"]


def long_sample(client: tinker.ServiceClient, http: httpx.Client) -> dict[str, str]:
    """A request for 64 samples of 500 tokens, as the SDK names it when it asks for the result."""
    sampler = client.create_sampling_client(base_model="bundled").result(WAIT)
    body = {
        "sampling_session_id": sampler._sampling_session_id,
        "seq_id": 10_000,
        "prompt": {"chunks": [{"type": "encoded_text", "tokens": TOKENS}]},
        "sampling_params": {"max_tokens": 500, "stop": []},
        "num_samples": 64,
    }
    return {"request_id": http.post("/api/v1/asample", json=body).json()["request_id"]}


SAMPLED = 'tinker_service_tokens_total{kind="sampled"}'


def test_short_samples_and_training_go_on_beside_a_long_sample(
    client: tinker.ServiceClient, http: httpx.Client
) -> None:
    before, long = metric(http, SAMPLED), long_sample(client, http)
    model = new_model(client)
    train(model, [datum()])
    sampler = model.save_weights_and_get_sampling_client().result(WAIT)
    short = sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=2, stop=[])).result(WAIT)
    assert len(short.sequences[0].tokens) == 2
    assert metric(http, SAMPLED) - before == 2  # the long one is not done
    assert metric(http, "tinker_service_running_sequences") == 64
    assert metric(http, "tinker_service_cache_bytes") > 0
    http.post("/api/v1/cancel_future", json=long)
    assert http.post("/api/v1/retrieve_future", json=long).json()["error"] == "the request was cancelled"


def test_samples_of_a_finished_session_are_dropped(tinker_service, http: httpx.Client) -> None:
    client = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    before, long = metric(http, SAMPLED), long_sample(client, http)
    client.close("success").result(WAIT)
    assert http.post("/api/v1/retrieve_future", json=long).json() == {
        "error": "the request was dropped: its session was finished, or had been silent for 30 s",
        "category": "server",  # so a trainer that has opened another session samples again
    }
    assert metric(http, SAMPLED) == before
    assert metric(http, "tinker_service_running_sequences") == 0


def test_sessions_are_listed_with_their_contents(tinker_service, rest: tinker.RestClient) -> None:
    client = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    model = new_model(client)
    sampler = model.save_weights_and_get_sampling_client().result(WAIT)
    session_id = client.holder.get_session_id()
    assert session_id in rest.list_sessions(limit=1_000).result(WAIT).sessions
    held = rest.get_session(session_id).result(WAIT)
    assert held.training_run_ids == [model.model_id]
    assert held.sampler_ids == [sampler._sampling_session_id]
    client.close("success").result(WAIT)
    with pytest.raises(tinker.NotFoundError, match="there is no session"):
        rest.get_session(session_id).result(WAIT)


def test_metrics_count_requests_tokens_and_batches(client: tinker.ServiceClient, http: httpx.Client) -> None:
    model = new_model(client)
    sampler = model.save_weights_and_get_sampling_client().result(WAIT)
    names = (
        'tinker_service_requests_total{operation="optim_step",status="200"}',
        'tinker_service_tokens_total{kind="trained"}',
        'tinker_service_tokens_total{kind="prompt"}',
        "tinker_service_batch_sequences_sum",
    )
    train(model, [datum()])
    sampler.sample(PROMPT, 1, types.SamplingParams(max_tokens=1)).result(WAIT)
    before = [metric(http, name) for name in names]
    train(model, [datum(), datum()])
    sampler.sample(PROMPT, 3, types.SamplingParams(max_tokens=2)).result(WAIT)
    assert np.subtract([metric(http, name) for name in names], before).tolist() == [1, 8, 5, 3]
    assert metric(http, "tinker_service_models") >= 1
    assert metric(http, "tinker_service_queue_jobs") == 0
    assert metric(http, "tinker_service_checkpoint_bytes") > 0
    assert httpx.get(f"{http.base_url}/healthz").json() == {"status": "ok"}  # no key


def test_a_request_that_is_too_large_is_refused(client: tinker.ServiceClient) -> None:
    """One sequence that the SDK cannot split."""
    length = 3_000_000
    tokens = types.ModelInput.from_ints([5] * length)
    data = types.Datum(tokens, {"target_tokens": np.full(length, 5)})
    with pytest.raises(tinker.APIStatusError, match="larger than 32 MiB: send fewer or shorter sequences at once"):
        new_model(client).forward_backward([data], "cross_entropy").result(WAIT)
