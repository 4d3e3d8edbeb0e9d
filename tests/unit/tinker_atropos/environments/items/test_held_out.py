import itertools
import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.tinker_atropos.environments.scripted_environment import Capitals, alone

from tinker_atropos.environments.base import Rollout
from tinker_atropos.environments.items.held_out import (
    MOST_SETS,
    Estimate,
    Evaluation,
    PlayedItem,
    effective_samples,
    evaluation_of,
    fraction_metrics,
    items_to_play,
    named_sets,
    pass_at,
    passes_reported,
    wilson_interval,
)
from tinker_atropos.environments.rollout.sampled_work import _greedy, sampling
from tinker_atropos.errors import ConfigError

# From the closed form, with 4 digits: https://en.wikipedia.org/wiki/Binomial_proportion_confidence_interval
KNOWN = [(0, 10, 0.0, 0.2775), (5, 10, 0.2366, 0.7634), (10, 10, 0.7225, 1.0), (266, 500, 0.4882, 0.5753)]


@pytest.mark.parametrize(("correct", "n", "low", "high"), KNOWN)
def test_known_intervals(correct, n, low, high):
    assert wilson_interval(correct, n) == pytest.approx((low, high), abs=1e-4)


@given(st.integers(1, 10_000).flatmap(lambda n: st.tuples(st.integers(0, n), st.just(n))))
def test_interval_contains_the_fraction_and_stays_within_0_and_1(counts):
    correct, n = counts
    low, high = wilson_interval(correct, n)
    assert 0 <= low <= correct / n + 1e-12
    assert correct / n - 1e-12 <= high <= 1


def test_nothing_sampled_is_no_evaluation():
    with pytest.raises(ValueError, match="at least one sample"):
        wilson_interval(0, 0)


def test_metrics_of_an_evaluation():
    metrics = Evaluation(correct=9, n=10).to_metrics()
    assert metrics["eval/percent_correct"] == 0.9
    assert metrics["eval/n"] == 10
    assert metrics["eval/percent_correct_low"] < 0.9 < metrics["eval/percent_correct_high"]


def test_a_fraction_has_an_interval_from_the_observed_completions():
    metrics = fraction_metrics(0.5, 100)
    assert metrics == {"eval/n": 100, **Evaluation(50, 100).to_metrics()}


def test_a_fraction_of_unseen_samples_has_no_interval():
    metrics = fraction_metrics(0.5, 0)
    assert (metrics["eval/percent_correct_low"], metrics["eval/percent_correct_high"], metrics["eval/n"]) == (0, 1, 0)


def test_a_value_that_is_not_a_fraction_has_no_interval():
    assert fraction_metrics(87.5, 40) == {"eval/percent_correct": 87.5, "eval/n": 40}


def interval(counts: list[tuple[int, int]]) -> tuple[float, float]:
    verdicts = [[True] * correct + [False] * (samples - correct) for correct, samples in counts]
    metrics = Evaluation.of_items(verdicts).to_metrics()
    return metrics["eval/percent_correct_low"], metrics["eval/percent_correct_high"]


ITEMS = st.lists(st.integers(1, 6).flatmap(lambda m: st.tuples(st.integers(0, m), st.just(m))), min_size=1, max_size=60)


@given(ITEMS)
def test_samples_of_one_item_never_count_for_more_than_independent_ones(counts):
    correct, n = (sum(column) for column in zip(*counts, strict=True))
    effective = effective_samples(counts)
    assert 0 < effective <= n
    low, high = interval(counts)
    least, most = wilson_interval(correct, n)
    assert 0 <= low <= least + 1e-12
    assert most - 1e-12 <= high <= 1
    assert low - 1e-12 <= correct / n <= high + 1e-12


@given(st.lists(st.booleans(), min_size=2))
def test_one_sample_per_item_is_wilsons_interval(verdicts):
    counts = [(int(each), 1) for each in verdicts]
    assert effective_samples(counts) == pytest.approx(len(verdicts))


