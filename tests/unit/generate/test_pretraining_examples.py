"""Examples look to the model as environments render them, and their mistakes are mistakes."""

import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from generate.pretraining_batches import IGNORED, TokenizedTask
from generate.pretraining_examples import TOOL_FORMAT, Calculation, PretrainingTask, SingleAnswer, misread
from rl_contract.bundled import BUNDLED, resolve_tokenizer
from tinker_atropos.chat.chat_rendering import chat_renderer
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.environments.bundled import arithmetic

ITEM = (37, "*", 48)
ITEMS = st.sampled_from(arithmetic.split().pretraining)
SEEDED = st.integers(0, 10**6).map(random.Random)


@pytest.fixture(scope="module")
def pretrained_tokenizer() -> PreTrainedTokenizerFast:
    made: PreTrainedTokenizerFast = AutoTokenizer.from_pretrained(resolve_tokenizer(BUNDLED))
    return made


def test_a_calculation_has_the_tokens_of_a_chat_with_tools(pretrained_tokenizer: PreTrainedTokenizerFast) -> None:
    """Every prompt of an environment begins with what the model wrote before, token by token."""
    example = Calculation(ITEM)
    call = {"name": arithmetic.TOOL_NAME, "arguments": json.dumps({arithmetic.ARGUMENT: "37 * 48"})}
    called = {"role": "assistant", "content": None, "tool_calls": [{"id": "1", "type": "function", "function": call}]}
    chat = [*example.messages(), called, {"role": "tool", "tool_call_id": "1", "content": "1776"}]
    prompt = chat_renderer(Tokenizer.of(pretrained_tokenizer), BUNDLED).ids(chat, [arithmetic.TOOL]).tolist()

    batch = TokenizedTask(
        pretrained_tokenizer, PretrainingTask("calculator", [Calculation((12, "-", 34))], [example])
    ).held_out()

    answer = pretrained_tokenizer.encode("1776", add_special_tokens=False)
    assert [*batch.shared_1S[0].tolist(), *batch.inputs_BT[0].tolist()] == [*prompt, *answer]
    learned = pretrained_tokenizer.decode([token for token in batch.targets_BT[0].tolist() if token != IGNORED])
    assert learned == "".join(f"{''.join(turn.pieces)}<|im_end|>" for turn in example.right())


@given(ITEMS)
def test_right_calculations_are_right(item: arithmetic.Item) -> None:
    called, repeated = Calculation(item).right()
    (call,) = TOOL_FORMAT.parse("".join(called.pieces), [arithmetic.TOOL]).calls
    assert json.loads(call.arguments) == {arithmetic.ARGUMENT: arithmetic.expression(item)}
    assert called.reply == {"role": "tool", "content": arithmetic.answer(item)}
    assert arithmetic.is_right(item, "".join(repeated.pieces))


@given(ITEMS, SEEDED)
def test_mistakes_are_well_formed(item: arithmetic.Item, rng: random.Random) -> None:
    *calls, last = Calculation(item).wrong(rng)
    assert not arithmetic.is_right(item, "".join(last.pieces)) or 0 in (item[0] % 10, item[2] % 10)
    for turn in calls:
        (call,) = TOOL_FORMAT.parse("".join(turn.pieces), [arithmetic.TOOL]).calls
        assert turn.reply == {"role": "tool", "content": arithmetic.compute(**json.loads(call.arguments))}


@given(st.integers(), SEEDED)
def test_misread_changes_one_digit(number: int, rng: random.Random) -> None:
    other = misread(str(number), rng)
    assert len(other) == len(str(number))
    assert sum(one != another for one, another in zip(str(number), other, strict=True)) == 1


def test_a_single_answer_is_said_in_pieces() -> None:
    example = SingleAnswer("spell cat", "tac", "Answer.", ("<answer>", "</answer>"))
    assert [message["role"] for message in example.messages()] == ["system", "user"]
    assert [turn.pieces for turn in example.right()] == [["<answer>", "t", "a", "c", "</answer>"]]
    (wrong,) = example.wrong(random.Random(0))
    assert wrong.pieces != example.right()[0].pieces
    assert sorted(wrong.pieces) == sorted(example.right()[0].pieces)
