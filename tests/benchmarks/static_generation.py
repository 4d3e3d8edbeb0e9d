"""The peer of the Tinker service's sampling: `generate` of transformers, in static batches, in a process of its own.

A batch is what has arrived when the one before it is done, and runs to the longest of its lengths.
"""

import multiprocessing
import os
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.benchmarks.meter import Used
from tests.benchmarks.offered_load import Load

_loaded: dict[str, Any] = {}


class StaticGeneration:
    def __init__(self, process: ProcessPoolExecutor) -> None:
        self._process = process

    def sample(self, load: Load, at_once: int, deadline: float) -> Used:
        """Raises TimeoutError after `deadline` seconds."""
        return self._process.submit(_sample, load, at_once).result(deadline)


@contextmanager
def static_generation(model: Path, dtype: str) -> Iterator[StaticGeneration]:
    """One thread computes."""
    os.environ["OMP_NUM_THREADS"] = "1"
    context = multiprocessing.get_context("spawn")
    process = ProcessPoolExecutor(1, context, initializer=_load, initargs=(str(model), dtype))
    try:
        yield StaticGeneration(process)
    finally:
        for worker in list(process._processes.values()):
            worker.terminate()
        process.shutdown(cancel_futures=True)


def _load(model: str, dtype: str) -> None:
    import torch
    from transformers import AutoModelForCausalLM
    from transformers.utils import logging

    logging.disable_progress_bar()
    torch.set_num_threads(1)
    _loaded["model"] = AutoModelForCausalLM.from_pretrained(model, dtype=getattr(torch, dtype)).eval()
    _loaded["model"].generation_config.eos_token_id = None  # every sequence gets the length that it is offered with


def _sample(load: Load, at_once: int) -> Used:
    began, began_cpu = time.monotonic(), time.process_time()
    waiting = sorted(load, key=lambda wanted: wanted.arrival)
    while waiting:
        time.sleep(max(0.0, began + waiting[0].arrival - time.monotonic()))
        here = sum(began + wanted.arrival <= time.monotonic() for wanted in waiting)
        batch, waiting = waiting[: min(here, at_once)], waiting[min(here, at_once) :]
        _generate(batch)
    return Used(time.monotonic() - began, time.process_time() - began_cpu)


def _generate(batch: Load) -> None:
    import torch

    prompts = torch.tensor([wanted.prompt for wanted in batch])
    longest = max(wanted.length for wanted in batch)
    with torch.inference_mode():
        whole = _loaded["model"].generate(
            prompts,
            attention_mask=torch.ones_like(prompts),
            max_new_tokens=longest,
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            pad_token_id=0,
        )
    assert whole.shape == (len(batch), prompts.shape[1] + longest)
