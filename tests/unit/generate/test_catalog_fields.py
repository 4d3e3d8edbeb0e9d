"""The operator's check of an environment's fields and the environment itself draw the same line."""

import string
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.rl_operator.samples import CATALOG

from rl_operator.api.catalog import EnvironmentField
from rl_operator.check.field_rules import constraint_problem, type_problem
from tinker_atropos.environments.bundled.sort_digits import SortDigits
from tinker_atropos.environments.runner.loading.environment_config import overlay
from tinker_atropos.errors import ConfigError

FIELDS = CATALOG.named("sort_digits").fields
numbers = (
    st.integers()
    | st.integers(-2, 40_000)
    | st.floats(allow_nan=False, allow_infinity=False).filter(lambda x: not x.is_integer())
)
texts = st.text(st.sampled_from(string.printable), max_size=6) | st.sampled_from(["STOP_TRAIN", "NONE", "none"])
values = st.recursive(
    st.none() | st.booleans() | numbers | texts, lambda inner: st.lists(inner, max_size=2), max_leaves=3
)


@settings(max_examples=600, deadline=None)
@given(st.sampled_from(FIELDS), values)
def test_the_bundled_environment_accepts_exactly_what_the_check_accepts(field: EnvironmentField, value: Any) -> None:
    accepted = not (type_problem(value, field.type, field.choices) or constraint_problem(value, field))
    config, _ = SortDigits.config_init()
    try:
        overlay(config, {field.name: value}, {}, "env")
    except ConfigError:
        assert not accepted
    else:
        assert accepted
