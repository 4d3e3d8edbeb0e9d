"""The settings of the trainer: what every entry must say, and what is derived from them."""

import pytest

from rl_contract.policy_losses import POLICY_LOSSES
from rl_contract.setting_rows import Setting, settings_of
from rl_contract.shared_env import SharedEnvSection
from rl_contract.trainer_settings import TrainerSettings

SETTINGS = settings_of(TrainerSettings)
NUMBERS = [each for each in SETTINGS.values() if each.type.partition(" | ")[0] in ("int", "float")]


@pytest.mark.parametrize("setting", SETTINGS.values(), ids=SETTINGS)
def test_each_setting_is_described(setting: Setting) -> None:
    assert setting.description
    assert not setting.required


@pytest.mark.parametrize("setting", NUMBERS, ids=lambda each: each.name)
def test_every_number_has_a_range_and_its_ends_are_taken(setting: Setting) -> None:
    assert setting.smallest is not None
    assert setting.largest is not None
    set_to(setting, setting.largest)
    if not setting.smallest.exclusive:
        set_to(setting, setting.smallest.value)


def set_to(setting: Setting, value: object) -> None:
    """Raises ValidationError if the setting does not take the value."""
    outer, _, inner = setting.name.rpartition(".")
    TrainerSettings.model_validate({outer: {inner: value}} if outer else {inner: value})


def test_defaults_are_valid() -> None:
    for setting in SETTINGS.values():
        set_to(setting, setting.default)


def test_clips_are_described_as_the_losses_have_them() -> None:
    for side in ("low", "high"):
        clips = {loss: row.clips for loss, row in POLICY_LOSSES.items() if row.clips}
        told = ", ".join(f"{loss} {getattr(own, side):g}" for loss, own in clips.items())
        setting = SETTINGS[f"clip_{side}_threshold"]
        assert setting.description.endswith(f"null: {told}")
        assert set(setting.losses) == set(clips)


def test_a_shared_number_has_a_range() -> None:
    shared = settings_of(SharedEnvSection)
    assert all(each.smallest and each.largest for each in shared.values() if each.type == "int")
    assert [name for name, each in shared.items() if each.required] == [
        "total_steps",
        "group_size",
        "batch_size",
        "tokenizer_name",
        "max_token_length",
    ]
