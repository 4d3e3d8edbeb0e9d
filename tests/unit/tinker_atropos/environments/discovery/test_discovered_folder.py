import sys

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tinker_atropos.environments.discovery import discover, discover_bundled


@pytest.fixture
def write_modules(tmp_path):
    def write(**files):
        for name, text in files.items():
            path = tmp_path / f"{name.replace('__', '/')}.py"
            path.parent.mkdir(exist_ok=True)
            path.write_text(text)
        return tmp_path

    return write


def one(discovery):
    assert discovery.warnings == []
    (environment,) = discovery.environments
    return environment


def test_bundled_environment():
    environment = next(each for each in discover_bundled().environments if each.name == "sort_digits")
    assert environment.class_name == "SortDigits"
    assert environment.file_path == "environments/bundled/sort_digits.py"
    assert environment.description.startswith("Sort four digits")
    fields = {field.name: field for field in environment.fields}
    assert fields["tokenizer_name"].default == "bundled"  # from config_init
    assert fields["eval_items"].default == 250  # from our config class
    assert fields["worker_timeout"].default == 600  # from atroposlib's
    assert fields["group_size"].type == "int"
    assert fields["group_size"].description == "How many responses are grouped together for scoring"
    assert fields["eval_handling"].default == "STOP_TRAIN"
    assert fields["wandb_name"].type == "str | None"


def test_nothing_is_imported(write_modules):
    before = set(sys.modules)
    found = discover(
        write_modules(
            boom="from atroposlib.envs.base import BaseEnv\nclass Boom(BaseEnv):\n    x = 1 / 0\nraise SystemExit(3)"
        )
    )
    assert one(found).class_name == "Boom"
    assert set(sys.modules) - before == set()


OURS = "from tinker_atropos.environments.base import Environment\nclass Own(Environment):\n    "
DRAWN = "async def get_next_item(self): ..."


@pytest.mark.parametrize(
    ("text", "draws"),
    [
        (f"{OURS}pass", None),
        (f"{OURS}{DRAWN}", True),
        (f"from atroposlib.envs.base import BaseEnv\nclass Own(BaseEnv):\n    {DRAWN}", True),
    ],
)
def test_what_draws_its_items_itself_is_said(write_modules, text, draws):
    assert one(discover(write_modules(own=text))).to_wire().get("draws_items") is draws


NAMES = {
    "the class attribute": ('name = "mine"', "mine"),
    "an annotated attribute": ('name: str = "mine"', "mine"),
    "a constant": ("name = NAME", "constant"),
    "the file, without a name": ("pass", "env"),
    "the file, for a computed name": ('name = "a" + "b"', "env"),
    "the file, for no string": ("name = 3", "env"),
}


@pytest.mark.parametrize(("body", "name"), NAMES.values(), ids=NAMES)
def test_name_comes_from(write_modules, body, name):
    text = f'from atroposlib.envs.base import BaseEnv\nNAME = "constant"\nclass E(BaseEnv):\n    {body}\n'
    assert one(discover(write_modules(env=text))).name == name


ANCESTRIES = {
    "directly": {"env": "from atroposlib.envs.base import BaseEnv\nclass E(BaseEnv): ..."},
    "through our base class": {
        "env": "from tinker_atropos.environments.base import Environment\nclass E(Environment[int]): ..."
    },
    "through a base of the folder": {
        "base": "from abc import ABC\nfrom atroposlib.envs.base import BaseEnv\nclass Mine(BaseEnv, ABC): ...",
        "env": "from base import Mine\nclass E(Mine): ...",
    },
    "in a package that is not installed": {"env": "from elsewhere import BaseEnv\nclass E(BaseEnv): ..."},
}


@pytest.mark.parametrize("files", ANCESTRIES.values(), ids=ANCESTRIES)
def test_ancestry_is_found(write_modules, files):
    assert one(discover(write_modules(**files))).class_name == "E"


NO_ENVIRONMENTS = {
    "a class of its own": {"env": "class E: ..."},
    "a base for others": {
        "env": "from abc import ABC\nfrom atroposlib.envs.base import BaseEnv\nclass E(BaseEnv, ABC): ..."
    },
    "a file with an underscore": {"_env": "from atroposlib.envs.base import BaseEnv\nclass E(BaseEnv): ..."},
    "a folder with an underscore": {"_lib__env": "from atroposlib.envs.base import BaseEnv\nclass E(BaseEnv): ..."},
}


@pytest.mark.parametrize("files", NO_ENVIRONMENTS.values(), ids=NO_ENVIRONMENTS)
def test_no_environment_is_found_in(write_modules, files):
    found = discover(write_modules(**files))
    assert found.environments == []
    assert found.warnings == []


def test_broken_file_is_a_warning_next_to_the_others(write_modules):
    found = discover(
        write_modules(good="from atroposlib.envs.base import BaseEnv\nclass E(BaseEnv): ...", bad="def f(:")
    )
    assert [each.name for each in found.environments] == ["good"]
    assert len(found.warnings) == 1
    assert found.warnings[0].startswith("bad.py cannot be read (line 1): ")


ODD_LINES = st.sampled_from(
    [
        "from atroposlib.envs.base import BaseEnv, BaseEnvConfig",
        "from atroposlib.envs.base import *",
        "from . import x as BaseEnv",
        "class E(BaseEnv): ...",
        "class E(BaseEnv, metaclass=M): name = name",
        "class C(BaseEnvConfig): x: int = Field(*a, **k)",
        "class E(BaseEnv): env_config_cls = C",
        "class E(f(BaseEnv)[0].x): config_init = 3",
        "A = B = A",
        "x: int = x",
        "def f(:",
        "\x00",
        "﻿",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.one_of(st.text(), st.lists(ODD_LINES).map("\n".join)))
def test_any_text_is_read_or_gives_a_warning(tmp_path_factory, text):
    folder = tmp_path_factory.mktemp("odd")
    (folder / "odd.py").write_bytes(text.encode("utf-8", "surrogatepass"))
    found = discover(folder)
    assert len(found.warnings) <= 1
