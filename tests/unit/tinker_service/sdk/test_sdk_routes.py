"""The unmodified tinker SDK against the running service: train, sample, save, resume, and get useful errors."""

import dataclasses

import httpx
import numpy as np
import pytest
import tinker
from tests.unit.tinker_service.sdk_clients import WAIT, datum, new_model
from tests.unit.tinker_service.sdk_clients import train as step
from tinker import types

Prompts = list[tuple[int, ...]]


def sampled_data(sampler: tinker.SamplingClient, prompts: Prompts, seed: int = 0) -> list[types.Datum]:
    """Datums for importance sampling, with alternating advantages."""
    params = types.SamplingParams(max_tokens=6, seed=seed)
    futures = [sampler.sample(types.ModelInput.from_ints(list(prompt)), 4, params) for prompt in prompts]
    data = []
    for prompt, future in zip(prompts, futures, strict=True):
        for index, sequence in enumerate(future.result(WAIT).sequences):
            full = [*prompt, *sequence.tokens]
            padding = [0.0] * (len(prompt) - 1)
            advantage = 1.0 if index % 2 else -1.0
            data.append(
                datum(
                    full[:-1],
                    target_tokens=full[1:],
                    logprobs=[*padding, *sequence.logprobs],
                    advantages=[*padding, *[advantage] * len(sequence.tokens)],
                )
            )
    return data


def train(model: tinker.TrainingClient, data: list[types.Datum], loss: str = "importance_sampling") -> np.ndarray:
    """One small step; the logprobs of all data."""
    return np.concatenate(step(model, data, loss, rate=1e-3))


def recorded_logprobs(data: list[types.Datum]) -> np.ndarray:
    return np.concatenate([item.loss_fn_inputs["logprobs"].to_numpy() for item in data])


def test_trained_and_sampled_logprobs_agree(client: tinker.ServiceClient, prompts: Prompts) -> None:
    model = new_model(client)
    sampler = model.save_weights_and_get_sampling_client().result(WAIT)
    for seed in range(4):
        data = sampled_data(sampler, prompts[4 * seed : 4 * seed + 4], seed=seed)
        sampled = recorded_logprobs(data)
        trained = train(model, data)
        assert np.abs(sampled - trained)[sampled != 0].max() <= 1e-6
        sampler = model.save_weights_and_get_sampling_client().result(WAIT)


def test_a_sampler_does_not_change_with_training(client: tinker.ServiceClient, prompts: Prompts) -> None:
    model = new_model(client)
    sampler = model.save_weights_and_get_sampling_client().result(WAIT)
    before = sampled_data(sampler, prompts[:2])
    train(model, before)
    np.testing.assert_array_equal(recorded_logprobs(sampled_data(sampler, prompts[:2])), recorded_logprobs(before))


def test_resumed_training_equals_uninterrupted_training(client: tinker.ServiceClient, prompts: Prompts) -> None:
    model = new_model(client)
    batches = [sampled_data(model.save_weights_and_get_sampling_client().result(WAIT), prompts[:2])] * 6
    for batch in batches[:3]:
        train(model, batch)
    path = model.save_state("half").result(WAIT).path
    rest = [train(model, batch) for batch in batches[3:]]

    resumed = client.create_training_client_from_state_with_optimizer(path).result(WAIT)
    np.testing.assert_array_equal([train(resumed, batch) for batch in batches[3:]], rest)

    cold = client.create_training_client_from_state(path).result(WAIT)
    without_momentum = [train(cold, batch) for batch in batches[3:]]
    np.testing.assert_array_equal(without_momentum[0], rest[0])
    assert np.abs(without_momentum[1] - rest[1]).max() > 0


def test_forward_leaves_no_gradients(client: tinker.ServiceClient, prompts: Prompts) -> None:
    data = sampled_data(client.create_sampling_client(base_model="bundled").result(WAIT), prompts[:1])
    model = new_model(client)
    output = model.forward(data, "importance_sampling").result(WAIT)
    assert output.metrics["loss:sum"] == pytest.approx(0, abs=1e-3)
    with pytest.raises(tinker.RequestFailedError, match="call forward_backward before it"):
        model.optim_step(types.AdamParams(learning_rate=1e-3)).result(WAIT)


