from pathlib import Path

import pytest
from tests.unit.rl_operator.samples import DEFAULT, TINY, inputs_of, make_run

from rl_operator.check.run_check import check_run
from rl_operator.documents.shipped import bundled_runtime_text, bundled_runtimes


def test_default_locks_what_the_platform_always_locked() -> None:
    locked = DEFAULT.spec.locked
    assert locked.env["tokenizer_name"] == locked.openai["model_name"] == "Qwen/Qwen3-8B"
    assert (locked.env["total_steps"], locked.env["max_token_length"], locked.env["steps_per_eval"]) == (2500, 8192, 25)
    assert (locked.trainer["lora_rank"], locked.trainer["learning_rate"]) == (32, 4e-5)


def test_tiny_locks_only_the_model() -> None:
    assert TINY.spec.locked.env == {"tokenizer_name": "bundled"}
    assert TINY.spec.locked.trainer == {}


@pytest.mark.parametrize("name", ["default", "tiny"])
def test_a_run_that_sets_nothing_is_accepted(name: str) -> None:
    run = make_run(runtime=name)
    assert check_run(run, inputs_of(run, bundled_runtimes()[name])) == ()


@pytest.mark.parametrize("name", ["default", "tiny"])
def test_the_example_is_the_shipped_runtime(name: str) -> None:
    assert Path(f"examples/runtime-{name}.yaml").read_text() == bundled_runtime_text(name)
