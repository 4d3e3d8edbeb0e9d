"""The table of losses, against what the SDK and the documentation say."""

from pathlib import Path
from typing import get_args

import pytest
from tinker import types

from rl_contract.policy_losses import POLICY_LOSSES, LossName

DOCUMENTED = Path("docs/explanation/training.md").read_text(encoding="utf-8")


def test_each_loss_has_a_row_and_the_sdk_knows_it() -> None:
    assert set(POLICY_LOSSES) == set(get_args(LossName))
    assert set(POLICY_LOSSES) <= set(get_args(types.LossFnType))


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_the_documentation_has_its_formula_and_source(name: LossName) -> None:
    row = POLICY_LOSSES[name]
    (line,) = (line for line in DOCUMENTED.splitlines() if line.startswith(f"| `{name}` | {row.formula} |"))
    assert row.source.split()[0] in line
    for clip in (row.clips.low, row.clips.high) if row.clips else ():
        assert f"{clip:g}" in line