@given(st.lists(st.booleans(), min_size=2), st.integers(2, 6))
def test_repeating_a_sample_tells_nothing_new(verdicts, times):
    """All samples of an item agree: the items count, however often each is sampled."""
    counts = [(int(each) * times, times) for each in verdicts]
    items, n = len(counts), len(counts) * times
    exact = items if len(set(verdicts)) == 1 else n * (items - 1) / (n - 1)
    assert effective_samples(counts) == pytest.approx(exact)


def test_a_single_item_counts_once():
    assert effective_samples([(3, 8)]) == 1


def test_no_item_is_no_evaluation():
    with pytest.raises(ValueError, match="at least one sample"):
        Evaluation.of_items([[], []])


def test_the_standard_error_is_that_of_the_sandwich():
    """A regression on a constant, by the textbook's matrices: (X'X)^-1 (sum X_g' e_g e_g' X_g) (X'X)^-1, and CR1."""
    random = np.random.default_rng(5)
    chances = random.beta(2, 1, 40)
    samples = random.integers(1, 6, 40)
    correct = random.binomial(samples, chances)
    y = np.concatenate([np.repeat([1.0, 0.0], [c, n - c]) for c, n in zip(correct, samples, strict=True)])
    item, x = np.repeat(np.arange(40), samples), np.ones((len(y), 1))
    bread = np.linalg.inv(x.T @ x)
    residuals = y - y.mean()
    meat = sum(
        (x[item == g].T @ residuals[item == g])[:, None] @ (residuals[item == g] @ x[item == g])[None]
        for g in range(40)
    )
    error = math.sqrt((bread @ meat @ bread).item() * 40 / 39)
    counts = list(zip(correct.tolist(), samples.tolist(), strict=True))
    share = y.mean()
    assert math.sqrt(share * (1 - share) / effective_samples(counts)) == pytest.approx(
        error * math.sqrt((len(y) - 1) / len(y)), rel=1e-9
    )


COVERED = [(20, 4, 0.5), (50, 4, 0.9), (250, 2, 0.5), (250, 2, 0.98)]


@pytest.mark.parametrize(("items", "samples", "share"), COVERED)
def test_about_19_of_20_intervals_contain_the_true_fraction(items, samples, share):
    """Items differ as in the bundled task (intraclass correlation 0.25); without clusters 85 to 93 % would."""
    random = np.random.default_rng(11)
    runs, spread = 1_000, 1 / 0.25 - 1
    chances = random.beta(share * spread, (1 - share) * spread, (runs, items))
    correct = random.binomial(samples, chances)
    covered = 0
    for row in correct.tolist():
        n = effective_samples([(each, samples) for each in row])
        low, high = wilson_interval(sum(row) / (items * samples) * n, n)
        covered += low <= share <= high
    assert 0.925 <= covered / runs <= 0.985


@pytest.mark.parametrize("n", range(1, 9))
def test_pass_at_k_is_the_share_of_all_choices_of_k_samples_with_a_right_one(n):
    for correct, k in itertools.product(range(n + 1), range(1, n + 1)):
        choices = list(itertools.combinations([True] * correct + [False] * (n - correct), k))
        assert pass_at(k, n, correct) == pytest.approx(sum(map(any, choices)) / len(choices), abs=1e-12)


def test_pass_at_k_is_unbiased():
    """Over many draws of n samples its mean is 1 - (1 - q)^k; the plug-in 1 - (1 - c/n)^k is 0.02 and more below."""
    random = np.random.default_rng(2)
    q, n, k = 0.2, 8, 4
    draws = random.binomial(n, q, 40_000).tolist()
    estimates = [pass_at(k, n, each) for each in draws]
    assert np.mean(estimates) == pytest.approx(1 - (1 - q) ** k, abs=4 * np.std(estimates) / math.sqrt(len(draws)))
    assert np.mean([1 - (1 - each / n) ** k for each in draws]) < 1 - (1 - q) ** k - 0.02


@pytest.mark.parametrize(("k", "n"), [(0, 4), (5, 4)])
def test_pass_at_k_needs_k_samples(k, n):
    with pytest.raises(ValueError, match=f"pass@{k} of {n} samples is unknown"):
        pass_at(k, n, 1)


