"""What `config_init` returns, as far as its source shows: compared with calling it."""

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from tinker_atropos.environments.discovery import discover_entry

HEAD = """
from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig
from pydantic import Field
COMMON = {"group_size": 5}
def some(): return {"group_size": 6}
class Config(BaseEnvConfig):
    mine: int = 1
class Other(BaseEnvConfig):
    other: int = 2
class Base(BaseEnv):
    env_config_cls = Config
    @classmethod
    def config_init(cls):
        return Config(group_size=3, mine=4), []
class E(Base):
    env_config_cls = Config
"""
UNKNOWN: Any = None

BODIES: dict[str, tuple[str, dict[str, Any]]] = {
    "at once": ("return Config(group_size=8, mine=9), []", {"group_size": 8, "mine": 9, "total_steps": 1000}),
    "in a list": ("return [Config(group_size=8), []]", {"group_size": UNKNOWN}),
    "by a variable": ("config = Config(mine=9)\nreturn config, [APIServerConfig()]", {"mine": 9, "group_size": 4}),
    "by a typed variable": ("config: Config = Config(mine=9)\nreturn (config, [])", {"mine": 9}),
    "by the class's own": ("return cls.env_config_cls(mine=9), []", {"mine": 9, "group_size": 4}),
    "another class": ("return Other(other=7), []", {"other": 7, "mine": "no field"}),
    "inherited": ("return super().config_init()", {"group_size": 3, "mine": 4}),
    "inherited and unpacked": ("config, servers = super().config_init()\nreturn config, servers", {"mine": 4}),
    "inherited and changed": (
        "config, servers = super().config_init()\nconfig.mine = 9\nreturn config, servers",
        {"group_size": 3, "mine": UNKNOWN},
    ),
    "changed afterwards": (
        "config = Config(mine=9)\nif True:\n    config.group_size = 2\nreturn config, []",
        {"mine": 9, "group_size": UNKNOWN, "total_steps": 1000},
    ),
    "with a dictionary": ("return Config(mine=9, **COMMON), []", {"mine": 9, "group_size": 5, "total_steps": 1000}),
    "with what a function gives": (
        "return Config(mine=9, **some()), []",
        {"mine": 9, "group_size": UNKNOWN, "total_steps": UNKNOWN},
    ),
    "with what a function gives for a field": ("return Config(mine=max(1, 2)), []", {"mine": UNKNOWN, "group_size": 4}),
    "one of two": ("if some():\n    return Config(mine=9), []\nreturn Config(mine=8), []", {"mine": UNKNOWN}),
    "assigned twice": ("config = Config(mine=9)\nconfig = Config(mine=8)\nreturn config, []", {"mine": UNKNOWN}),
    "handed to somebody": ("config = Config(mine=9)\nprint(config)\nreturn config, []", {"mine": UNKNOWN}),
    "a method of the config": (
        "config = Config(mine=9)\nconfig.__init__(mine=7)\nreturn config, []",
        {"mine": UNKNOWN, "group_size": UNKNOWN},
    ),
    "a copy": ("return Config().model_copy(update={'mine': 9}), []", {"mine": UNKNOWN}),
    "a function of its own": ("def make():\n    return 3\nreturn Config(mine=9), []", {"mine": 9}),
    "made elsewhere": ("made = (Config(mine=9), [])\nreturn made", {"mine": UNKNOWN}),
}


@pytest.mark.parametrize(("body", "expected"), BODIES.values(), ids=BODIES)
def test_default_is_taken_from_config_init_or_unknown(tmp_path: Path, body: str, expected: dict[str, Any]) -> None:
    method = "".join(f"        {line}\n" for line in body.splitlines())
    file = tmp_path / "config_init_of_a_test.py"
    file.write_text(f"{HEAD}    @classmethod\n    def config_init(cls):\n{method}")
    found = discover_entry(tmp_path, file.name)
    assert found.problem is None
    defaults = {each.name: each.default for each in found.environments[0].fields}
    assert {name: defaults.get(name, "no field") for name in expected} == expected
    actual = called(file)[0].model_dump(mode="json")
    for name, default in defaults.items():
        assert default is None or default == actual[name], name


def called(file: Path) -> Any:
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.E.config_init()
