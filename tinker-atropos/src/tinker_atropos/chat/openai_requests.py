"""OpenAI's requests, completions and chat, and the fields that all requests to sample share.

Nothing that a request asks for is silently ignored. A field is honored, or asks for the default (`NEUTRAL`), or cannot
affect what is sampled (`HARMLESS`); a known one that cannot be honored is refused by name. OpenAI's clients send fields
that nobody here knows, so that on their routes an unknown field is left out with a warning; on the others it is
refused. A null is equivalent to a missing field.
"""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar, Final, Literal, Self

import orjson
from pydantic import AliasChoices, BaseModel, BeforeValidator, ConfigDict, Field, StrictInt, model_validator
from pydantic.fields import FieldInfo

from tinker_atropos.chat.sampling import Purpose, SamplingSettings

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
        *("cache_salt", "metadata", "priority", "prompt_cache_key", "request_id", "rid"),
        *("return_logprob", "routed_experts_prompt_start", "safety_identifier", "service_tier"),
        *("spaces_between_special_tokens", "store", "timeout", "user"),
    }
)
"""Fields about bookkeeping or speed: what is sampled is the same without them."""

UNENFORCED = frozenset({"response_format"})
"""Fields that programs send to get answers in a form: here the policy has to learn it."""


class UnsupportedFieldError(ValueError):
    """A field that the server does not know, or whose value it cannot honor."""


class WireRequest(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")

    ignores_unknown: ClassVar[bool] = False
    ignored: tuple[str, ...] = ()
    """Names of the fields that were left out, for a warning."""

    @model_validator(mode="before")
    @classmethod
    def _only_what_is_honored(cls, body: object) -> object:
        if not isinstance(body, dict):
            return body
        given = {str(name): value for name, value in body.items() if value is not None}
        known = {spelling for name, field in cls.model_fields.items() for spelling in _spellings(name, field)}
        foreign = {name: value for name, value in given.items() if name not in known - {"ignored"}}
        ignored = tuple(name for name, value in foreign.items() if _is_ignored(name, value, cls.ignores_unknown))
        return {name: value for name, value in given.items() if name not in foreign} | {"ignored": ignored}


def _spellings(name: str, field: FieldInfo) -> list[str]:
    alias = field.validation_alias
    return [str(choice) for choice in alias.choices] if isinstance(alias, AliasChoices) else [name]


def _is_ignored(name: str, value: object, ignores_unknown: bool) -> bool:
    """Whether leaving a field out deserves a warning.

    Raises UnsupportedFieldError for one that asks for something this server does not support.
    """
    if name in HARMLESS or value in NEUTRAL.get(name, ()):
        return False
    if ignores_unknown and name in UNENFORCED:
        return True
    if name in NEUTRAL:
        allowed = " or ".join(orjson.dumps(each).decode() for each in NEUTRAL[name]) or "null"
        raise UnsupportedFieldError(f"{name} is not supported: leave it out, or send {allowed}")
    if not ignores_unknown:
        raise UnsupportedFieldError(f"{name} is not a field that this server honors: leave it out")
    return True


SHAPING: Final = frozenset({"temperature", "top_p", "top_k"})


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

    @property
    def evaluated_step(self) -> int | None:
        """The step whose weights an evaluation samples."""
        return self.rl_evaluation if self.rl_purpose == "evaluation" else None

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
            left_out=SHAPING - self.model_fields_set,
        )


def _single_prompt(prompt: object) -> object:
    """OpenAI's `prompt` may hold several prompts; a list of one is accepted as that one."""
    if not isinstance(prompt, list) or not any(isinstance(each, str | list) for each in prompt):
        return prompt
    if len(prompt) > 1:
        raise UnsupportedFieldError(f"prompt holds {len(prompt)} prompts: send one request for each")
    return prompt[0]


