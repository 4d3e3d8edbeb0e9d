"""A local file as objects of a cluster."""

import re
from pathlib import Path

import pytest

from rl_operator.api.names import RUN_NAME_PATTERN
from rl_operator.cli.views.template import object_name, own_environment_template
from rl_operator.documents.parse import load_documents, parse_environment

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