def test_a_gradient_that_is_not_finite_is_skipped_and_told(client: tinker.ServiceClient, prompts: Prompts) -> None:
    """An infinite ratio: ppo clips its loss, and not its gradient (0 times infinity). Weights and moments survive."""
    data = sampled_data(client.create_sampling_client(base_model="bundled").result(WAIT), prompts[:1])
    exploded = datum([5, 6, 7], target_tokens=[6, 7, 8], logprobs=[-1e6] * 3, advantages=[1.0] * 3)
    model, undisturbed = new_model(client), new_model(client)
    for each in (model, undisturbed):
        train(each, data)
    output = model.forward_backward([exploded], "ppo").result(WAIT)
    assert np.isfinite(output.metrics["loss:sum"])
    assert np.isnan(model.optim_step(types.AdamParams(learning_rate=1e-3)).result(WAIT).metrics["grad_norm"])
    for _ in range(2):
        np.testing.assert_array_equal(train(model, data), train(undisturbed, data))


def with_provenance(data: list[types.Datum], prompt: int, sequence_ids: list[str]) -> list[types.Datum]:
    """As tinker-cookbook's loops do: inputs are the prompt and all but the last sample, targets the same from 1 on."""
    rest = [len(item.loss_fn_inputs["target_tokens"].to_numpy()) - prompt + 1 for item in data]
    return [
        item.with_provenance(
            [types.PromptProvenanceSpan(sequence_id=name, length=prompt), of_samples(name, n - 1)],
            [types.PromptProvenanceSpan(sequence_id=name, offset=1, length=prompt - 1), of_samples(name, n)],
        )
        for item, name, n in zip(data, sequence_ids, rest, strict=True)
    ]


def of_samples(name: str, length: int, offset: int = 0) -> types.SampledProvenanceSpan:
    return types.SampledProvenanceSpan(sequence_id=name, length=length, offset=offset)


def recorded_data(
    client: tinker.ServiceClient, prompts: Prompts, *, recorded: bool = True
) -> tuple[list[types.Datum], list[str]]:
    """Datums without provenance of one prompt's samples, and their sequence ids."""
    sampler = client.create_sampling_client(base_model="bundled", record_stability_info=recorded).result(WAIT)
    ids: list[str] = []
    asked = sampler.sample

    def sample(*arguments: object) -> object:
        future = asked(*arguments)
        ids.extend(sequence.sequence_id for sequence in future.result(WAIT).sequences)
        return future

    sampler.sample = sample
    return sampled_data(sampler, prompts[:1]), ids


def test_stable_reinforce_trains_on_what_the_service_recorded(client: tinker.ServiceClient, prompts: Prompts) -> None:
    """The client's own logprobs are not read: they may be anything."""
    data, ids = recorded_data(client, prompts)
    data = with_provenance(data, len(prompts[0]), ids)
    wrong = [
        dataclasses.replace(item, loss_fn_inputs={**item.loss_fn_inputs, "logprobs": item.loss_fn_inputs["advantages"]})
        for item in data
    ]
    advantages = np.concatenate([item.loss_fn_inputs["advantages"].to_numpy() for item in data])
    model, misled = new_model(client), new_model(client)
    trained = [train(model, data, "stable_reinforce") for _ in range(5)]
    np.testing.assert_array_equal([train(misled, wrong, "stable_reinforce") for _ in range(5)], trained)
    assert ((trained[-1] - trained[0]) * advantages).sum() > 0


