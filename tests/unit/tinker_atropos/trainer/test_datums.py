import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos import wire
from tinker_atropos.trainer.advantages import group_centred
from tinker_atropos.trainer.datums import build_batch
from tinker_atropos.trainer.ledger import UNKNOWN_STEP, Ledger, Sampled
from tinker_atropos.trainer.rollouts import Group


def group(**fields) -> Group:
    return Group.from_wire(wire.Group(**fields))


PAIR = {
    "tokens": [[11, 12, 13, 14], [11, 12, 15]],
    "masks": [[-100, -100, 13, 14], [-100, -100, 15]],
    "scores": [1.0, 0.0],
    "inference_logprobs": [[1.0, 1.0, -0.3, -0.4], [1.0, 1.0, -0.5]],
}


def test_a_group_by_hand() -> None:
    batch = build_batch([group(**PAIR)], group_centred, Ledger(), max_length=10)
    first, second = batch.datums
    assert first.input_T.tolist() == [11, 12, 13]
    assert first.target_T.tolist() == [12, 13, 14]
    assert first.logprobs_T.tolist() == [0.0, -0.3, -0.4]
    assert first.advantages_T.tolist() == [0.0, 0.5, 0.5]
    assert first.trained_T.tolist() == [False, True, True]
    assert first.policy_step_T.tolist() == [UNKNOWN_STEP] * 3
    assert second.target_T.tolist() == [12, 15]
    assert second.logprobs_T.tolist() == [0.0, -0.5]
    assert second.advantages_T.tolist() == [0.0, -0.5]
    assert batch.trained_tokens == 3


def test_what_is_left_out_is_counted_by_reason() -> None:
    equal = group(**{**PAIR, "scores": [1.0, 1.0]})
    without_logprobs = group(**{**PAIR, "inference_logprobs": None})
    batch = build_batch([group(**PAIR), equal, without_logprobs], group_centred, Ledger(), max_length=3)
    assert len(batch.datums) == 1
    assert batch.left_out == {"no_advantage": 2, "too_long": 2, "no_logprobs": 1}


def test_advantages_compare_with_the_whole_group_also_when_some_of_it_is_too_long() -> None:
    (short,) = build_batch([group(**PAIR)], group_centred, Ledger(), max_length=3).datums
    assert short.advantages_T.tolist() == [0.0, -0.5]


def test_the_ledger_fills_what_the_environment_dropped() -> None:
    ledger = Ledger()
    ledger.record(np.array([11, 12]), np.array([13, 14]), Sampled(np.array([-0.3, -0.4]), policy_step=5))
    batch = build_batch([group(**{**PAIR, "inference_logprobs": None})], group_centred, ledger, max_length=10)
    (datum,) = batch.datums
    assert datum.logprobs_T.tolist() == [0.0, -0.3, -0.4]
    assert datum.policy_step_T.tolist() == [UNKNOWN_STEP, 5, 5]
    assert batch.left_out["no_logprobs"] == 1


def test_a_sequence_with_nothing_generated_is_not_trained() -> None:
    nothing = group(tokens=[[1, 2], [1, 3]], masks=[[-100, -100], [-100, 3]], scores=[0.0, 1.0],
                    inference_logprobs=[[1.0, 1.0], [1.0, -1.0]])  # fmt: skip
    batch = build_batch([nothing], group_centred, Ledger(), max_length=10)
    assert len(batch.datums) == 1
    assert batch.left_out["no_logprobs"] == 1


@st.composite
def groups(draw: st.DrawFn) -> dict[str, list]:
    """Groups of several turns: the first token is always prompt, any later one may be generated."""
    size = draw(st.integers(2, 5))
    lengths = draw(st.lists(st.integers(2, 12), min_size=size, max_size=size))
    tokens = [draw(st.lists(st.integers(0, 500), min_size=length, max_size=length)) for length in lengths]
    generated = [[False, *draw(st.lists(st.booleans(), min_size=n - 1, max_size=n - 1))] for n in lengths]
    return {
        "tokens": tokens,
        "masks": [
            [token if mark else -100 for token, mark in zip(row, marks, strict=True)]
            for row, marks in zip(tokens, generated, strict=True)
        ],
        "scores": draw(st.lists(st.floats(-1, 1, width=16), min_size=size, max_size=size)),
        "inference_logprobs": [
            [draw(st.floats(-9, 0, width=16)) if mark else 1.0 for mark in marks] for marks in generated
        ],
    }


@given(groups())
def test_every_generated_token_is_trained_once_with_its_own_logprob_and_no_prompt_position_is(fields: dict) -> None:
    batch = build_batch([group(**fields)], group_centred, Ledger(), max_length=100)
    mean = float(np.mean(fields["scores"]))
    rows = list(zip(fields["tokens"], fields["masks"], fields["scores"], fields["inference_logprobs"], strict=True))
    mixed = any(score - mean for score in fields["scores"])
    trained_rows = [row for row in rows if mixed and any(mark != -100 for mark in row[1])]
    assert len(batch.datums) == len(trained_rows)
    for datum, (tokens, mask, score, logprobs) in zip(batch.datums, trained_rows, strict=True):
        assert datum.input_T.tolist() == tokens[:-1]
        assert datum.target_T.tolist() == tokens[1:]
        for position in range(1, len(tokens)):
            is_generated = mask[position] != -100
            assert datum.trained_T[position - 1] == is_generated
            assert datum.logprobs_T[position - 1] == (logprobs[position] if is_generated else 0.0)
            expected = score - mean if is_generated else 0.0
            np.testing.assert_allclose(datum.advantages_T[position - 1], expected, atol=1e-12)
    assert batch.trained_tokens == sum(int(mark != -100) for row in trained_rows for mark in row[1])
