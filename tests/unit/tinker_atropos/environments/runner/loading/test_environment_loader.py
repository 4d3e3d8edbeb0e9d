"""Which class of a file is served: realistic files, imported."""

import sys
from pathlib import Path

import pytest

from tinker_atropos.config.run_config import parse_config
from tinker_atropos.environments.runner.loading.environment_config import Wiring
from tinker_atropos.environments.runner.loading.environment_files import locate_environment
from tinker_atropos.environments.runner.loading.environment_loader import load_environment
from tinker_atropos.errors import ConfigError

HEAD = "from abc import ABC\nfrom atroposlib.envs.base import BaseEnv\n"
BASE_AND_GAME = HEAD + "class Base(BaseEnv): ...\nclass Game(Base): ...\n"
TWO = HEAD + "class One(BaseEnv): ...\nclass Two(BaseEnv): ...\n"
START = "if __name__ == '__main__':\n    {}.cli()\n"

SERVED = {
    "the only one": (HEAD + "class Game(BaseEnv): ...\n", "Game"),
    "the one that derives from the other": (BASE_AND_GAME, "Game"),
    "the one that is not abstract": (HEAD + "class Base(BaseEnv, ABC): ...\nclass Game(Base): ...\n", "Game"),
    "the one that the file starts": (TWO + START.format("One"), "One"),
    "the base, when the file starts it": (BASE_AND_GAME + START.format("Base"), "Base"),
    "an imported one, when the file starts it": (
        "from tinker_atropos.environments.bundled.sort_digits import SortDigits\n" + START.format("SortDigits"),
        "SortDigits",
    ),
    "the only one, whatever else has a cli": (
        HEAD + "import typing as app\nclass Game(BaseEnv): ...\n" + START.format("app"),
        "Game",
    ),
}


@pytest.mark.parametrize(("source", "served"), SERVED.values(), ids=SERVED)
def test_one_class_is_served(tmp_path: Path, source: str, served: str) -> None:
    file = tmp_path / "loaded_by_a_test.py"
    file.write_text(source)
    loaded = load_environment(locate_environment(str(file)))
    assert loaded.environment_class.__name__ == served
    assert loaded.source == file


IMPORTED = "from tinker_atropos.environments.bundled.sort_digits import SortDigits\n"


@pytest.mark.parametrize(("source", "found"), [(TWO, "One, Two"), (IMPORTED, "none")], ids=["two", "only imported"])
def test_a_file_without_exactly_one_is_refused_with_what_to_do(tmp_path: Path, source: str, found: str) -> None:
    file = tmp_path / "loaded_by_a_test.py"
    file.write_text(source)
    message = rf"loaded_by_a_test.py must define exactly one .* it has {found} .*cli\(\)"
    with pytest.raises(ConfigError, match=message):
        load_environment(locate_environment(str(file)))


