"""The tokenizer, for text in and out. Loaded without torch, and without a network when its files are here."""

from typing import Any

import numpy as np

from tinker_atropos.bundled import resolve_tokenizer
from tinker_atropos.errors import ConfigError
from tinker_atropos.trainer.rollouts import Ints


class Tokenizer:
    """A Hugging Face tokenizer. Decoded texts carry no special tokens; token ids keep them."""

    def __init__(self, name: str) -> None:
        """Raises ConfigError when there is no such tokenizer, or it cannot be fetched."""
        from transformers import AutoTokenizer

        try:
            self._tokenizer: Any = AutoTokenizer.from_pretrained(resolve_tokenizer(name))
        except (OSError, ValueError) as error:
            first_line = str(error).strip().splitlines()[0]
            raise ConfigError(f"env.tokenizer_name is {name!r}, which cannot be loaded: {first_line}") from error

    @property
    def eos(self) -> str | None:
        token: str | None = self._tokenizer.eos_token
        return token

    @property
    def vocabulary(self) -> int:
        """Number of token ids that the model knows: its embedding may be longer than the tokenizer's list."""
        from transformers import AutoConfig

        try:
            config: Any = AutoConfig.from_pretrained(self._tokenizer.name_or_path)
        except (OSError, ValueError):  # a folder with a tokenizer alone
            return len(self._tokenizer)
        return max(len(self._tokenizer), int(getattr(config.get_text_config(), "vocab_size", 0)))

    def encode(self, text: str) -> Ints:
        return np.array(self._tokenizer.encode(text), np.int64)

    def decode(self, tokens_T: Ints) -> str:
        return str(self._tokenizer.decode(tokens_T.tolist(), skip_special_tokens=True))

    def decode_each(self, tokens_T: Ints) -> list[str]:
        return [str(self._tokenizer.decode([token])) for token in tokens_T.tolist()]

    def render_chat(self, messages: list[dict[str, Any]], tools: list[dict[str, Any]] | None) -> Ints:
        """The prompt of the assistant's next turn, by the tokenizer's chat template."""
        ids = self._tokenizer.apply_chat_template(messages, tools=tools, add_generation_prompt=True, return_dict=False)
        return np.array(ids, np.int64)
