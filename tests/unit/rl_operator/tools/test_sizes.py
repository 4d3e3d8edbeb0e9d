from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rl_operator.tools.answers.shown_text import KEPT, SHORTEST, compact, fit_tokens, tokens

TEXTS = st.text(max_size=400)
ANSWERS = st.dictionaries(
    st.sampled_from(["message", "failure", "refusals", "step"]),
    TEXTS | st.integers() | st.lists(st.dictionaries(st.sampled_from(["hint", "code"]), TEXTS, max_size=2), max_size=3),
)


def test_the_longest_text_is_cut_first() -> None:
    answer = {"run_id": "r" * 52, "message": "m" * 500, "failure": {"message": "f" * 100}, "step": 3}
    small = fit_tokens(answer, 100)
    assert tokens(small) <= 100
    assert small | {"message": ""} == answer | {"message": ""}
    assert small["message"].endswith("m…")


def test_small_answers_are_unchanged() -> None:
    answer = {"message": "short", "list": [1, {"hint": "x"}]}
    assert fit_tokens(answer, 100) == answer


@given(ANSWERS)
def test_any_answer_fits_unless_its_texts_are_already_short(answer: dict[str, Any]) -> None:
    small = fit_tokens(answer, 120)
    assert tokens(small) <= 120 or all(len(text) <= SHORTEST for text in _texts(small))
    assert compact(small)


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for name, each in value.items() if name not in KEPT for text in _texts(each)]
    return [text for each in value for text in _texts(each)] if isinstance(value, list) else []