@pytest.mark.parametrize("name", ["json.py", "httpx.py", "wandb.py"])
def test_a_taken_name_is_refused_and_nothing_is_replaced(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(HEAD + "class Game(BaseEnv): ...\n")
    before = sys.modules.get(Path(name).stem)
    with pytest.raises(ConfigError, match=f"{name} cannot be imported: {Path(name).stem} is already the name"):
        load_environment(locate_environment(str(tmp_path / name)))
    assert sys.modules.get(Path(name).stem) is before
    assert str(tmp_path) not in sys.path


DISTILLING = """\
from atroposlib.envs.base import APIServerConfig, BaseEnv, BaseEnvConfig
from atroposlib.envs.server_handling.server_manager import ServerManager


class Distilling(BaseEnv):
    \"\"\"Built as the TeacherDistillationEnv that atroposlib's repository has after its last release.\"\"\"

    @classmethod
    def config_init(cls):
        return BaseEnvConfig(), [APIServerConfig(model_name="policy")]

    @classmethod
    def teacher_config_init(cls):
        return APIServerConfig(model_name="policy", base_url="http://127.0.0.1:1/v1", api_key="x")

    def __init__(self, config, server_configs, teacher_server_configs=None, slurm=False, testing=False):
        super().__init__(config, server_configs, slurm=slurm, testing=testing)
        self.teacher_server = ServerManager(teacher_server_configs, slurm=False, testing=False)

    async def get_next_item(self): ...

    async def evaluate(self, *args, **kwargs): ...
"""


@pytest.mark.parametrize(
    ("others", "address", "timeout"),
    [
        ([], "http://127.0.0.1:1/v1", 1200),
        ([{"base_url": "http://127.0.0.1:2/v1", "timeout": 5}], "http://127.0.0.1:2/v1", 5),
    ],
)
def test_an_environment_that_is_built_with_a_teacher_gets_its_servers(tmp_path, others, address, timeout):
    """Those of `teacher_config_init`, of the policy's model, too, with the config file's values: `openai[1]` and on."""
    file = tmp_path / "loaded_by_a_test.py"
    file.write_text(DISTILLING)
    loaded = load_environment(locate_environment(str(file)))
    env = {"tokenizer_name": "bundled", "group_size": 4, "batch_size": 4, "total_steps": 1, "max_token_length": 64}
    run = parse_config({"env": env, "openai": [{"model_name": "bundled"}, *others]})
    policy = {"server_type": "sglang", "base_url": "http://127.0.0.1:3/v1", "api_key": "x", "model_name": "bundled"}
    built = loaded.build(run, Wiring({}, policy))
    assert [server.config.base_url for server in built.server.servers] == ["http://127.0.0.1:3/v1"]
    (teacher,) = built.teacher_server.servers
    assert (teacher.config.base_url, teacher.config.timeout) == (address, timeout)


DRAWING = """\
from atroposlib.envs.base import BaseEnv, BaseEnvConfig


class Config(BaseEnvConfig):
    seed: int | None = None


class Drawing(BaseEnv):
    env_config_cls = Config

    async def get_next_item(self): ...

    async def evaluate(self, *args, **kwargs): ...
"""


@pytest.mark.parametrize(("given", "own", "seed"), [({}, "", 7), ({"seed": 3}, "", 3), ({}, "seed=5", 5)])
def test_an_environment_that_draws_its_items_gets_the_runs_seed_where_it_takes_one(tmp_path, given, own, seed):
    file = tmp_path / "drawn_by_a_test.py"
    init = f"    @classmethod\n    def config_init(cls):\n        return Config({own}), []\n"
    file.write_text(DRAWING + init)
    loaded = load_environment(locate_environment(str(file)))
    env = {"tokenizer_name": "bundled", "group_size": 4, "batch_size": 4, "total_steps": 1, "max_token_length": 64}
    run = parse_config({"env": env | given, "openai": [{"model_name": "bundled"}], "tinker": {"seed": 7}})
    policy = {"server_type": "sglang", "base_url": "http://127.0.0.1:3/v1", "api_key": "x", "model_name": "bundled"}
    assert loaded.build(run, Wiring({}, policy)).config.seed == seed


REFUSED_FOLDERS = {
    "json": "the folder 'json' is a package, and json is already the name of a module",
    "httpx": "the folder 'httpx' is a package, and httpx is already the name of a module",
    "my.games": "the folder 'my.games' is a package, and its name must not contain a dot: rename it",
}


@pytest.mark.parametrize(("name", "sentence"), REFUSED_FOLDERS.items(), ids=REFUSED_FOLDERS)
def test_a_package_needs_a_name_of_its_own(tmp_path: Path, name: str, sentence: str) -> None:
    folder = tmp_path / name
    folder.mkdir()
    (folder / "__init__.py").write_text("")
    (folder / "game.py").write_text(HEAD + "from . import game\nclass Game(BaseEnv): ...\n")
    before = sys.modules.get(name)
    with pytest.raises(ConfigError, match=sentence):
        load_environment(locate_environment(str(folder / "game.py")))
    assert sys.modules.get(name) is before
    assert str(tmp_path) not in sys.path
