"""The file that `rlctl init` writes is accepted unchanged, and with every setting in it activated."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.samples import CATALOG, DEFAULT, TINY, catalog_of, load_run, make_runtime, tasksets

from rl_operator.api.catalog import CatalogEnvironment
from rl_operator.api.names import RUN_NAME_PATTERN
from rl_operator.api.run_inputs import ChosenEnvironment, RunInputs
from rl_operator.api.runtime import Bound, Runtime
from rl_operator.check.run_check import check_run
from rl_operator.cli.commands.init import accepts_of, object_name, own_environment_template, run_template, within
from rl_operator.documents.parse import load_documents, parse_environment

SETTING = re.compile(r"^( *)#(\w+:.*)$", re.MULTILINE)
SORT_DIGITS, AGENT = CATALOG.named("sort_digits"), CATALOG.named("calculator_agent")


def template(environment: CatalogEnvironment, runtime: Runtime) -> str:
    return run_template("first", environment, runtime, accepts_of(environment, runtime))


def refusals(text: str, environment: CatalogEnvironment, runtime: Runtime) -> list[str]:
    inputs = RunInputs(runtime, ChosenEnvironment(known=environment))
    return [refusal.sentence for refusal in check_run(load_run(text), inputs)]


def toy(**field: Any) -> CatalogEnvironment:
    return catalog_of({"name": "knob", "type": "int", "default": 3, **field}).named("toy")


CASES = [
    pytest.param(SORT_DIGITS, TINY, id="tiny"),
    pytest.param(SORT_DIGITS, DEFAULT, id="default"),
    pytest.param(AGENT, TINY, id="agent"),
    pytest.param(AGENT, make_runtime(sandbox={"maxSize": 2}), id="an agent with few sandboxes"),
    pytest.param(toy(), make_runtime(locked={"env": {"total_steps": 5, "group_size": 2, "batch_size": 4}}), id="locks"),
    pytest.param(toy(), make_runtime(bounds={"env": {"total_steps": {"max": 4}, "knob": {"min": 5}}}), id="bounds"),
    pytest.param(toy(type="str", default="yes: #1"), make_runtime(), id="a default that needs quotes"),
    pytest.param(toy(type="int", default=None), make_runtime(), id="no usable default"),
    pytest.param(tasksets().chosen("verifiers/sorting@1.0"), make_runtime(), id="nested"),
    pytest.param(
        tasksets().chosen("verifiers/sorting"),
        make_runtime(bounds={"env": {"taskset.size": {"max": 5}}}, locked={"env": {"taskset": {"level": "hard"}}}),
        id="nested, bounds and locks",
    ),
    pytest.param(toy(), make_runtime(limits={"activeDeadlineSeconds": 60, "environmentReplicas": 1}), id="limits"),
]


def test_a_priority_is_offered_where_runs_may_have_one() -> None:
    assert "#priority" not in template(SORT_DIGITS, TINY)
    assert "#priority: 0" in template(SORT_DIGITS, make_runtime(limits={"maxActiveRuns": 3, "maxPriority": 5}))
    assert "#ttlSecondsAfterFinished: 86400" in template(SORT_DIGITS, TINY)


def test_sandboxes_are_offered_for_agents_where_the_runtime_has_them() -> None:
    assert "  #sandbox: {size: 4} " in template(AGENT, TINY)
    assert "  #sandbox: {size: 2} " in template(AGENT, make_runtime(sandbox={"maxSize": 2}))
    assert "#sandbox:" not in template(AGENT, make_runtime(sandbox=None))
    assert "#sandbox:" not in template(SORT_DIGITS, TINY)


@pytest.mark.parametrize(("environment", "runtime"), CASES)
def test_it_is_accepted_unchanged_and_with_each_of_its_settings(
    environment: CatalogEnvironment, runtime: Runtime
) -> None:
    text = template(environment, runtime)
    assert refusals(text, environment, runtime) == []
    assert max(map(len, text.splitlines())) < 100
    settings = list(SETTING.finditer(text))
    assert len(settings) > 5
    for setting in settings:
        line = text[: setting.start()] + setting[1] + setting[2] + text[setting.end() :]
        assert refusals(line, environment, runtime) == [], setting[0]
    assert refusals(SETTING.sub(r"\1\2", text), environment, runtime) == []


def test_common_settings_are_active_and_the_rest_are_comments() -> None:
    text = template(SORT_DIGITS, TINY)
    spec = load_run(text).spec
    assert set(spec.config) == {"total_steps", "group_size", "batch_size", "max_token_length"}
    mappings = {"early_stopping": {"stop_at": None}, "sampling": {"temperature": 1}}  # each has an active line
    assert spec.trainer == {"learning_rate": 0.001, **mappings}
    assert "    #eval_items: 250 " in text
    assert "# Not to be set, because runtime tiny locks it: config.tokenizer_name=bundled." in text


def test_a_field_without_a_usable_default_is_named() -> None:
    assert "has no default that could stand here: config.knob (int)." in template(toy(default=None), make_runtime())


def test_a_default_out_of_bounds_is_replaced_and_active() -> None:
    text = template(toy(), make_runtime(bounds={"env": {"knob": {"min": 5}}}))
    assert load_run(text).spec.config["knob"] == 5


@pytest.mark.parametrize(
    ("value", "bound", "nearest"),
    [
        (3, {"min": 5}, 5),
        (3, {"max": 1}, 1),
        (3, {"min": 1, "max": 9}, 3),
        (True, {"min": 5}, True),
        (None, {"min": 5}, None),
        (0.5, {"max": 0.25}, 0.25),
    ],
)
def test_the_nearest_allowed_value(value: Any, bound: Mapping[str, Any], nearest: Any) -> None:
    assert within(value, Bound.model_validate(bound)) == nearest


def test_fields_inside_of_a_mapping_stand_there_and_one_is_active() -> None:
    runtime = make_runtime(locked={"env": {"taskset": {"level": "easy"}}})
    text = template(tasksets().chosen("verifiers/sorting@1.0"), runtime)
    assert re.search(r"^    taskset:\n      size: 100  .*\n      #weights: \{\}\n  trainer:$", text, re.MULTILINE)
    assert "  environment: verifiers/sorting@1.0\n" in text
    assert "config.taskset.level=easy" in text


CODE = 'import os\n\n\nclass Mine:\n    """Says: "hello" # always."""\n'


