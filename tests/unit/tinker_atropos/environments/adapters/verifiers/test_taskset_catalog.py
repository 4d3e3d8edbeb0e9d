"""Tasksets are found and read from source: verifiers itself is not installed beside these tests."""

import sys

import pytest
from tests.tasksets import RL_TASKSETS

from tinker_atropos.environments.adapters.verifiers import taskset_catalog, taskset_sources
from tinker_atropos.environments.adapters.verifiers.taskset_catalog import discover_tasksets

PACKAGE = '''
"""A package whose taskset is in a file of its own."""
from rows.taskset import RowsEnv, RowsTaskset
__all__ = ["RowsEnv", "RowsTaskset"]
'''
IN_PACKAGE = """
import verifiers.v1 as vf
from rows.base import BaseConfig
class RowsConfig(BaseConfig):
    level: int = 2
    \"\"\"How hard they are,
    from 1.

    More about it.\"\"\"
    task: vf.TaskConfig = vf.TaskConfig()
class RowsEnv(vf.SingleAgentEnv):
    pass
class RowsTaskset(vf.Taskset[vf.Task, RowsConfig]):
    pass
"""


@pytest.fixture
def found(tmp_path, monkeypatch):
    """The catalog's environments by name, where a library without tasksets is installed."""
    library, folder = tmp_path / "site-packages" / "verifiers", tmp_path / "tasksets"
    (library / "v1" / "tasksets").mkdir(parents=True)
    rows = folder / "rows"
    rows.mkdir(parents=True)
    (rows / "__init__.py").write_text(PACKAGE)
    (rows / "taskset.py").write_text(IN_PACKAGE)
    (rows / "base.py").write_text("import verifiers.v1 as vf\nclass BaseConfig(vf.TasksetConfig):\n    rows: int = 5\n")
    (folder / "two.py").write_text(
        "import verifiers.v1 as vf\nclass A(vf.Taskset): ...\nclass B(vf.Taskset): ...\n__all__ = ['A', 'B']\n"
    )
    (folder / "none.py").write_text("import verifiers.v1 as vf\nclass A(vf.Taskset): ...\n")
    (folder / "broken.py").write_text("def:\n")
    monkeypatch.setattr(taskset_sources, "package_folders", lambda _name: (str(library),))
    monkeypatch.setenv("RL_TASKSETS", f"{RL_TASKSETS}:{folder}:{tmp_path / 'missing'}")
    discovery = discover_tasksets()
    assert "verifiers" not in sys.modules
    assert [family.name for family in discovery.families] == ["verifiers"]
    return {each.name: each for each in discovery.environments}


def test_a_module_that_exports_one_taskset_is_one(found):
    assert {"verifiers/rows", "verifiers/sort_digits_vf", "verifiers/guess_number_vf"} < set(found)
    assert not {"verifiers/two", "verifiers/none", "verifiers/broken"} & set(found)


def test_its_own_fields_have_dotted_names_types_and_limits(found):
    digits = found["verifiers/sort_digits_vf"].to_wire()["fields"][0]
    assert digits == {
        "name": "taskset.digits",
        "type": "int",
        "default": 4,
        "description": "How many digits are sorted.",
        "minimum": 2,
        "maximum": 9,
    }


def test_fields_come_from_base_classes_in_the_package_and_texts_behind_them(found):
    fields = {each.name: each for each in found["verifiers/rows"].fields}
    assert list(fields) == ["taskset.rows", "taskset.level", "taskset.task", "taskset.system_prompt"]
    assert fields["taskset.level"].description == "How hard they are, from 1."
    assert fields["taskset.task"].type == "dict[str, Any]"


def test_the_description_is_the_modules(found):
    assert found["verifiers/sort_digits_vf"].description == "Sort digits: one question, one answer."
    assert found["verifiers/rows"].description == "A package whose taskset is in a file of its own."


def test_the_family_tells_the_common_fields_once(found, monkeypatch):
    monkeypatch.setattr(taskset_catalog, "is_installed", lambda: True)
    fields = {each.name: each for each in discover_tasksets().families[0].fields}
    assert {"held_out_taskset", "env_config", "max_turns", "renderer", "group_size"} < set(fields)
    assert "taskset" not in fields
    assert fields["group_size"].default == 8


def test_without_verifiers_there_is_nothing(monkeypatch):
    monkeypatch.setattr(taskset_sources, "package_folders", lambda _name: ())
    monkeypatch.setattr(taskset_catalog, "is_installed", taskset_sources.is_installed)
    assert not discover_tasksets().environments
    assert not discover_tasksets().families
