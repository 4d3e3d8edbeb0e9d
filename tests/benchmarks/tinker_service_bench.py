"""Timings of the Tinker service with the bundled model, through HTTP and the unmodified SDK.

`python -m tests.benchmarks.tinker_service_bench`: prints a table; asserts nothing. CPU seconds are the service's: of
one repetition.
"""

import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import tinker
from tests.benchmarks.made_models import longer_bundled
from tests.benchmarks.meter import Stopwatch, Used, cpu_seconds, forget_peak, peak_mib, resident_mib
from tests.benchmarks.tinker_process import TinkerProcess, tinker_service
from tinker import types
from transformers import AutoTokenizer

from rl_contract.bundled import resolve_tokenizer
from tinker_atropos.environments.bundled import digits

Sampling = tinker.APIFuture[types.SampleResponse]

WAIT = 120
REPEATS = 20
ANSWER = types.SamplingParams(max_tokens=6, stop=[])
SHORT = types.SamplingParams(max_tokens=5, stop=[])
LONG = types.SamplingParams(max_tokens=1_500, stop=[])
POSITIONS = 2_048
SHORT_SAMPLES = 30
SHORT_SECONDS = 30.0
"""For the short samples beside long ones: as many as there is time for."""


@dataclass(frozen=True)
class Row:
    name: str
    value: str
    goal: str = ""
    cpu: float | None = None
    """Seconds of the service."""


