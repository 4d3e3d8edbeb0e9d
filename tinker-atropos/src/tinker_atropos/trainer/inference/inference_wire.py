"""Requests of the inference server: sglang's `/generate`, and OpenAI's completions and chat. The requests of
`renderers` are in `inference_tokens.py`.

Nothing that a request asks for is silently ignored. A field is honored, or asks for the default (`NEUTRAL`), or cannot
affect what is sampled (`HARMLESS`); everything else is refused by name. A null is equivalent to a missing field.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

import orjson
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, model_validator
from pydantic.fields import FieldInfo

from tinker_atropos.trainer.backend.policy import SamplingSettings
from tinker_atropos.trainer.inference.generation import Purpose

PING_TEXT = "hi"

NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    "add_generation_prompt": (True,),
    "audio": (),
    "best_of": (1,),
    "continue_final_message": (False,),
    "custom_logit_processor": (),
    "dynatemp_range": (0,),
    "ebnf": (),
    "echo": (False,),
    "frequency_penalty": (0,),
    "function_call": ("none",),
    "functions": ([],),
    "include_stop_str_in_output": (False,),
    "input_embeds": (),
    "json_schema": (),
    "length_penalty": (1,),
    "logit_bias": ({},),
    "logprob_start_len": (-1,),
    "logprobs": (True, False),
    "lora_path": (),
    "min_new_tokens": (0,),
    "min_p": (0,),
    "min_tokens": (0,),
    "modalities": (["text"],),
    "no_stop_trim": (False,),
    "presence_penalty": (0,),
    "prompt_logprobs": (),
    "regex": (),
    "repetition_penalty": (1,),
    "response_format": ({"type": "text"},),
    "return_hidden_states": (False,),
    "stream": (False,),
    "suffix": ("",),
    "top_logprobs": (0,),
    "top_logprobs_num": (0,),
    "use_beam_search": (False,),
}
"""Fields that are not supported, with the values that have no effect."""

HARMLESS = frozenset(
    {
        *("cache_salt", "metadata", "parallel_tool_calls", "priority", "prompt_cache_key", "request_id", "rid"),
        *("return_logprob", "routed_experts_prompt_start", "safety_identifier", "service_tier"),
        *("spaces_between_special_tokens", "store", "timeout", "user"),
    }
)
"""Fields about bookkeeping or speed: what is sampled is the same without them."""


class UnsupportedFieldError(ValueError):
    """A field that the server does not know, or whose value it cannot honor."""


class WireRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_honored(cls, body: Any) -> Any:
        if not isinstance(body, dict):
            return body
        given = {name: value for name, value in body.items() if value is not None}
        known = {spelling for name, field in cls.model_fields.items() for spelling in _spellings(name, field)}
        for name, value in given.items():
            if name not in known:
                _check_foreign(name, value)
        return {name: value for name, value in given.items() if name in known}


def _spellings(name: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    return [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]


def _check_foreign(name: str, value: Any) -> None:
    """Raises UnsupportedFieldError for a field that asks for something this server does not support."""
    if name in HARMLESS or value in NEUTRAL.get(name, ()):
        return
    if name in NEUTRAL:
        allowed = " or ".join(orjson.dumps(each).decode() for each in NEUTRAL[name]) or "null"
        raise UnsupportedFieldError(f"{name} is not supported: leave it out, or send {allowed}")
    raise UnsupportedFieldError(f"{name} is not a field that this server honors: leave it out")


class InferenceRequest(WireRequest):
    """The fields that all routes share that sample.

    `rl_purpose` and `rl_evaluation` are ours: evaluations are counted separately in the books, and sampled from the
    weights of the step that they are of.
    """

    n: int = Field(default=1, ge=1, le=1024)
    temperature: float = Field(default=1.0, ge=0, allow_inf_nan=False)
    top_p: float = Field(default=1.0, gt=0, le=1)
    top_k: int = Field(default=-1, ge=-1)
    stop: str | list[str | StrictInt] = []
    stop_token_ids: list[int] = []
    ignore_eos: bool = False
    skip_special_tokens: bool = True
    seed: int | None = Field(default=None, validation_alias=AliasChoices("seed", "sampling_seed"))
    rl_purpose: Purpose = "training"
    rl_evaluation: int | None = Field(default=None, ge=0)

    @property
    def stop_strings(self) -> tuple[str, ...]:
        """The strings that end a sample; an empty one would end it immediately, and is left out."""
        stops = [self.stop] if isinstance(self.stop, str) else self.stop
        return tuple(stop for stop in stops if isinstance(stop, str) and stop)

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """The token ids that end a sample. Environments also put them in `stop`, as Tinker's own field allows."""
        given = () if isinstance(self.stop, str) else self.stop
        return (*self.stop_token_ids, *(stop for stop in given if isinstance(stop, int)))

    @model_validator(mode="after")
    def _one_kind_of_stop(self) -> Self:
        if self.stop_strings and self.stop_ids:
            raise UnsupportedFieldError(
                "stop, stop_token_ids: strings and token ids cannot be combined, the backend takes one kind"
            )
        return self

    def settings(self, max_tokens: int, eos: str | None, eos_id: int | None) -> SamplingSettings:
        """`stop` in Tinker's sense: None is EOS, an empty list is no stop at all, and a list replaces EOS, so EOS is
        added to it.
        """
        stops: list[Any] = [*self.stop_strings] or [*self.stop_ids]
        if stops and not self.ignore_eos:
            end = eos if self.stop_strings else eos_id
            stops += [end] if end is not None else []
        return SamplingSettings(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_p=self.top_p,
            top_k=self.top_k or -1,
            stop=tuple(dict.fromkeys(stops)) if stops or self.ignore_eos else None,
            seed=self.seed,
        )


