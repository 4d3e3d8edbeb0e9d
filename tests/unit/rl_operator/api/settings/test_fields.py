"""The two packages share no code, but they must know the same fields."""

from rl_operator.api.settings.fields import LARGEST, SHARED_FIELDS, SMALLEST, TINKER_FIELDS, WIRED_FIELDS
from rl_operator.check.types import type_problem
from tinker_atropos.config.policy_losses import POLICY_LOSSES
from tinker_atropos.config.shared_env import SharedEnvSection
from tinker_atropos.config.tinker_section import TinkerSection


def test_the_trainer_fields_match_the_trainer() -> None:
    wired = {name for section, name in WIRED_FIELDS if section == "tinker"} & TinkerSection.model_fields.keys()
    assert TINKER_FIELDS.keys() | wired == TinkerSection.model_fields.keys()


def test_defaults_are_the_trainers() -> None:
    for name, field in TINKER_FIELDS.items():
        assert field.default == TinkerSection.model_fields[name].default, name


def test_the_losss_own_thresholds_are_described_as_the_trainer_has_them() -> None:
    for side in ("low", "high"):
        clips = {loss: row.clips for loss, row in POLICY_LOSSES.items() if row.clips}
        told = ", ".join(f"{loss} {getattr(own, side):g}" for loss, own in clips.items())
        assert TINKER_FIELDS[f"clip_{side}_threshold"].description.endswith(f"null: {told}")


def test_types_accept_what_the_trainer_accepts() -> None:
    values = [1, 2.5, True, None, "auto", "ppo", "cispo", "gspo", "dppo", "group_centered", "recompute", "other", [1]]
    for name, field in TINKER_FIELDS.items():
        annotation = str(TinkerSection.model_fields[name].annotation)
        annotation = annotation.removeprefix("<class '").removesuffix("'>").replace("typing.", "")
        assert [type_problem(v, field.type) is None for v in values] == [
            type_problem(v, annotation) is None for v in values
        ], name


def test_the_shared_fields_are_the_ones_the_trainer_requires() -> None:
    required = {name for name, field in SharedEnvSection.model_fields.items() if field.is_required()}
    assert set(SHARED_FIELDS) == required


def test_every_number_has_a_range_and_the_trainer_takes_its_ends() -> None:
    assert LARGEST.keys() == SMALLEST.keys()
    numbers = {
        ("tinker", name) for name, field in TINKER_FIELDS.items() if field.type.partition(" | ")[0] in ("int", "float")
    }
    assert {key for key in LARGEST if key[0] == "tinker"} == numbers
    shared = {"tokenizer_name": "t", "total_steps": 1, "group_size": 1, "batch_size": 1, "max_token_length": 1}
    SharedEnvSection(**shared | {name: largest for (section, name), largest in LARGEST.items() if section == "env"})
    TinkerSection(**{name: largest for (section, name), largest in LARGEST.items() if section == "tinker"})
