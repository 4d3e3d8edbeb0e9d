"""Tokens of conversations, with random templates, turns and tokenizers."""

from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer

from rl_contract.bundled import bundled_model_folder
from tinker_atropos.environments.rollout.conversation import Conversation, Output
from tinker_atropos.environments.rollout.rollouts import Rollout, scored_group

START, END = "<s>", "<e>"
PIECES = [START, END, "a", "b", "ab", "ba", "aab", " ", "!", ":", "\n", "(", ")", "x"]
SPECIAL = {0, 1}
END_ID = 1


@dataclass(frozen=True)
class ToyTokenizer:
    """Reads the longest piece first, so that most texts have tokenizations that it would never produce itself.

    Like real templates: `open_turn` and `close_turn` surround a content, `strips` drops spaces around it, and
    `drops_thoughts` drops `(…)` from all answers but the last message.
    """

    open_turn: str = START + "x:"
    close_turn: str = END + "\n"
    strips: bool = False
    drops_thoughts: bool = False

    def encode(self, text: str, **_: Any) -> list[int]:
        ids = []
        while text:
            piece = max((piece for piece in PIECES if text.startswith(piece)), key=len)
            ids.append(PIECES.index(piece))
            text = text[len(piece) :]
        return ids

    def decode(self, ids: list[int], *, skip_special_tokens: bool = False, **_: Any) -> str:
        return "".join(PIECES[token] for token in ids if not (skip_special_tokens and token in SPECIAL))

    def apply_chat_template(self, messages, *, add_generation_prompt: bool, tokenize: bool = True, **_: Any) -> Any:
        text = "".join(self._turn(message, last=message is messages[-1]) for message in messages)
        text += self.open_turn if add_generation_prompt else ""
        return self.encode(text) if tokenize else text

    def _turn(self, message: dict[str, Any], *, last: bool) -> str:
        content = message["content"]
        if self.drops_thoughts and message["role"] == "assistant" and not last:
            content = content[content.rfind(")") + 1 :]
        return self.open_turn + (content.strip() if self.strips else content) + self.close_turn


contents = st.text("ab !", max_size=6)
tokenizers = st.builds(
    ToyTokenizer,
    open_turn=st.sampled_from([START + "x:", "x:", ""]),
    close_turn=st.sampled_from([END + "\n", END, "\n", "!", ""]),
    strips=st.booleans(),
    drops_thoughts=st.booleans(),
)
outputs = st.builds(
    lambda tokens, end: Output([*tokens, END_ID] if end else tokens, []),
    st.lists(st.integers(0, len(PIECES) - 1), min_size=1, max_size=5),
    st.booleans(),
)
turns = st.lists(st.tuples(outputs, contents), min_size=1, max_size=5)


def talk(tokenizer, script):
    """Play the script; also returns each prompt with the output that was sampled from it, logprobs all different."""
    conversation = Conversation(tokenizer, [{"role": "user", "content": "a b"}])
    asked: list[tuple[list[int], Output]] = []
    for number, (spoken, reply) in enumerate(script):
        output = Output(spoken.tokens, [-1.0 - number - at / 100 for at in range(len(spoken.tokens))])
        asked.append((conversation.prompt, output))
        conversation.answered(output)
        conversation.told({"role": "user", "content": reply})
    return conversation, asked


@given(tokenizers, turns)
def test_every_generated_token_follows_its_prompt_once_with_its_own_logprob(tokenizer, script) -> None:
    conversation, asked = talk(tokenizer, script)
    sampled = [
        (token, logprob) for _, output in asked for token, logprob in zip(output.tokens, output.logprobs, strict=True)
    ]
    trained = [
        (token, logprob)
        for sequence in conversation.sequences
        for token, mask, logprob in zip(sequence.tokens, sequence.masks, sequence.logprobs, strict=True)
        if mask != -100
    ]
    assert trained == sampled
    for sequence in conversation.sequences:
        assert all(mask in (-100, token) for token, mask in zip(sequence.tokens, sequence.masks, strict=True))
        assert all(
            (mask == -100) == (logprob == 1.0) for mask, logprob in zip(sequence.masks, sequence.logprobs, strict=True)
        )
    for prompt, output in asked:
        whole = [*prompt, *output.tokens]
        assert any(sequence.tokens[: len(whole)] == whole for sequence in conversation.sequences)


