"""The base model with its tokenizer, and what the worker runs on it."""

import logging
import math
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from tinker_atropos.errors import ConfigError
from tinker_atropos.tinker_service.lora import LoraModel
from tinker_atropos.tinker_service.sampling import Continuation, generate, prompt_logprobs
from tinker_atropos.tinker_service.worker import SampleJob

log = logging.getLogger(__name__)

# A small model computes in double precision: sampled and trained logprobs then agree to the last bit that travels
# (float32), whatever the batch. In single precision they differ by up to 1e-5; that is twice as fast.
SMALL_PARAMETERS = 20_000_000


@dataclass(frozen=True, slots=True)
class Sampled:
    """The answer to one sample request. `prompt_logprobs`: NaN for the first token, and for those not asked for."""

    continuations: list[Continuation]
    prompt_logprobs: list[float] | None


class Engine:
    """One base model in memory. Not thread-safe: the worker's thread calls it."""

    def __init__(self, name: str, folder: Path, device: str) -> None:
        """Load a Hugging Face causal-LM folder. Raises ConfigError."""
        self.name, self.folder = name, folder
        if device == "cuda" and not torch.cuda.is_available():
            raise ConfigError("--device cuda: torch finds no GPU here; use --device cpu")
        started = time.monotonic()
        transformers_logging.disable_progress_bar()
        self.tokenizer = AutoTokenizer.from_pretrained(self.folder)
        base = AutoModelForCausalLM.from_pretrained(self.folder, dtype=torch.float32)
        self.is_small = base.num_parameters() < SMALL_PARAMETERS
        self.model = LoraModel(base.to(device, torch.float64 if self.is_small else torch.float32))
        self.device = torch.device(device)
        config = base.config.get_text_config()
        self.architecture = str(config.model_type)
        self.vocabulary = int(config.vocab_size)
        self.context = int(config.max_position_embeddings)
        self.stop_tokens = _stop_tokens(base.generation_config.eos_token_id, self.tokenizer.eos_token_id)
        log.info("loaded %s from %s in %.1f s", self.name, self.folder, time.monotonic() - started)

    def use_threads(self, threads: int | None) -> None:
        """None: as many as help. Small matrices are slower when shared, several times so on a busy machine."""
        torch.set_num_threads(threads or (1 if self.is_small else os.cpu_count() or 1))

    def is_named(self, base_model: str) -> bool:
        """Clients may name the model, or give its folder (which is also where they load its tokenizer from)."""
        return base_model == self.name or (Path(base_model).is_absolute() and Path(base_model) == self.folder)

    def sample(self, jobs: Sequence[SampleJob]) -> list[Sampled]:
        """Answer sample jobs that share a sampler."""
        adapter = jobs[0].adapter
        continuations = generate(self.model, adapter, [job.request for job in jobs], self._decode)
        return [
            Sampled(rows, self._prompt_logprobs(job) if job.scored_prompt_tokens else None)
            for job, rows in zip(jobs, continuations, strict=True)
        ]

    def _prompt_logprobs(self, job: SampleJob) -> list[float]:
        logprobs = prompt_logprobs(self.model, job.adapter, job.request.prompt)
        skipped = len(logprobs) - job.scored_prompt_tokens
        return [math.nan] * skipped + logprobs[skipped:]

    def _decode(self, tokens: list[int]) -> str:
        text: str = self.tokenizer.decode(tokens)
        return text


def _stop_tokens(generation_eos: int | list[int] | None, tokenizer_eos: int | None) -> frozenset[int]:
    if generation_eos is None:
        return frozenset() if tokenizer_eos is None else frozenset({tokenizer_eos})
    return frozenset([generation_eos] if isinstance(generation_eos, int) else generation_eos)