def sampled_tokens_only(logprobs: object) -> object:
    """Raises UnsupportedFieldError for logprobs of tokens that were not sampled."""
    if isinstance(logprobs, int) and not 0 <= logprobs <= 1:
        raise UnsupportedFieldError(
            f"logprobs {logprobs} asks for the most likely tokens too, which are not known: send 1, 0 or true"
        )
    return logprobs


class StreamOptions(BaseModel):
    include_usage: bool = False


class OpenAIRequest(InferenceRequest):
    """What completions and chat share. `stream` sends the finished answer in pieces. `return_token_ids` is vLLM's."""

    ignores_unknown: ClassVar[bool] = True

    model: str = ""
    stream: bool = False
    stream_options: StreamOptions = StreamOptions()
    return_token_ids: bool = False


class CompletionRequest(OpenAIRequest):
    """`POST /v1/completions`: one prompt, as text or token ids.

    `logprobs`: true, 0 and 1 all return those of the sampled tokens, without alternatives.
    """

    prompt: Annotated[str | list[int], BeforeValidator(_single_prompt)]
    max_tokens: int = Field(default=16, ge=1)
    logprobs: Annotated[bool | int | None, BeforeValidator(sampled_tokens_only)] = None

    @property
    def wants_logprobs(self) -> bool:
        return self.logprobs is not None and self.logprobs is not False

    @property
    def is_ping(self) -> bool:
        return self.prompt == PING_TEXT and self.max_tokens == 1


class NamedFunction(BaseModel):
    name: str


class NamedTool(BaseModel):
    type: Literal["function"] = "function"
    function: NamedFunction


class ChatRequest(OpenAIRequest):
    """`POST /v1/chat/completions`. `max_tokens` None: as many as fit into the context.

    With `tool_choice` none the prompt has no tools. A call is required by beginning it in the prompt: the policy writes
    the rest. `parallel_tool_calls` false: only the first call is returned.
    """

    messages: list[dict[str, Any]] = Field(min_length=1)
    tools: list[dict[str, Any]] = []
    tool_choice: Literal["auto", "none", "required"] | NamedTool = "auto"
    parallel_tool_calls: bool = True
    chat_template_kwargs: dict[str, Any] = {}
    max_tokens: int | None = Field(default=None, ge=1)
    max_completion_tokens: int | None = Field(default=None, ge=1)
    logprobs: bool = False

    @model_validator(mode="after")
    def _tools_are_named(self) -> Self:
        names = [tool_name(tool) for tool in self.tools]
        for index, name in enumerate(names):
            if name is None:
                raise UnsupportedFieldError(f"tools.{index} is not a function with a name")
        if isinstance(self.tool_choice, NamedTool) and self.tool_choice.function.name not in names:
            known = ", ".join(map(str, names)) or "none"
            raise UnsupportedFieldError(f"tool_choice names {self.tool_choice.function.name!r}; tools has {known}")
        if self.tool_choice == "required" and not names:
            raise UnsupportedFieldError("tool_choice is required, and there are no tools")
        return self

    @property
    def shown_tools(self) -> list[dict[str, object]]:
        return [] if self.tool_choice == "none" else self.tools

    @property
    def requires_call(self) -> bool:
        return self.tool_choice == "required" or isinstance(self.tool_choice, NamedTool)

    @property
    def required_tool(self) -> str | None:
        """The only tool that may be called; None: any."""
        return self.tool_choice.function.name if isinstance(self.tool_choice, NamedTool) else None

    @property
    def token_limit(self) -> int | None:
        return self.max_completion_tokens or self.max_tokens

    @property
    def is_ping(self) -> bool:
        contents = [message.get("content") for message in self.messages]
        return contents == [PING_TEXT] and self.token_limit == 1


def tool_name(tool: Mapping[str, object]) -> str | None:
    """The name of a tool in OpenAI's form; None if it has none."""
    function = tool.get("function")
    name = function.get("name") if isinstance(function, dict) else None
    return name if isinstance(name, str) and name else None