WRONG_PROVENANCE = {
    "none": (lambda item, _prompt, _name: item, r"data\[0\] does not say which recorded sequences"),
    "of a sequence that is not recorded": (
        lambda item, prompt, _name: with_provenance([item], prompt, ["gone"])[0],
        "sequence 'gone' is not recorded in this session",
    ),
    "of other tokens": (
        lambda item, prompt, name: respun(item, prompt, name, inputs=prompt + 1),
        r"data\[0\].model_input holds other tokens than its provenance says: positions 0 to \d+ of the prompt of",
    ),
    "of samples that are shifted": (
        lambda item, prompt, name: respun(item, prompt, name, targets=prompt),
        r"\['target_tokens'\] holds other tokens than its provenance says: positions 0 to \d of the sampled tokens",
    ),
    "of prompts only": (
        lambda item, prompt, name: respun(item, prompt, name, targets=item.model_input.length),
        r"\['advantages'\] is not 0 where the target was not sampled",
    ),
}


def respun(item: types.Datum, prompt: int, name: str, **starts: int) -> types.Datum:
    """With provenance that says that the samples start somewhere else, in the inputs or in the targets."""
    length, starts = item.model_input.length, {"inputs": prompt, "targets": prompt - 1} | starts
    inputs, targets = (
        [types.PromptProvenanceSpan(sequence_id=name, length=start), of_samples(name, length - start)]
        for start in (starts["inputs"], starts["targets"])
    )
    return item.with_provenance(inputs, targets)


@pytest.mark.parametrize(("change", "sentence"), WRONG_PROVENANCE.values(), ids=WRONG_PROVENANCE)
def test_wrong_provenance_is_refused(client: tinker.ServiceClient, prompts: Prompts, change, sentence: str) -> None:
    data, ids = recorded_data(client, prompts)
    wrong = change(data[0], len(prompts[0]), ids[0])
    with pytest.raises(tinker.TinkerError, match=sentence):
        new_model(client).forward_backward([wrong], "stable_reinforce").result(WAIT)


def test_samples_are_recorded_only_on_request(client: tinker.ServiceClient, prompts: Prompts) -> None:
    data, ids = recorded_data(client, prompts, recorded=False)
    data = with_provenance(data, len(prompts[0]), ids)
    with pytest.raises(tinker.TinkerError, match="is not recorded in this session"):
        new_model(client).forward_backward(data, "stable_reinforce").result(WAIT)


def test_tokenizers_load_without_a_network(client: tinker.ServiceClient) -> None:
    model = new_model(client)
    assert model.get_tokenizer().encode("12") == [19, 20]
    assert model.save_weights_and_get_sampling_client().result(WAIT).get_tokenizer().encode("12") == [19, 20]
    assert model.get_info().model_name == "bundled"


def test_compute_logprobs(client: tinker.ServiceClient, prompts: Prompts) -> None:
    sampler = client.create_sampling_client(base_model="bundled").result(WAIT)
    prompt = types.ModelInput.from_ints(list(prompts[0]))
    logprobs = sampler.compute_logprobs(prompt).result(WAIT)
    assert logprobs[0] is None
    assert len(logprobs) == len(prompts[0])
    assert sampler.compute_logprobs(prompt, 2).result(WAIT)[-2:] == pytest.approx(logprobs[-2:], abs=1e-5)


def test_checkpoints_are_listed_with_their_metadata_and_can_be_deleted(
    client: tinker.ServiceClient, rest: tinker.RestClient
) -> None:
    model = new_model(client, user_metadata={"uid": "u-1"})
    metadata = {"rl-operator.dev/run-uid": "u-1", "step": "25"}
    state = model.save_state("step-25", ttl_seconds=7_200, user_metadata=metadata).result(WAIT).path
    weights = model.save_weights_for_sampler("final").result(WAIT).path
    assert model.model_id in [run.training_run_id for run in rest.list_training_runs().result(WAIT).training_runs]
    run = rest.get_training_run(model.model_id).result(WAIT)
    assert (run.user_metadata, run.lora_rank) == ({"uid": "u-1"}, 4)
    assert run.last_checkpoint is not None
    assert run.last_checkpoint.tinker_path == state
    listed = {item.tinker_path: item for item in rest.list_checkpoints(model.model_id).result(WAIT).checkpoints}
    assert set(listed) == {state, weights}
    assert (listed[state].checkpoint_type, listed[state].user_metadata) == ("training", metadata)
    assert listed[state].expires_at is not None
    assert (listed[weights].checkpoint_type, listed[weights].expires_at) == ("sampler", None)
    assert state in [item.tinker_path for item in rest.list_user_checkpoints().result(WAIT).checkpoints]
    assert rest.get_weights_info_by_tinker_path(state).result(WAIT).lora_rank == 4

    rest.set_checkpoint_ttl_from_tinker_path(state, None).result(WAIT)
    rest.delete_checkpoint_from_tinker_path(weights).result(WAIT)
    (left,) = rest.list_checkpoints(model.model_id).result(WAIT).checkpoints
    assert (left.tinker_path, left.expires_at) == (state, None)


