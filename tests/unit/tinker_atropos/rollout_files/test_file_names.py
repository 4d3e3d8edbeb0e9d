import pytest
from hypothesis import given
from hypothesis import strategies as st

from tinker_atropos.rollout_files.file_names import StepFile, is_rollout_file, metrics_name, parse_name


@given(st.integers(0, 10**12 - 1), st.integers(1, 10**9 - 1))
def test_a_name_says_the_step_and_the_attempt(step, attempt) -> None:
    assert parse_name(StepFile(step, attempt).name) == StepFile(step, attempt)
    assert is_rollout_file(metrics_name(attempt))
    assert parse_name(metrics_name(attempt)) is None


@pytest.mark.parametrize(
    "name",
    [
        "",
        "12-1.jsonl.zst",
        "000012.jsonl.zst",
        "000012-1.jsonl",
        "000012-1.jsonl.zst\n",
        "000012-1.jsonl.zst.tmp",
        "../000012-1.jsonl.zst",
        "/000012-1.jsonl.zst",
        "metrics-1.jsonl.zst/..",
        "metrics-.jsonl.zst",
        "٠٠٠٠١٢-1.jsonl.zst",
    ],
)
def test_other_files(name) -> None:
    assert parse_name(name) is None
    assert not is_rollout_file(name)
