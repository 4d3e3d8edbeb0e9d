import pytest
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone

from tinker_atropos.environments.base import Rollout
from tinker_atropos.environments.items.held_out import wilson_interval
from tinker_atropos.environments.items.held_out_sets import (
    MOST_SETS,
    PlayedItem,
    evaluation_of,
    items_to_play,
    named_sets,
)
from tinker_atropos.environments.rollout.sampled_work import _greedy, sampling
from tinker_atropos.errors import ConfigError


def played(sets: str, rewards: list[float], greedy: list[float] = []) -> PlayedItem[str]:  # noqa: B006 -- only read
    return PlayedItem(
        "x", tuple(sets.split()), [Rollout([], each) for each in rewards], [Rollout([], each) for each in greedy]
    )


def is_right(reward: float) -> bool:
    return reward >= 1


def test_an_object_in_several_sets_is_played_once():
    first, second, third = ["a"], ["b"], ["b"]
    sets = {"main": [first, second, first], "hard": (second, third, first), "more": [first, first, first]}
    assert items_to_play(sets, 3) == [
        (first, ("main", "hard", "more")),
        (second, ("main", "hard")),
        (first, ("main", "more")),
        (third, ("hard",)),
        (first, ("more",)),
    ]
    assert items_to_play(sets, 1) == [(first, ("main", "more")), (second, ("hard",))]


def test_equal_items_that_are_made_again_each_time_stay_apart():
    """Nothing says that they are the same to the environment."""
    many = range(1_000, 2_000)
    assert [sets for _, sets in items_to_play({"main": many, "hard": many}, 2)] == [("main",)] * 2 + [("hard",)] * 2


@pytest.mark.parametrize("name", ["main", "", "a/b", "Hard", "two words", "x" * 41, "n%", "a\n", 3])
def test_names_that_metrics_cannot_have_are_refused(name):
    with pytest.raises(ConfigError, match=r"^Mine\.held_out_sets\(\) has a set named .*; rename it$"):
        named_sets(["a"], {"hard": ["b"], name: ["c"]}, "Mine")


def test_the_number_of_sets_is_bounded():
    assert len(named_sets([], {f"s{each}": [] for each in range(MOST_SETS)}, "Mine")) == 1 + MOST_SETS
    with pytest.raises(ConfigError, match=r"^Mine\.held_out_sets\(\) has 17 sets; 16 are allowed besides"):
        named_sets([], {f"s{each}": [] for each in range(MOST_SETS + 1)}, "Mine")


def test_each_set_has_its_figures():
    items = [
        played("main hard", [1, 0, 0, 0], greedy=[0]),
        played("main", [1, 1, 0.5, 1], greedy=[1]),
        played("main", [1, 1], greedy=[]),
        played("hard", [0, 0, 0, 0], greedy=[1]),
        played("main empty", []),
    ]
    evaluation = evaluation_of(items, is_right, "eval/percent_correct", samples=4)
    metrics = evaluation.to_metrics()
    values = {name: value for name, value in metrics.items() if not name.endswith(("_low", "_high"))}
    assert values == pytest.approx({
        "eval/percent_correct": 6 / 10,
        "eval/n": 10,
        "eval/pass_at_2": (1 / 2 + 1 + 1) / 3,
        "eval/pass_at_4": 1.0,
        "eval/greedy_percent_correct": 1 / 2,
        "eval/hard/percent_correct": 1 / 8,
        "eval/hard/n": 8,
        "eval/hard/pass_at_2": 1 / 4,
        "eval/hard/pass_at_4": 1 / 2,
        "eval/hard/greedy_percent_correct": 1 / 2,
    })  # fmt: skip
    fractions = {name for name in values if not name.endswith("/n")}
    assert {*metrics} == {*values, *(f"{name}{end}" for name in fractions for end in ("_low", "_high"))}
    assert (metrics["eval/greedy_percent_correct_low"], metrics["eval/greedy_percent_correct_high"]) == pytest.approx(
        wilson_interval(1, 2)
    )


def test_what_is_worth_more_than_right_or_wrong_has_no_pass_at_k_and_no_interval_outside_of_0_to_1():
    items = [played("main hard", [2.0, 3.0]), played("main", [-3.0, -1.0])]
    assert evaluation_of(items, float, "eval/mean_reward").to_metrics().keys() == {
        "eval/mean_reward", "eval/mean_reward_low", "eval/mean_reward_high", "eval/n",
        "eval/hard/mean_reward", "eval/hard/n",
    }  # fmt: skip


def test_without_the_main_set_there_is_no_evaluation():
    with pytest.raises(ValueError, match="at least one sample"):
        evaluation_of([played("main", []), played("hard", [1])], is_right, "eval/percent_correct", samples=1)


class Sets(Capitals):
    answers = ("C", "x")
    letters = ("c", "d", "e")

    def held_out_items(self):
        return self.letters[:2]

    def held_out_sets(self):
        return {"late": self.letters[1:], "none": ()}

    async def generate(self, prompt, n, split):
        if _greedy.get():
            assert n == 1
            return await super().generate(prompt, 2, split)
        return await super().generate(prompt, n, split)


@pytest.mark.parametrize("greedy", [False, True])
async def test_an_environment_with_sets_is_evaluated_on_all_of_them(greedy):
    env = alone(Sets, eval_greedy=greedy)
    found = []
    env.report_evaluated = found.extend
    with sampling("evaluation", 3):
        metrics = (await env.evaluate()).to_metrics()
    assert [(each.item, each.sets) for each in found] == [("c", ("main",)), ("d", ("main", "late")), ("e", ("late",))]
    assert [(len(each.rollouts), len(each.greedy)) for each in found] == [(2, 2 * greedy)] * 3
    assert (metrics["eval/percent_correct"], metrics["eval/n"]) == (1 / 4, 4)
    assert (metrics["eval/late/percent_correct"], metrics["eval/late/pass_at_2"]) == (0, 0)
    assert metrics["eval/pass_at_2"] == 1 / 2
    assert ("eval/greedy_percent_correct" in metrics) is greedy


async def test_outside_of_a_run_nothing_is_called_greedy():
    """Only a run's requests become so on their way."""
    assert not [name for name in (await alone(Sets, eval_greedy=True).evaluate()).to_metrics() if "greedy" in name]


def test_a_name_that_is_wrong_ends_an_environment_before_anything_is_sampled():
    class Named(Capitals):
        def held_out_sets(self):
            return {"A B": ["c"]}

    with pytest.raises(ConfigError, match=r"^Named\.held_out_sets\(\) has a set named 'A B'"):
        alone(Named).check_config()


def test_an_item_of_any_set_is_known_by_its_prompt():
    assert alone(Sets).item_of_prompt("e") == "e"