def test_a_checkpoint_is_overwritten_only_on_request(client: tinker.ServiceClient, rest: tinker.RestClient) -> None:
    model = new_model(client)
    path = model.save_state("s", user_metadata={"step": "1"}).result(WAIT).path
    assert model.save_state("s", overwrite=True, user_metadata={"step": "2"}).result(WAIT).path == path
    (listed,) = rest.list_checkpoints(model.model_id).result(WAIT).checkpoints
    assert listed.user_metadata == {"step": "2"}
    with pytest.raises(tinker.RequestFailedError, match="choose another name or pass overwrite=True"):
        model.save_state("s").result(WAIT)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda c: c.create_lora_training_client("Qwen/Qwen3-8B"), "this service has 'bundled'"),
        (lambda c: c.create_lora_training_client("bundled", rank=0), "rank is 0; it must be 1 to"),
        (lambda c: c.create_sampling_client(base_model="Qwen/Qwen3-8B"), "this service has 'bundled'"),
        (lambda c: c.create_sampling_client(model_path="tinker://nobody/weights/w"), "there is no checkpoint"),
        (lambda c: c.create_sampling_client(model_path="tinker://../weights/w"), "is not a checkpoint path"),
        (lambda c: c.create_training_client_from_state("tinker://nobody/weights/w"), "there is no checkpoint"),
        (lambda c: c.create_training_client_from_state("tinker://nobody/sampler_weights/w"), "cannot be trained on"),
    ],
)
def test_unknown_models_and_paths_are_named(client: tinker.ServiceClient, call, message: str) -> None:
    with pytest.raises(tinker.APIStatusError, match=message):
        call(client).result(WAIT)


def test_an_unknown_training_run_is_named(rest: tinker.RestClient) -> None:
    with pytest.raises(tinker.NotFoundError, match="there is no training run 'nobody'"):
        rest.get_training_run("nobody").result(WAIT)


@pytest.mark.parametrize(
    ("tokens", "inputs", "loss", "message"),
    [
        (
            [1, 2],
            {"target_tokens": [2, 3]},
            "stabl_reinforce",
            "is not supported here; did you mean 'stable_reinforce'",
        ),
        ([1, 2], {"target_tokens": [2, 3]}, "dro", "dro needs loss_fn_config="),
        ([1, 2], {"target_tokens": [2, 3]}, "ppo", "lacks 'logprobs'; ppo needs target_tokens, logprobs, advantages"),
        ([1, 2], {"target_tokens": [2]}, "cross_entropy", "has 1 values and model_input 2 tokens"),
        ([1, 512], {"target_tokens": [2, 3]}, "cross_entropy", "the model knows 0 to 511"),
        ([1, 2], {"target_tokens": [2, -3]}, "cross_entropy", "the model knows 0 to 511"),
        ([1] * 513, {"target_tokens": [2] * 513}, "cross_entropy", "513 tokens; at most 512 fit"),
        ([1], {"target_tokens": [2], "weights": [float("nan")]}, "cross_entropy", "holds NaN"),
        ([1], {"target_tokens": [2], "advantages": [1.0]}, "cross_entropy", "'advantages', which cross_entropy does"),
    ],
)
def test_training_requests_are_checked(client, tokens, inputs, loss: str, message: str) -> None:
    with pytest.raises(tinker.APIStatusError, match=message):
        new_model(client).forward_backward([datum(tokens, **inputs)], loss).result(WAIT)