def main() -> None:
    print(f"Tinker service, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    print(f"{'':<62} {'':>16} {'CPU':>9}   goal")
    with tinker_service() as service:
        show(Row("process start", f"{service.seconds:.1f} s", "<= 6 s", cpu_seconds(service.pid)))
        show(Row("idle RSS", f"{service.idle_mib:.0f} MiB"))
        for row in bundled_rows(service):
            show(row)
        show(Row("RSS afterwards", f"{resident_mib(service.pid):.0f} MiB"))
    with tempfile.TemporaryDirectory() as folder:
        model = longer_bundled(Path(folder), POSITIONS)
        with tinker_service("--model", str(model)) as service:
            for row in long_rows(service, str(model)):
                show(row)


def show(row: Row) -> None:
    cpu = "" if row.cpu is None else f"{row.cpu * 1000:.0f} ms"
    print(f"{row.name:<62} {row.value:>16} {cpu:>9}   {row.goal}".rstrip(), flush=True)


def bundled_rows(service: TinkerProcess) -> Iterator[Row]:
    def median(run: Callable[[], object], repeats: int = REPEATS) -> Used:
        return median_of(service.pid, run, repeats)

    client = service.client()
    model = client.create_lora_training_client("bundled", rank=16, seed=0).result(WAIT)
    sampler = model.save_weights_and_get_sampling_client().result(WAIT)
    tokenizer = AutoTokenizer.from_pretrained(resolve_tokenizer("bundled"))
    prompts = [encode(tokenizer, item) for item in digits.split().training[:32]]

    sampling = median(lambda: sample(sampler, prompts[:4], 8))
    yield Row("sampling, 4 prompts x 8 of 6 tokens, concurrently", in_ms(sampling), "<= 400 ms", sampling.cpu)
    batch = datums(prompts[:4], sample(sampler, prompts[:4], 8))
    gaps: list[float] = []
    training = median(lambda: gaps.append(train(model, batch, learning_rate=0.0)))
    yield Row("forward_backward + optim_step, 32 sequences of 22 tokens", in_ms(training), "<= 150 ms", training.cpu)
    yield Row("largest |sampled - trained| logprob", f"{max(gaps):.1e}", "<= 1e-5")
    one_by_one = median(lambda: [sample(sampler, [prompt], 1) for prompt in prompts], repeats=3)
    concurrent = median(lambda: sample(sampler, prompts, 1))
    for name, used in (("one at a time", one_by_one), ("concurrently", concurrent)):
        yield Row(f"32 sample requests of 6 tokens, {name}", f"{32 * 6 / used.seconds:.0f} tokens/s", "", used.cpu)
    yield Row("... ratio", f"{one_by_one.seconds / concurrent.seconds:.1f}", ">= 3")
    scoring = median(lambda: score(sampler, prompts), repeats=5)
    yield Row("compute_logprobs of 32 prompts of 17 tokens, concurrently", in_ms(scoring), "", scoring.cpu)


def long_rows(service: TinkerProcess, model: str) -> Iterator[Row]:
    """Short samples beside long ones of the same model, and the memory of long prompts."""
    client = service.client()
    training = client.create_lora_training_client(model, rank=16, seed=0).result(WAIT)
    sampler = training.save_weights_and_get_sampling_client().result(WAIT)
    other = client.create_sampling_client(base_model=model).result(WAIT)
    chance = random.Random(0)
    prompts = [[chance.randrange(3, 512) for _ in range(1_000)] for _ in range(64)]

    def short() -> object:
        return ask(sampler, prompts[0][:17], SHORT).result(WAIT)

    alone = median_of(service.pid, short, SHORT_SAMPLES)
    yield Row("a sample of 5 tokens, alone, p50", in_ms(alone), "", alone.cpu)
    for busy, name in ((sampler, "the same sampler"), (other, "another sampler")):
        beside = statistics.median(seconds_beside(short, partial(ask, busy, prompts[1][:17], LONG)))
        times = beside / alone.seconds
        yield Row(f"... while {name} samples 1,500 tokens", f"{beside * 1000:.0f} ms")
        yield Row("... its time alone", f"{times:.1f} x", "<= 2 x")
    before = resident_mib(service.pid)
    forget_peak(service.pid)
    watch = Stopwatch(service.pid)
    for future in [ask(sampler, prompt, types.SamplingParams(max_tokens=16, stop=[])) for prompt in prompts]:
        future.result(WAIT)
    used, peak = watch.read(), peak_mib(service.pid)
    yield Row("64 prompts of 1,000 tokens, 16 more each, concurrently", in_ms(used), "", used.cpu)
    yield Row("... peak RSS, above RSS before", f"{peak:.0f}, {peak - before:.0f} MiB")


def seconds_beside(short: Callable[[], object], begin_long: Callable[[], Sampling]) -> list[float]:
    """Of short samples, each asked for while a long one runs."""
    seconds: list[float] = []
    give_up, long = time.monotonic() + SHORT_SECONDS, begin_long()
    while len(seconds) < SHORT_SAMPLES and time.monotonic() < give_up:
        if long.future().done():
            long = begin_long()
        time.sleep(0.05)  # the long one is past its prompt, and the two are not in step
        began = time.monotonic()
        short()
        seconds.append(time.monotonic() - began)
    long.result(WAIT)
    return seconds


def ask(sampler: tinker.SamplingClient, prompt: list[int], how: types.SamplingParams) -> Sampling:
    return sampler.sample(types.ModelInput.from_ints(prompt), 1, how)


def encode(tokenizer: AutoTokenizer, item: digits.Item) -> list[int]:
    messages = [{"role": "user", "content": digits.prompt(item)}]
    ids: list[int] = tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    return ids


def sample(sampler: tinker.SamplingClient, prompts: list[list[int]], count: int) -> list[types.SampleResponse]:
    futures = [sampler.sample(types.ModelInput.from_ints(prompt), count, ANSWER) for prompt in prompts]
    return [future.result(WAIT) for future in futures]


def score(sampler: tinker.SamplingClient, prompts: list[list[int]]) -> None:
    for future in [sampler.compute_logprobs(types.ModelInput.from_ints(prompt)) for prompt in prompts]:
        future.result(WAIT)


def datums(prompts: list[list[int]], responses: list[types.SampleResponse]) -> list[types.Datum]:
    data = []
    for prompt, response in zip(prompts, responses, strict=True):
        for sequence in response.sequences:
            assert sequence.logprobs is not None
            full = [*prompt, *sequence.tokens]
            logprobs, advantages = np.zeros((2, len(full) - 1), np.float32)
            logprobs[len(prompt) - 1 :], advantages[len(prompt) - 1 :] = sequence.logprobs, 1.0
            inputs = {
                "target_tokens": types.TensorData.from_numpy(np.array(full[1:])),
                "logprobs": types.TensorData.from_numpy(logprobs),
                "advantages": types.TensorData.from_numpy(advantages),
            }
            data.append(types.Datum(model_input=types.ModelInput.from_ints(full[:-1]), loss_fn_inputs=inputs))
    return data


def train(model: tinker.TrainingClient, batch: list[types.Datum], learning_rate: float) -> float:
    """One step; returns the largest difference to the sampled logprobs."""
    forward_backward = model.forward_backward(batch, "importance_sampling")
    step = model.optim_step(types.AdamParams(learning_rate=learning_rate))
    outputs = forward_backward.result(WAIT).loss_fn_outputs
    step.result(WAIT)
    sampled = np.concatenate([datum.loss_fn_inputs["logprobs"].to_numpy() for datum in batch])
    trained = np.concatenate([output["logprobs"].to_numpy() for output in outputs])
    return float(np.abs(sampled - trained)[sampled != 0].max())


def median_of(pid: int, run: Callable[[], object], repeats: int) -> Used:
    """Of the clock the median; of the service's cores the mean, because the kernel counts them in hundredths."""
    run()
    seconds, cpu = [], cpu_seconds(pid)
    for _ in range(repeats):
        started = time.monotonic()
        run()
        seconds.append(time.monotonic() - started)
    return Used(statistics.median(seconds), (cpu_seconds(pid) - cpu) / repeats)


def in_ms(used: Used) -> str:
    return f"{used.seconds * 1000:.0f} ms"


if __name__ == "__main__":
    main()
