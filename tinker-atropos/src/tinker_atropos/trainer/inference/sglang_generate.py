"""sglang's `POST /generate`: what atroposlib's servers ask for token ids with."""

import uuid
from typing import Any, Self

from pydantic import Field, model_validator

from tinker_atropos.arrays import Ints
from tinker_atropos.chat.openai_answers import Written, write
from tinker_atropos.chat.openai_requests import InferenceRequest, UnsupportedFieldError, WireRequest
from tinker_atropos.chat.sampling import GeneratedSamples, Sample
from tinker_atropos.chat.tokenizer import Tokenizer


class SglangSampling(InferenceRequest):
    max_new_tokens: int = Field(default=128, ge=1)


class GenerateRequest(WireRequest):
    """`POST /generate` in sglang's shape: `text` or `input_ids` of one prompt."""

    text: str | None = None
    input_ids: list[int] | None = None
    sampling_params: SglangSampling = SglangSampling()
    return_text_in_logprobs: bool = False

    @model_validator(mode="after")
    def _one_prompt(self) -> Self:
        if (self.text is None) == (self.input_ids is None):
            raise UnsupportedFieldError("a prompt is needed, once: set input_ids (token ids) or text")
        return self


def generate_answer(body: GenerateRequest, generation: GeneratedSamples, prompt_T: Ints, tokenizer: Tokenizer) -> Any:
    """One object for one sample, a list for several. `policy_step` is ours; sglang's clients ignore it."""
    answers = [
        {
            "text": written.text,
            "output_ids": written.sample.tokens_T.tolist(),
            "meta_info": {
                "id": uuid.uuid4().hex,
                "finish_reason": _sglang_finish(written),
                "prompt_tokens": len(prompt_T),
                "completion_tokens": len(written.sample.tokens_T),
                "policy_step": generation.policy_step,
                "output_token_logprobs": _sglang_logprobs(
                    written.sample, tokenizer if body.return_text_in_logprobs else None
                ),
            },
        }
        for written in (write(sample, body.sampling_params, tokenizer) for sample in generation.samples)
    ]
    return answers[0] if len(answers) == 1 else answers


def _sglang_finish(written: Written) -> dict[str, Any]:
    if written.sample.stop_reason == "length":
        return {"type": "length", "length": len(written.sample.tokens_T)}
    return {"type": "stop", "matched": written.matched}


def _sglang_logprobs(sample: Sample, tokenizer: Tokenizer | None) -> list[tuple[float, int, str | None]]:
    texts = tokenizer.decode_each(sample.tokens_T) if tokenizer else [None] * len(sample.tokens_T)
    return list(zip(sample.logprobs_T.tolist(), sample.tokens_T.tolist(), texts, strict=True))
