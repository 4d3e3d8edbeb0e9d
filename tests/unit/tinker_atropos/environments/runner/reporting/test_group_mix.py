from tinker_atropos.environments.runner.reporting.counters import Counters
from tinker_atropos.environments.runner.reporting.group_mix import RECENT, GroupMix, has_full_reward
from tinker_atropos.trainer.reporting.metric_table import describe


def test_every_group_that_was_made_counts_sent_or_not() -> None:
    counters = Counters()
    counters.scored([1.0, 1.0])
    counters.was_filtered("equal", 10)
    for rewards in ([0.0, 0.0], [1.0, 0.0], [0.9, 0.1]):
        counters.scored(rewards)
    metrics = counters.take_metrics()
    mix = {name: value for name, value in metrics.items() if name.startswith("env/groups_all") or "mixed" in name}
    assert mix == {"env/groups_all_right": 0.25, "env/groups_all_wrong": 0.5, "env/groups_mixed": 0.25}
    assert [name for name in metrics if describe(name) is None] == []


def test_the_environment_says_what_is_right() -> None:
    mix = GroupMix()
    mix.add([0.5, 0.6], lambda reward: reward >= 0.5)
    assert mix.to_metrics()["env/groups_all_right"] == 1.0


def test_only_recent_groups_count_and_empty_ones_do_not() -> None:
    mix = GroupMix()
    assert mix.to_metrics() == {}
    mix.add([], has_full_reward)
    assert mix.to_metrics() == {}
    mix.add([0.0], has_full_reward)
    for _ in range(RECENT):
        mix.add([1.0], has_full_reward)
    assert mix.to_metrics() == {"env/groups_all_right": 1.0, "env/groups_all_wrong": 0.0, "env/groups_mixed": 0.0}
