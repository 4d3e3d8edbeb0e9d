"""The task's three splits: disjoint, complete, and the same on every machine."""

from tinker_atropos.environments.bundled import digits


def test_split_is_a_partition_of_all_prompts() -> None:
    split = digits.split()
    parts = (split.pretraining, split.training, split.held_out)
    assert [len(part) for part in parts] == [6_000, 2_000, 2_000]
    assert len(set().union(*parts)) == 10_000


def test_split_never_changes() -> None:
    """The bundled weights were trained on it: another split would leak held-out prompts into pre-training."""
    split = digits.split()
    assert split.pretraining[0] == (8, 8, 6, 2)
    assert split.training[0] == (9, 3, 0, 0)
    assert split.held_out[0] == (2, 9, 8, 6)


def test_prompt_and_answer() -> None:
    assert digits.prompt((4, 1, 3, 2)) == "sort 4 1 3 2"
    assert digits.answer((4, 1, 3, 2)) == "1234"
    assert digits.answer((9, 0, 9, 0)) == "0099"
