"""The table of losses, against what the backend, the SDK and the documentation say."""

from pathlib import Path
from typing import get_args

import pytest
from tinker import types

from rl_contract.policy_losses import POLICY_LOSSES, LossName
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.tinker_service.model.losses import LOSSES
from tinker_atropos.trainer.data.datums import loss_config

DOCUMENTED = Path("docs/explanation/training.md").read_text(encoding="utf-8")


def test_each_loss_has_a_row_and_the_sdk_knows_it() -> None:
    assert set(POLICY_LOSSES) == set(get_args(LossName))
    assert set(POLICY_LOSSES) <= set(get_args(types.LossFnType))


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_what_the_trainer_sends_is_what_the_service_takes(name: LossName) -> None:
    row, of_service = POLICY_LOSSES[name], LOSSES[name]
    assert set(loss_config(TrainerSettings(loss=name)) or {}) == set(of_service.settings)
    assert row.marks_sequence == ("sequence_ratio_mask" in of_service.required)


@pytest.mark.parametrize("name", POLICY_LOSSES)
def test_the_documentation_has_its_formula_and_source(name: LossName) -> None:
    row = POLICY_LOSSES[name]
    (line,) = (line for line in DOCUMENTED.splitlines() if line.startswith(f"| `{name}` | {row.formula} |"))
    assert row.source.split()[0] in line
    for clip in (row.clips.low, row.clips.high) if row.clips else ():
        assert f"{clip:g}" in line
