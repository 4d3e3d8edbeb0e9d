from typing import Any

import pytest
from tests.unit.rl_operator.samples import CATALOG, TINY, catalog_of, make_run, make_runtime

from rl_operator.api.sections import effective_sections, same_value


def test_later_layers_win() -> None:
    toy = catalog_of({"name": "color", "type": "str", "default": "own"}).named("toy")
    runtime = make_runtime(
        defaults={"env": {"total_steps": 20, "group_size": 5, "batch_size": 5, "color": "default"}},
        locked={"env": {"batch_size": 10}},
    )
    run = make_run(environment="toy", config={"group_size": 2, "batch_size": 3})
    assert effective_sections(run, runtime, toy).env == {
        "batch_size": 10,  # locked
        "color": "default",
        "group_size": 2,  # the run's
        "max_token_length": 64,  # the environment's own
        "tokenizer_name": "bundled",
        "total_steps": 20,  # the runtime's default
    }


def test_the_environments_own_values_are_not_written_out() -> None:
    toy = catalog_of({"name": "color", "type": "str", "default": "own"}).named("toy")
    assert "color" not in effective_sections(make_run(), make_runtime(), toy).env


def test_runtime_values_for_fields_of_other_environments_are_left_out() -> None:
    toy = catalog_of().named("toy")
    runtime = make_runtime(defaults={"env": {"max_agent_turns": 30}}, locked={"env": {"terminal_timeout": 120}})
    assert effective_sections(make_run(), runtime, toy).env.keys() == {
        "batch_size", "group_size", "max_token_length", "tokenizer_name", "total_steps",
    }  # fmt: skip


def test_wired_values_are_ignored() -> None:
    runtime = make_runtime(
        locked={
            "env": {"rollout_server_url": "http://x"},
            "openai": {"base_url": "http://x", "api_key": "x", "weight": 1},
            "trainer": {"checkpoint_dir": "./temp/"},
        }
    )
    sections = effective_sections(make_run(), runtime, CATALOG.named("sort_digits"))
    assert "rollout_server_url" not in sections.env
    assert sections.openai == {"weight": 1}
    assert sections.trainer == {}


def test_keys_are_sorted() -> None:
    sections = effective_sections(make_run(config={"a": 1, "A": 2}), TINY, CATALOG.named("sort_digits"))
    assert list(sections.env) == sorted(sections.env)


@pytest.mark.parametrize(
    ("left", "right", "same"),
    [
        (1, 1.0, True),
        (True, 1, False),
        (0, False, False),
        (True, True, True),
        (None, None, True),
        (None, 0, False),
        ("1", 1, False),
        ([1, {"a": 2}], [1.0, {"a": 2.0}], True),
        ([1], [1, 2], False),
        ({"a": 1}, {"a": True}, False),
        ({"a": 1}, {"b": 1}, False),
    ],
)
def test_same_value(left: Any, right: Any, same: bool) -> None:
    assert same_value(left, right) is same
    assert same_value(right, left) is same


def test_the_order_of_keys_does_not_matter_at_any_depth() -> None:
    toy = catalog_of({"name": "mix", "type": "dict", "default": {}}).named("toy")
    one, other = ({"a": [{"x": 1, "y": 2}], "b": 3}, {"b": 3, "a": [{"y": 2, "x": 1}]})
    texts = {
        str(effective_sections(make_run(environment="toy", config={"mix": value}), make_runtime(), toy))
        for value in (one, other)
    }
    assert len(texts) == 1
