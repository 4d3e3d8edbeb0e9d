"""`POST /inference/v1/generate`, as the client of the library `renderers` (0.1.12) asks for it.

verifiers samples through that client: it renders chats itself, sends token ids, and takes every sampled token's id and
logprob from the answer. The client rejects an answer that leaves one of them out.
"""

import uuid
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from tinker_atropos.chat.openai_requests import InferenceRequest, WireRequest, sampled_tokens_only
from tinker_atropos.chat.request_handling import RefusedRequestError
from tinker_atropos.chat.sampling import GeneratedSamples, Sample

SEQUENCE_FULL: Final = "sequence_full"
"""The code of the answer that ends a conversation at its `rl_max_length`. It is no fault, and not logged."""


class TokenSampling(InferenceRequest):
    """`max_tokens` None: as many as a chat that names no limit, which is what this client renders.

    verifiers sends the fields of its `SamplingConfig` as they are, additional ones too: an evaluation is marked by
    `vf.SamplingConfig(temperature=1.0, max_tokens=64, rl_purpose="evaluation", rl_evaluation=STEP)`. It has one
    `max_tokens` for all turns of an episode, and does not know how long a prompt is: `rl_max_length` bounds prompt and
    answer together.
    """

    max_tokens: int | None = Field(default=None, ge=1)
    rl_max_length: int | None = Field(default=None, ge=1)
    logprobs: Annotated[bool | int | None, BeforeValidator(sampled_tokens_only)] = None

    def answer_limit(self, prompt_length: int, default: int) -> int:
        """Most tokens that are sampled after a prompt. Raises RefusedRequestError if there is room for none."""
        limit = self.max_tokens or default
        if self.rl_max_length is None:
            return limit
        if prompt_length >= self.rl_max_length:
            raise RefusedRequestError(
                f"the prompt has {prompt_length} tokens, and sampling_params.rl_max_length is {self.rl_max_length}: "
                f"there is no room for an answer",
                code=SEQUENCE_FULL,
            )
        return min(limit, self.rl_max_length - prompt_length)


class TokenRequest(WireRequest):
    """One prompt in token ids. A run has one model: `model` selects nothing, as on the other routes."""

    token_ids: list[int]
    sampling_params: TokenSampling = TokenSampling()
    model: str = ""
    request_id: str | None = None


def token_answer(body: TokenRequest, generation: GeneratedSamples) -> dict[str, Any]:
    """All sampled tokens of each sample, the stop that ended it included, each with its logprob."""
    return {
        "request_id": body.request_id or uuid.uuid4().hex,
        "choices": [_choice(index, sample) for index, sample in enumerate(generation.samples)],
        "policy_step": generation.policy_step,
    }


def _choice(index: int, sample: Sample) -> dict[str, Any]:
    tokens, logprobs = sample.tokens_T.tolist(), sample.logprobs_T.tolist()
    content = [
        {"token": f"token_id:{token}", "logprob": logprob} for token, logprob in zip(tokens, logprobs, strict=True)
    ]
    return {
        "index": index,
        "token_ids": tokens,
        "finish_reason": sample.stop_reason,
        "logprobs": {"content": content},
    }
