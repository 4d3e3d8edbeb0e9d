import pytest

from rl_operator.targets.runs.spec_changes import FieldChange, spec_changes, text_changes


@pytest.mark.parametrize(
    ("live", "wanted", "changes"),
    [
        ({"a": 1}, {"a": 1.0}, []),
        ({"a": 1}, {"a": True}, [("spec.a", "1", "true")]),
        ({"config": {"x": 1, "y": 2}}, {"config": {"x": 1, "y": 3}}, [("spec.config.y", "2", "3")]),
        ({"config": {"x": 1}}, {}, [("spec.config.x", "1", "unset")]),
        ({}, {"config": {}}, []),
        ({}, {"startFrom": {"run": "a"}}, [("spec.startFrom.run", "unset", "a")]),
        ({"config": {"x": None}}, {"config": {}}, [("spec.config.x", "null", "unset")]),
        ({"wandb": {"tags": ["a"]}}, {"wandb": {"tags": ["a", "b"]}}, [("spec.wandb.tags", '["a"]', '["a", "b"]')]),
        ({"config": {"x": "1"}}, {"config": {"x": 1}}, [("spec.config.x", '"1"', "1")]),
        ({"config": {"x": {"a": 1}}}, {"config": {"x": 2}}, [("spec.config.x", '{"a": 1}', "2")]),
    ],
)
def test_the_fields_that_differ(
    live: dict[str, object], wanted: dict[str, object], changes: list[tuple[str, ...]]
) -> None:
    assert [(c.field, c.before, c.after) for c in spec_changes(live, wanted)] == changes


@pytest.mark.parametrize(
    ("field", "frozen"),
    [
        ("spec.config.group_size", True),
        ("spec.environment", True),
        ("spec.backoffLimit", True),
        ("spec.suspend", False),
        ("spec.environmentReplicas", False),
        ("spec.activeDeadlineSeconds", False),
    ],
)
def test_what_a_started_run_refuses(field: str, frozen: bool) -> None:
    assert FieldChange(field, "1", "2").frozen is frozen


def test_texts() -> None:
    assert text_changes("config.yaml", "a: 1\n", "a: 1\n") == []
    assert text_changes("config.yaml", "a: 1\n", "a: 2\n") == [
        "--- config.yaml (live)",
        "+++ config.yaml (file)",
        "@@ -1 +1 @@",
        "-a: 1",
        "+a: 2",
    ]