@given(tokenizers, turns)
def test_the_next_prompt_is_what_the_template_renders(tokenizer, script) -> None:
    conversation, _ = talk(tokenizer, script)
    rendered = tokenizer.apply_chat_template(conversation.messages, add_generation_prompt=True, tokenize=False)
    assert tokenizer.decode(conversation.prompt) == rendered


@given(turns)
def test_one_sequence_if_the_template_only_appends(script) -> None:
    spoken = [
        (Output([token for token in output.tokens if token not in SPECIAL] or [2], []), reply)
        for output, reply in script
    ]
    ended = [(Output([*output.tokens, END_ID], []), reply) for output, reply in spoken]
    for each in (spoken, ended):  # cut at the limit, and ended by the policy
        conversation, _ = talk(ToyTokenizer(), each)
        assert len(conversation.sequences) == 1
        assert END + END not in ToyTokenizer().decode(conversation.prompt)


def test_dropped_thoughts_start_another_sequence() -> None:
    tokenizer = ToyTokenizer(drops_thoughts=True)
    thought = Output(tokenizer.encode("(a)b" + END), [])
    plain = Output(tokenizer.encode("ab" + END), [])
    conversation, asked = talk(tokenizer, [(thought, "a"), (plain, "b"), (plain, "a")])
    assert len(conversation.sequences) == 2
    assert "(" not in tokenizer.decode(asked[1][0])
    assert conversation.sequences[0].tokens == [*asked[0][0], *thought.tokens]
    assert conversation.sequences[1].tokens == [*asked[2][0], *plain.tokens]


def test_the_bundled_template_continues_from_noncanonical_tokens_too() -> None:
    tokenizer = AutoTokenizer.from_pretrained(str(bundled_model_folder()))
    conversation = Conversation(tokenizer, [{"role": "user", "content": "sort 4 1 3 2"}])
    answer = [*(tokenizer.convert_tokens_to_ids(letter) for letter in "sort"), tokenizer.eos_token_id]
    assert tokenizer.encode("sort") != answer[:-1]
    conversation.answered(Output(answer, [-1.0] * len(answer)))
    conversation.told({"role": "user", "content": "no"})
    conversation.answered(Output([tokenizer.eos_token_id], [-2.0]))
    (sequence,) = conversation.sequences
    assert tokenizer.decode(sequence.tokens) == (
        "<|im_start|>user\nsort 4 1 3 2<|im_end|>\n<|im_start|>assistant\nsort<|im_end|>\n"
        "<|im_start|>user\nno<|im_end|>\n<|im_start|>assistant\n<|im_end|>"
    )
    assert [mask for mask in sequence.masks if mask != -100] == [*answer, tokenizer.eos_token_id]


def test_groups_say_which_rollout_their_sequences_belong_to() -> None:
    thought, plain = Output([11, 2, 12, 3, END_ID], [-1.0] * 5), Output([3, END_ID], [-1.0] * 2)
    several, _ = talk(ToyTokenizer(drops_thoughts=True), [(thought, "a"), (plain, "b")])
    one, _ = talk(ToyTokenizer(), [(plain, "a")])
    group = scored_group([Rollout(several.sequences, 0.5), Rollout(one.sequences, 1.0)])
    assert group["scores"] == [0.5, 0.5, 1.0]
    assert group["group_overrides"] == {"group_size": 3, "rollouts": [0, 0, 1]}
    assert len(group["tokens"]) == len(group["masks"]) == len(group["inference_logprobs"]) == 3
    assert "group_overrides" not in scored_group([Rollout(one.sequences, 1.0)])