def test_the_documents_hold_the_files_unchanged() -> None:
    files = {"my_env.py": CODE, "words.py": "WORDS = ['a']"}
    config_map, environment = load_documents(own_environment_template("mine", files, "my_env.py"))
    assert config_map["data"] == files
    parsed = parse_environment(environment)
    assert parsed.metadata.name == "mine"
    assert parsed.spec.source is not None
    assert (parsed.spec.source.config_map.name, parsed.spec.source.config_map.entry) == ("mine", "my_env.py")


def test_code_stays_readable() -> None:
    assert "  my_env.py: |\n    import os\n\n\n    class Mine:\n" in own_environment_template(
        "m", {"my_env.py": CODE}, ""
    )


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("my_env.py", "my-env"),
        ("Sort Down.py", "sort-down"),
        ("4x4.py", "run-4x4"),
        ("sort_digits", "sort-digits"),
        ("__.py", "run"),
    ],
)
def test_names(text: str, name: str) -> None:
    assert object_name(text) == name
    assert re.fullmatch(RUN_NAME_PATTERN, name)


def test_the_example_holds_the_file_next_to_it() -> None:
    folder = Path(__file__).parents[5] / "examples" / "own-environment"
    objects = load_documents((folder / "cluster.yaml").read_text())
    assert [each["kind"] for each in objects] == ["ConfigMap", "RLEnvironment", "RLTrainingRun"]
    assert objects[0]["data"] == {"sort_down.py": (folder / "sort_down.py").read_text()}