def test_loss_settings_are_checked(client: tinker.ServiceClient) -> None:
    data = [datum([1], target_tokens=[2], logprobs=[0.0], advantages=[1.0])]
    with pytest.raises(tinker.APIStatusError, match=r"clip_high is not a setting of ppo \(known: clip_low_threshold"):
        new_model(client).forward_backward(data, "ppo", {"clip_high": 1.2}).result(WAIT)


@pytest.mark.parametrize(
    ("length", "params", "message"),
    [
        (512, {}, "512 tokens; at most 511 fit"),
        (3, {"temperature": -1.0}, "temperature is -1.0"),
        (3, {"top_p": 0.0}, "top_p is 0.0"),
        (3, {"top_k": 0}, "top_k is 0"),
        (3, {"max_tokens": 0}, "max_tokens is 0"),
    ],
)
def test_sampling_requests_are_checked(client: tinker.ServiceClient, length: int, params, message: str) -> None:
    sampler = client.create_sampling_client(base_model="bundled").result(WAIT)
    with pytest.raises(tinker.APIStatusError, match=message):
        sampler.sample(types.ModelInput.from_ints([5] * length), 1, types.SamplingParams(**params)).result(WAIT)


def test_a_wrong_key_is_refused_at_once(tinker_service) -> None:
    with pytest.raises(tinker.AuthenticationError, match="set TINKER_API_KEY to the key this Tinker service"):
        tinker.RestClient(base_url=tinker_service.url, api_key="tml-wrong").get_server_capabilities().result(WAIT)


def test_every_path_but_healthz_needs_the_key(tinker_service) -> None:
    with httpx.Client(base_url=tinker_service.url, timeout=60) as http:
        assert http.get("/api/v1/healthz").json() == {"status": "ok"}
        for path in ("/api/v1/get_server_capabilities", "/api/v1/training_runs", "/nowhere"):
            assert http.get(path).status_code == 401


def test_other_paths_and_bodies_are_refused_with_a_message(http: httpx.Client) -> None:
    answer = http.post("/api/v1/copy_weights", json={})
    assert (answer.status_code, answer.json()["detail"][:20]) == (404, "POST /api/v1/copy_we")
    answer = http.post("/api/v1/optim_step", json={"model_id": "m"})
    assert answer.status_code == 422
    assert "optim_params" in answer.json()["detail"]
    assert http.post("/api/v1/forward_backward", content=b"\xff").status_code == 422
    answer = http.post("/api/v1/retrieve_future", json={"request_id": "gone"})
    assert (answer.status_code, "was restarted" in answer.text) == (410, True)


def test_a_retried_request_is_not_run_twice(http: httpx.Client, client: tinker.ServiceClient) -> None:
    """The SDK repeats a request whose answer got lost, with the same seq_id."""
    model = new_model(client)
    train(model, [datum([1], target_tokens=[2])], "cross_entropy")
    repeated = {"model_id": model.model_id, "seq_id": 2, "adam_params": {}}
    request_id = http.post("/api/v1/optim_step", json=repeated).json()["request_id"]
    result = http.post("/api/v1/retrieve_future", json={"request_id": request_id}).json()
    assert result["metrics"]["optimizer_step"] == 1


def test_a_finished_session_ends_its_models(tinker_service, http: httpx.Client) -> None:
    client = tinker.ServiceClient(base_url=tinker_service.url, api_key=tinker_service.key)
    model = new_model(client)
    client.close("success").result(WAIT)
    answer = http.post("/api/v1/get_info", json={"model_id": model.model_id})
    assert answer.status_code == 404
    assert "create a training client from its last saved state" in answer.json()["detail"]
