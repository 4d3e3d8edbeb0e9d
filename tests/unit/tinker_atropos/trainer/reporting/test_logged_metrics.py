from collections import Counter

import pytest

from rl_contract.logged_metrics import METRICS, describe
from tinker_atropos.environments.items.held_out import fraction_metrics
from tinker_atropos.environments.runner.reporting.counters import Counters
from tinker_atropos.trainer.data.step_counts import StepCounts


def test_the_table_has_one_row_per_name_and_no_row_is_empty() -> None:
    assert Counter(metric.name for metric in METRICS).most_common(1)[0][1] == 1
    assert all(metric.unit and metric.meaning for metric in METRICS)


@pytest.mark.parametrize(
    ("name", "source"),
    [
        ("sort_digits_0_train/percent_correct", "environment"),
        ("gsm8k_3_eval/percent_correct_low", "environment"),
        ("env/groups_filtered_equal", "runner"),
        ("env_2/groups_filtered_equal", "runner"),
        ("logprobs/kl_v2", "trainer"),
    ],
)
def test_names_are_found(name: str, source: str) -> None:
    assert describe(name).source == source


def test_undescribed_names_are_not_found() -> None:
    assert describe("logprobs/new") is None


async def test_everything_the_trainer_counts_is_in_the_table(inference) -> None:
    progress = StepCounts(total=10, rebuilds=1)
    names = [*inference.generator.metrics(), *progress.metrics()]
    assert {"tokens/sampled", "backend/rebuilds"} <= set(names)
    assert [name for name in names if describe(name) is None] == []


def test_everything_runner_and_evaluation_report_is_in_the_table() -> None:
    names = [*Counters().take_metrics(), *fraction_metrics(0.5, 8)]
    assert names
    assert [name for name in names if describe(name) is None] == []
