import pytest

from rl_operator.targets.runs.run_lookup import parse_selector

LABELS = {"team": "a", "stage": "test"}


@pytest.mark.parametrize(
    ("selector", "matches"),
    [
        ("", True),
        ("team=a", True),
        ("team==a", True),
        ("team=b", False),
        ("team!=b", True),
        ("owner!=me", True),
        ("team", True),
        ("owner", False),
        ("!owner", True),
        ("!team", False),
        ("team=a,stage=test", True),
        ("team=a, stage!=test", False),
    ],
)
def test_selectors_match_like_kubectls(selector: str, matches: bool) -> None:
    assert parse_selector(selector)(LABELS) is matches
