"""Sample from trained weights: a prompt in, completions out."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import numpy as np

from tinker_atropos.chat.tokenizer import ChatError, Tokenizer
from tinker_atropos.errors import ConfigError
from tinker_atropos.weights.backend_session import ask, kind_of, session

if TYPE_CHECKING:
    import tinker


@dataclass(frozen=True, slots=True)
class SampleOptions:
    """What to sample. `model_path` None: from `base_model`, as it was before any training. `raw`: the prompt is used as
    it is, not as a user message; `seed` None: the backend chooses.
    """

    model_path: str | None
    prompt: str
    tokenizer: str | None
    raw: bool
    n: int
    max_tokens: int
    temperature: float
    seed: int | None
    base_model: str | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer, without special tokens; `logprob` is the sum over its tokens, of the distribution sampled from."""

    text: str
    tokens: int
    logprob: float
    stop_reason: str

    def to_wire(self) -> dict[str, object]:
        return asdict(self)


async def sample(options: SampleOptions) -> list[Completion]:
    """Sample from the weights at `model_path`, or from `base_model`. Raises ConfigError for what can be fixed in the
    options.
    """
    check_one_is_named(options.model_path, options.base_model)
    async with session("sample") as service:
        from tinker import types

        client = await sampling_client(service, options.model_path, options.base_model)
        tokenizer = _tokenizer(options, client)
        prompt = types.ModelInput.from_ints(_prompt_ids(options, tokenizer))
        params = types.SamplingParams(max_tokens=options.max_tokens, temperature=options.temperature, seed=options.seed)
        answer = await ask("sampling", lambda: client.sample(prompt, options.n, params))
    return [
        Completion(
            text=tokenizer.decode(np.array(sequence.tokens, np.int64)),
            tokens=len(sequence.tokens),
            logprob=float(sum(sequence.logprobs or ())),
            stop_reason=str(sequence.stop_reason),
        )
        for sequence in answer.sequences
    ]


def check_one_is_named(path: str | None, base_model: str | None) -> None:
    """Raises ConfigError."""
    if (path is None) == (base_model is None):
        raise ConfigError("name either trained weights with --model-path or a model with --base-model")
    if path is not None:
        kind_of(path, ("weights", "sampler_weights"))


async def sampling_client(
    service: "tinker.ServiceClient", path: str | None, base_model: str | None
) -> "tinker.SamplingClient":
    """State checkpoints cannot be sampled from as they are: a training client takes a snapshot of them."""
    if path is None or kind_of(path) == "sampler_weights":
        client: tinker.SamplingClient = await ask(
            f"opening {path or base_model}",
            lambda: service.create_sampling_client(model_path=path, base_model=base_model),
        )
        return client
    training: tinker.TrainingClient = await ask(
        f"opening {path}", lambda: service.create_training_client_from_state(path)
    )
    snapshot: tinker.SamplingClient = await ask(
        f"taking a snapshot of {path}", training.save_weights_and_get_sampling_client
    )
    return snapshot


def _tokenizer(options: SampleOptions, client: "tinker.SamplingClient") -> Tokenizer:
    """The tokenizer named in the options, else that of the model that the backend names."""
    name = options.tokenizer or client.get_base_model()
    try:
        return Tokenizer(name)
    except ConfigError:
        raise ConfigError(
            f"the tokenizer {name!r} cannot be loaded; name another with --tokenizer: bundled, a folder or a name on "
            f"the Hugging Face Hub"
        ) from None


def _prompt_ids(options: SampleOptions, tokenizer: Tokenizer) -> list[int]:
    if options.raw:
        ids: list[int] = tokenizer.encode(options.prompt).tolist()
    else:
        try:
            text = tokenizer.render_template([{"role": "user", "content": options.prompt}], (), {})
            ids = tokenizer.encode(text, add_special_tokens=False).tolist()
        except ChatError as error:
            raise ConfigError(f"{error}; --raw takes the prompt as it is") from error
    if not ids:
        raise ConfigError("the prompt has no tokens; write at least one character")
    return ids
