"""Timings of the Tinker service with the bundled model, through HTTP and the unmodified SDK.

`python tests/benchmarks/tinker_service_bench.py`: prints a table; asserts nothing.
"""

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import tinker
from tinker import types
from transformers import AutoTokenizer

from tinker_atropos.bundled import resolve_tokenizer
from tinker_atropos.environments import digits

KEY = "tml-bench"
WAIT = 120
REPEATS = 20
ANSWER = types.SamplingParams(max_tokens=6, stop=[])


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        started = time.monotonic()
        process, url = start_service(Path(folder))
        rows = [("process start", f"{time.monotonic() - started:.1f} s", "<= 6 s")]
        try:
            rows.append(("idle RSS", f"{resident_mib(process.pid):.0f} MiB", ""))
            rows.extend(measure(tinker.ServiceClient(base_url=url, api_key=KEY)))
            rows.append(("RSS afterwards", f"{resident_mib(process.pid):.0f} MiB", ""))
        finally:
            process.terminate()
            process.wait(10)
    print(f"Tinker service, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for name, value, goal in rows:
        print(f"{name:<62} {value:>16}   {goal}")


def start_service(folder: Path) -> tuple[subprocess.Popen[bytes], str]:
    port_file = folder / "port"
    command = [str(Path(sys.executable).with_name("tinker-atropos")), "tinker-service", "--port", "0"]
    process = subprocess.Popen(
        [*command, "--data", str(folder / "data"), "--port-file", str(port_file)],
        env={**os.environ, "TINKER_API_KEY": KEY},
    )
    while not port_file.exists():
        assert process.poll() is None, "the Tinker service did not start"
        time.sleep(0.01)
    return process, f"http://127.0.0.1:{port_file.read_text().strip()}"


def measure(client: tinker.ServiceClient) -> list[tuple[str, str, str]]:
    model = client.create_lora_training_client("bundled", rank=16, seed=0).result(WAIT)
    sampler = model.save_weights_and_get_sampling_client().result(WAIT)
    tokenizer = AutoTokenizer.from_pretrained(resolve_tokenizer("bundled"))
    prompts = [encode(tokenizer, item) for item in digits.split().training[:32]]

    sampling = median_seconds(lambda: sample(sampler, prompts[:4], 8))
    batch = datums(prompts[:4], sample(sampler, prompts[:4], 8))
    gaps: list[float] = []
    training = median_seconds(lambda: gaps.append(train(model, batch, learning_rate=0.0)))
    one_by_one = median_seconds(lambda: [sample(sampler, [prompt], 1) for prompt in prompts], repeats=3)
    concurrent = median_seconds(lambda: sample(sampler, prompts, 1))
    scoring = median_seconds(lambda: score(sampler, prompts), repeats=5)
    return [
        ("sampling, 4 prompts x 8 of 6 tokens, concurrently", f"{sampling * 1000:.0f} ms", "<= 400 ms"),
        ("forward_backward + optim_step, 32 sequences of 22 tokens", f"{training * 1000:.0f} ms", "<= 150 ms"),
        ("largest |sampled - trained| logprob", f"{max(gaps):.1e}", "<= 1e-5"),
        ("32 sample requests of 6 tokens, one at a time", f"{32 * 6 / one_by_one:.0f} tokens/s", ""),
        ("... concurrently", f"{32 * 6 / concurrent:.0f} tokens/s", ""),
        ("... ratio", f"{one_by_one / concurrent:.1f}", ">= 3"),
        ("compute_logprobs of 32 prompts of 17 tokens, concurrently", f"{scoring * 1000:.0f} ms", ""),
    ]


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


def median_seconds(run: Callable[[], object], repeats: int = REPEATS) -> float:
    run()
    seconds = []
    for _ in range(repeats):
        started = time.monotonic()
        run()
        seconds.append(time.monotonic() - started)
    return statistics.median(seconds)


def resident_mib(pid: int) -> float:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


if __name__ == "__main__":
    main()
