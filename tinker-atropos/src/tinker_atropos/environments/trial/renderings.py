"""From a rendered prompt back to the messages that it was made of.

Environments render prompts with the tokenizer of the model that they train, and ask for tokens or text that follow. A
provider serves other models, with templates of their own: it must get the messages.
"""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

MAX_RENDERINGS = 10_000

Message = Mapping[str, Any]


class Renderings:
    """Remembers what an environment's tokenizer renders: its `apply_chat_template` is replaced on the instance."""

    def __init__(self, tokenizer: Any) -> None:
        self._tokenizer = tokenizer
        self._render = tokenizer.apply_chat_template
        self._messages: OrderedDict[str, list[Message]] = OrderedDict()
        tokenizer.apply_chat_template = self._rendered

    def messages_of(self, text: str) -> list[Message] | None:
        """The messages that were rendered as this text; None: none were."""
        return self._messages.get(text)

    def _rendered(self, conversation: Any, *args: Any, **kwargs: Any) -> Any:
        answer = self._render(conversation, *args, **kwargs)
        text = answer if isinstance(answer, str) else self._decoded(answer)
        if text is not None and isinstance(conversation, Sequence):
            self._messages[text] = [dict(message) for message in conversation]
            while len(self._messages) > MAX_RENDERINGS:
                self._messages.popitem(last=False)
        return answer

    def _decoded(self, answer: Any) -> str | None:
        """Of a list of token ids; batches, mappings and tensors are nobody's prompt here."""
        if not (isinstance(answer, list) and all(isinstance(token, int) for token in answer)):
            return None
        return str(self._tokenizer.decode(answer, skip_special_tokens=False))