@pytest.mark.parametrize(("n", "ks"), [(1, []), (2, [2]), (4, [2, 4]), (6, [2, 4, 6]), (64, [2, 4, 8, 16, 32, 64])])
def test_which_k_are_reported(n, ks):
    assert passes_reported(n) == ks


VALUES = st.lists(st.integers(0, 28).map(lambda passed: passed / 28), min_size=1, max_size=60)


@given(VALUES, st.integers(1, 16))
def test_an_interval_over_items_contains_the_mean_and_stays_within_0_and_1(values, samples):
    estimate = Estimate.of_items(values, samples * len(values))
    assert 0 <= estimate.low <= estimate.value + 1e-12
    assert estimate.value - 1e-12 <= estimate.high <= 1
    assert estimate.value == pytest.approx(np.mean(values))


@given(VALUES, st.integers(1, 16))
def test_more_items_of_the_same_kind_tell_more(values, samples):
    once = Estimate.of_items(values, samples * len(values))
    thrice = Estimate.of_items(values * 3, samples * len(values) * 3)
    assert thrice.high - thrice.low < once.high - once.low


@given(st.permutations([0, 1, 2, 3, 4] * 12).flatmap(lambda counts: st.just(counts[:50])))
def test_an_interval_over_items_is_nearly_that_of_their_samples(counts):
    """pass@1 is mean@n, told in two ways."""
    n = 4 * len(counts)
    by_items = Estimate.of_items([each / 4 for each in counts], n)
    by_samples = Estimate.of_samples([[True] * each + [False] * (4 - each) for each in counts])
    assert (by_items.value, by_items.n) == (pytest.approx(by_samples.value), by_samples.n)
    assert by_items.high - by_items.low == pytest.approx(by_samples.high - by_samples.low, rel=0.06)


PASSED = [(50, 8, 4, 0.5), (100, 4, 4, 0.5), (250, 2, 2, 0.5), (100, 16, 8, 0.2), (20, 8, 4, 0.5), (250, 8, 4, 0.8)]


@pytest.mark.parametrize(("items", "samples", "k", "share"), PASSED)
def test_about_19_of_20_intervals_contain_the_true_pass_at_k(items, samples, k, share):
    """Items differ as above; E[1 - (1 - q)^k] of a beta distribution is known in closed form."""
    random = np.random.default_rng(17)
    runs, spread = 500, 1 / 0.25 - 1
    a, b = share * spread, (1 - share) * spread
    truth = 1 - math.prod((b + each) / (a + b + each) for each in range(k))
    correct = random.binomial(samples, random.beta(a, b, (runs, items)))
    found = [
        Estimate.of_items([pass_at(k, samples, each) for each in row], items * samples) for row in correct.tolist()
    ]
    covered = sum(each.low <= truth <= each.high for each in found) / runs
    assert 0.92 <= covered <= 0.98, covered


def test_any_figure_of_an_evaluation_may_decide():
    evaluation = Evaluation(
        3, 4, metric="eval/mean_reward", others={"eval/hard/mean_reward": Estimate(0.5, 8, 0.2, 0.8)}
    )
    assert evaluation.decided_by("eval/other") is None
    assert evaluation.decided_by("eval/mean_reward") == {
        "eval/percent_correct": 0.75, "eval/n": 4,
        **{f"eval/percent_correct{end}": pytest.approx(each) for end, each in zip(
            ("_low", "_high"), wilson_interval(3, 4), strict=True)},
        "eval/hard/mean_reward": 0.5, "eval/hard/mean_reward_low": 0.2, "eval/hard/mean_reward_high": 0.8,
    }  # fmt: skip
    decided = evaluation.decided_by("eval/hard/mean_reward")
    figure = [
        decided[name] for name in ("eval/percent_correct", "eval/percent_correct_low", "eval/percent_correct_high")
    ]
    assert [*figure, decided["eval/n"], decided["eval/mean_reward"]] == [0.5, 0.2, 0.8, 8, 0.75]


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