class EvaluationRequest(WireRequest):
    """`POST /rl/evaluation`: an evaluation begins, which is due at `due_step` or was."""

    due_step: int = Field(ge=0)


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


def _single_prompt(prompt: Any) -> Any:
    """OpenAI's `prompt` may hold several prompts; a list of one is accepted as that one."""
    if not isinstance(prompt, list) or not any(isinstance(each, str | list) for each in prompt):
        return prompt
    if len(prompt) > 1:
        raise UnsupportedFieldError(f"prompt holds {len(prompt)} prompts: send one request for each")
    return prompt[0]


def sampled_tokens_only(logprobs: Any) -> Any:
    """Raises UnsupportedFieldError for logprobs of tokens that were not sampled."""
    if isinstance(logprobs, int) and not 0 <= logprobs <= 1:
        raise UnsupportedFieldError(
            f"logprobs {logprobs} asks for the most likely tokens too, which are not known: send 1, 0 or true"
        )
    return logprobs


class CompletionRequest(InferenceRequest):
    """`POST /v1/completions`: one prompt, as text or token ids.

    `logprobs`: true, 0 and 1 all return those of the sampled tokens, without alternatives.
    """

    prompt: Annotated[str | list[int], BeforeValidator(_single_prompt)]
    model: str = ""
    max_tokens: int = Field(default=16, ge=1)
    logprobs: Annotated[bool | int | None, BeforeValidator(sampled_tokens_only)] = None

    @property
    def wants_logprobs(self) -> bool:
        return self.logprobs is not None and self.logprobs is not False

    @property
    def is_ping(self) -> bool:
        return self.prompt == PING_TEXT and self.max_tokens == 1


class ChatRequest(InferenceRequest):
    """`POST /v1/chat/completions`. `max_tokens` None: as many as fit into the context.

    The tokenizer's chat template renders `tools` and `chat_template_kwargs` into the prompt. Calls are not parsed: the
    answer's content is what the model wrote. So a call cannot be required, and with `tool_choice` none the prompt has
    no tools.
    """

    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] = []
    tool_choice: Literal["auto", "none"] = "auto"
    chat_template_kwargs: dict[str, Any] = {}
    model: str = ""
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False

    @property
    def shown_tools(self) -> list[dict[str, Any]]:
        return self.tools if self.tool_choice == "auto" else []

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def is_ping(self) -> bool:
        contents = [message.get("content") for message in self.messages]
        return contents == [PING_TEXT] and self.token_limit == 1
