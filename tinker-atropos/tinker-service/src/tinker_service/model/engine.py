"""The base model with its tokenizer, and what the worker runs on it."""

import logging
import os
import time
from collections.abc import Sequence
from pathlib import Path

import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer
from transformers.utils import logging as transformers_logging

from tinker_service.model.checkpoint_files import BaseModel
from tinker_service.model.lora import LoraModel
from tinker_service.model.sampling.sample_jobs import PromptScores, SampleAnswer, SampleJob
from tinker_service.model.sampling.sampling_batch import SamplingBatch
from tinker_service.model.sampling.scoring import score_prompts
from tinker_service.service_errors import StartError

log = logging.getLogger(__name__)

# A small model computes in double precision: sampled and trained logprobs then agree to the last bit of what is sent
# (float32), whatever the batch. Single precision is twice as fast, but they differ by up to 1e-5.
SMALL_PARAMETERS = 20_000_000
SAMPLING_BYTES = 2**30
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16}


class Engine:
    """One base model in memory. Not thread-safe: the worker's thread calls it."""

    def __init__(
        self, name: str, folder: Path, device: str, dtype: str = "auto", sampling_bytes: int = SAMPLING_BYTES
    ) -> None:
        """Load a Hugging Face causal-LM folder. Raises StartError.

        `dtype` auto: float64 for a small model, else bfloat16 on a GPU and float32 on a CPU. `sampling_bytes` bounds
        the cache and logits of sampling.
        """
        if device == "cuda" and not torch.cuda.is_available():
            raise StartError("--device cuda: torch finds no GPU here; use --device cpu")
        started = time.monotonic()
        transformers_logging.disable_progress_bar()
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.is_small = _count_parameters(folder) < SMALL_PARAMETERS
        self.dtype = _automatic_dtype(device, small=self.is_small) if dtype == "auto" else dtype
        # Never .to(dtype): that would round the rotary frequencies too, and distant tokens would lose their positions.
        model = AutoModelForCausalLM.from_pretrained(folder, dtype=DTYPES[self.dtype])
        self.model = LoraModel(model.to(device))
        self.device = torch.device(device)
        self.sampling_bytes = sampling_bytes
        config = model.config.get_text_config()
        self.base = BaseModel(name, folder, ties_embeddings=bool(config.tie_word_embeddings))
        self.architecture = str(config.model_type)
        self.vocabulary = int(config.vocab_size)
        self.context = int(config.max_position_embeddings)
        self.stop_tokens = _stop_tokens(model.generation_config.eos_token_id, self.tokenizer.eos_token_id)
        log.info("loaded %s (%s) from %s in %.1f s", name, self.dtype, folder, time.monotonic() - started)

    def use_threads(self, threads: int | None) -> None:
        """None: as many as help. Small matrices are slower with several threads, many times so on a busy machine."""
        torch.set_num_threads(threads or (1 if self.is_small else os.cpu_count() or 1))

    def is_named(self, base_model: str) -> bool:
        """Clients may give the model's name or its folder (from which they also load its tokenizer)."""
        folder = self.base.folder
        return base_model == self.base.name or (Path(base_model).is_absolute() and Path(base_model) == folder)

    def new_batch(self) -> SamplingBatch:
        """What the worker samples with."""
        return SamplingBatch(self.model, self._decode, self.sampling_bytes)

    def answer(self, jobs: Sequence[SampleJob]) -> list[SampleAnswer]:
        """The answers to jobs that have been sampled; prompts of one sampler are scored together."""
        scores: dict[SampleJob, PromptScores] = {}
        for adapter in {id(job.adapter): job.adapter for job in jobs if job.scoring}.values():
            own = [job for job in jobs if job.scoring and job.adapter is adapter]
            wanted = [(job.request.prompt, job.scoring) for job in own if job.scoring]
            scores |= zip(own, score_prompts(self.model, adapter, wanted, self.sampling_bytes), strict=True)
        return [SampleAnswer(job.continuations, scores.get(job, PromptScores())) for job in jobs]

    def _decode(self, tokens: list[int]) -> str:
        text: str = self.tokenizer.decode(tokens)
        return text


def _count_parameters(folder: Path) -> int:
    with torch.device("meta"):
        return int(AutoModelForCausalLM.from_config(AutoConfig.from_pretrained(folder)).num_parameters())


def _automatic_dtype(device: str, *, small: bool) -> str:
    if small:
        return "float64"
    return "bfloat16" if device == "cuda" else "float32"


def _stop_tokens(generation_eos: int | list[int] | None, tokenizer_eos: int | None) -> frozenset[int]:
    if generation_eos is None:
        return frozenset() if tokenizer_eos is None else frozenset({tokenizer_eos})
    return frozenset([generation_eos] if isinstance(generation_eos, int) else generation_eos)
