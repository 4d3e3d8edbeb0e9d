"""Logprobs of a prompt's tokens, of the likeliest alternatives or of given tokens, without sampling a completion.

All are from the model's own distribution (temperature 1) at a position, given the tokens before it; the first token
has none before it and gets no value.
"""

from collections.abc import Sequence

import numpy as np
import torch
from transformers import PreTrainedModel

from tinker_service.model.lora import LoraAdapter, LoraModel
from tinker_service.model.sampling.sample_jobs import Floats, Integers, PromptScores, PromptScoring, TopLogprobs
from tinker_service.model.sampling.token_choice import choose

LOGITS_TENSORS = 3  # of [B, T, V] at the same time
NOTHING_ASKED = -1  # a cell of `targets` without a token


@torch.inference_mode()
def score_prompts(
    model: LoraModel, adapter: LoraAdapter | None, jobs: Sequence[tuple[Sequence[int], PromptScoring]], memory: int
) -> list[PromptScores]:
    """Forward passes over batches of prompts, as many as fit into so many bytes; one answer per job, in order."""
    scores = []
    with model.adapted(adapter) as adapted:
        rows_at_once = _rows_at_once(adapted, max((len(prompt) for prompt, _ in jobs), default=0), memory)
        for start in range(0, len(jobs), rows_at_once):
            batch = jobs[start : start + rows_at_once]
            logits_BTV = _logits(adapted, [prompt for prompt, _ in batch])
            scores += [_scores(logits_BTV[row], prompt, wanted) for row, (prompt, wanted) in enumerate(batch)]
    return scores


def _rows_at_once(model: PreTrainedModel, longest: int, memory: int) -> int:
    logits = longest * model.config.get_text_config().vocab_size
    return max(1, memory // (LOGITS_TENSORS * logits * max(4, model.dtype.itemsize) or 1))


def _logits(model: PreTrainedModel, prompts: Sequence[Sequence[int]]) -> torch.Tensor:
    """Logits [B, T, V]; padded on the right, where causal attention never looks."""
    longest = max(len(prompt) for prompt in prompts)
    tokens_BT = torch.tensor([[*prompt, *[0] * (longest - len(prompt))] for prompt in prompts], device=model.device)
    logits_BTV: torch.Tensor = model(input_ids=tokens_BT, use_cache=False).logits
    return logits_BTV


def _scores(logits_TV: torch.Tensor, prompt: Sequence[int], wanted: PromptScoring) -> PromptScores:
    logits_TV = logits_TV[: len(prompt) - 1]
    logprobs_TV = logits_TV - logits_TV.logsumexp(-1, keepdim=True)
    skipped = 1 if wanted.last_n is None else max(1, len(prompt) - wanted.last_n)
    return PromptScores(
        logprobs=_logprobs(logprobs_TV, torch.tensor(prompt[1:], device=logits_TV.device), skipped)
        if wanted.logprobs
        else None,
        top=_top(logprobs_TV, wanted.top_k, skipped) if wanted.top_k else None,
        targets=None if wanted.targets is None else _of_targets(logprobs_TV, wanted.targets),
        drawn=_drawn(logits_TV, logprobs_TV, wanted) if wanted.draws else None,
    )


def _logprobs(logprobs_TV: torch.Tensor, targets_T: torch.Tensor, skipped: int) -> Floats:
    scored = logprobs_TV.gather(-1, targets_T.long()[:, None]).squeeze(-1)[skipped - 1 :].float().cpu().numpy()
    return np.concatenate([np.full(skipped, np.nan, np.float32), scored])


def _top(logprobs_TV: torch.Tensor, top_k: int, skipped: int) -> TopLogprobs:
    best = logprobs_TV[skipped - 1 :].topk(top_k)
    unscored = _unscored(skipped, top_k)
    return TopLogprobs(
        np.concatenate([unscored.tokens, best.indices.cpu().numpy().astype(np.int32)]),
        np.concatenate([unscored.logprobs, best.values.float().cpu().numpy()]),
    )


def _unscored(positions: int, top_k: int) -> TopLogprobs:
    return TopLogprobs(np.zeros((positions, top_k), np.int32), np.full((positions, top_k), -np.inf, np.float32))


def _of_targets(logprobs_TV: torch.Tensor, targets: Integers) -> Floats:
    asked = targets != NOTHING_ASKED
    tokens_TK = torch.from_numpy(np.where(asked, targets, 0)).to(logprobs_TV.device)
    scored: Floats = logprobs_TV.gather(-1, tokens_TK).float().cpu().numpy()
    return np.where(asked, scored, np.float32(0))


def _drawn(logits_TV: torch.Tensor, logprobs_TV: torch.Tensor, wanted: PromptScoring) -> tuple[Integers, Floats]:
    """Independent draws at the request's temperature (0: the best token), with the model's own logprobs."""
    positions = logits_TV.shape[0]
    generator = np.random.Generator(np.random.Philox(None if wanted.seed is None else abs(wanted.seed)))
    if wanted.temperature == 0:
        tokens_TK = logits_TV.argmax(-1, keepdim=True).expand(positions, wanted.draws)
    else:
        sampled_TV = (logits_TV / wanted.temperature).log_softmax(-1)
        uniform_TK = torch.from_numpy(generator.random((positions, wanted.draws))).to(logits_TV.device)
        tokens_TK = torch.stack([choose(sampled_TV, uniform_T) for uniform_T in uniform_TK.unbind(-1)], dim=-1)
    return tokens_TK.cpu().numpy().astype(np.int64), logprobs_TV.gather(-1, tokens_TK).float().cpu().numpy()
