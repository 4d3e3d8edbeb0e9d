"""Can this file be served? The same answer as the runner's, from the source alone."""

import os
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests import forking
from tests.unit.tinker_atropos.environments.runner.loading.test_environment_loader import SERVED, TWO

from tinker_atropos.environments.discovery import Discovery, discover_entry
from tinker_atropos.environments.discovery.environment_classes import served_environments
from tinker_atropos.environments.discovery.sources import Sources
from tinker_atropos.environments.runner.loading.environment_files import locate_environment
from tinker_atropos.environments.runner.loading.environment_loader import load_environment
from tinker_atropos.errors import ConfigError

ENVIRONMENTS = Path("tests/data/environments").resolve()
HEAD = "from abc import ABC\nfrom atroposlib.envs.base import BaseEnv, BaseEnvConfig\n"
GAME = HEAD + "class Game(BaseEnv): ...\n"
LOAD = """
import sys
from pathlib import Path
from tinker_atropos.environments.runner.reporting import wandb_relay
wandb_relay.install(wandb_relay.MetricsQueue())  # first, as the runner has it
from tinker_atropos.environments.runner.loading.environment_loader import load_environment
from tinker_atropos.environments.runner.loading.environment_files import LocatedEnvironment
load_environment(LocatedEnvironment(Path(sys.argv[1])))
"""


def judged(folder: Path, **files: str) -> Discovery:
    """`env.py`, next to files named by the keywords."""
    for name, text in files.items():
        below = name if name.startswith("__") else name.replace("__", "/", 1)
        path = folder / f"{below}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text(text)
    return discover_entry(folder, "env.py")


@pytest.mark.parametrize(("source", "served"), SERVED.values(), ids=SERVED)
def test_the_runners_choice(tmp_path: Path, source: str, served: str) -> None:
    found = judged(tmp_path, env=source)
    assert found.problem is None
    assert [(each.class_name, each.file_path) for each in found.environments] == [(served, "env.py")]


PROBLEMS: dict[str, tuple[dict[str, str], tuple[str, str, int | None], str]] = {
    "a syntax error": ({"env": "x = 1\ndef f(:"}, ("SyntaxError", "env.py", 2), "not valid Python"),
    "a syntax error that the compiler sees": (
        {"env": "x = 1\nreturn x"},
        ("SyntaxError", "env.py", 2),
        "outside function",
    ),
    "a syntax error in what it imports": (
        {"env": HEAD + "from lib import x\nclass E(BaseEnv): ...", "lib": "import deep", "deep": "\n\nx ="},
        ("SyntaxError", "deep.py", 3),
        "not valid Python",
    ),
    "a null byte in what it imports": (
        {"env": HEAD + "import _lib\nclass E(BaseEnv): ...", "_lib": "\n\0"},
        ("Unreadable", "_lib.py", 2),
        "null byte",
    ),
    "nothing": ({"env": ""}, ("NoEnvironment", "env.py", None), "no class at all"),
    "no environment": ({"env": "class A: ...\nclass B(A): ..."}, ("NoEnvironment", "env.py", 2), "B derives from A"),
    "only a base": ({"env": HEAD + "class E(BaseEnv, ABC): ..."}, ("NoEnvironment", "env.py", 3), "E lists ABC"),
    "a base from elsewhere": (
        {"env": "from gym import Env\nclass E(Env): ..."},
        ("NoEnvironment", "env.py", 2),
        "E derives from gym.Env, which cannot be read here",
    ),
    "a class of that name, but not that one": (
        {"env": "class BaseEnv: ...\nclass E(BaseEnv): ..."},
        ("NoEnvironment", "env.py", 2),
        "derives from BaseEnv",
    ),
    "two": ({"env": TWO}, ("SeveralEnvironments", "env.py", 4), r"it has One, Two .*cli\(\)"),
    "two that the file starts": (
        {"env": TWO + "One.cli()\nTwo.cli()\n"},
        ("SeveralEnvironments", "env.py", 4),
        "it has One, Two",
    ),
    "a config class that is none": (
        {"env": HEAD + "class C: ...\nclass E(BaseEnv):\n    env_config_cls = C"},
        ("WrongConfigClass", "env.py", 5),
        r"E.env_config_cls is C, which is not derived from BaseEnvConfig",
    ),
    "a model as config class": (
        {
            "env": HEAD
            + "from pydantic import BaseModel\nclass C(BaseModel): ...\nclass E(BaseEnv):\n    env_config_cls: type = C"
        },
        ("WrongConfigClass", "env.py", 6),
        "not derived from BaseEnvConfig",
    ),
    "dict as config class": (
        {"env": HEAD + "class E(BaseEnv):\n    env_config_cls = dict"},
        ("WrongConfigClass", "env.py", 4),
        "not derived from BaseEnvConfig",
    ),
    "a text as config class": (
        {"env": HEAD + "class E(BaseEnv):\n    env_config_cls = 'C'"},
        ("WrongConfigClass", "env.py", 4),
        "not derived from BaseEnvConfig",
    ),
    "no such config class": (
        {"env": HEAD + "class E(BaseEnv):\n    env_config_cls = Confg"},
        ("WrongConfigClass", "env.py", 4),
        "Confg, which is not defined",
    ),
    "no such config class to import": (
        {"env": HEAD + "from lib import C\nclass E(BaseEnv):\n    env_config_cls = C", "lib": "class D: ..."},
        ("WrongConfigClass", "env.py", 5),
        "which is not defined",
    ),
    "a wrong config class in a base of the folder": (
        {
            "env": "from lib import B\nclass E(B): ...",
            "lib": HEAD + "\nclass B(BaseEnv, ABC):\n    env_config_cls = int",
        },
        ("WrongConfigClass", "lib.py", 5),
        "B.env_config_cls is int",
    ),
}


@pytest.mark.parametrize(("files", "where", "message"), PROBLEMS.values(), ids=PROBLEMS)
def test_a_problem_names_file_and_line(tmp_path, files, where, message):
    found = judged(tmp_path, **files)
    assert (found.problem.reason, found.problem.file, found.problem.line) == where
    assert found.environments == []
    assert re.search(message, found.problem.message), found.problem.message


IMPORTS: dict[str, tuple[dict[str, str], str | None, int | None, str]] = {
    "relative": ({"env": "\nfrom .lib import x as y\n" + GAME, "lib": "x = 1"}, "env.py", 2, "from lib import x as y"),
    "relative, of a module": ({"env": "from . import lib\n" + GAME, "lib": ""}, "env.py", 1, "import lib"),
    "relative, further on": ({"env": "import lib\n" + GAME, "lib": "from .deep import x"}, "lib.py", 1, "from deep"),
    "out of a package": ({"env": "import p.a\n" + GAME, "p____init__": "", "p__a": "from ..b import x"},
                         "p/a.py", 1, "from b import x"),
    "within a package": ({"env": "import p.a\n" + GAME, "p____init__": "from . import a", "p__a": "from .b import x",
                          "p__b": "x = 1"}, None, None, ""),
    "in a package": ({"env": "from .lib import x\n" + GAME, "lib": "from . import deep\nx = 1", "deep": "",
                      "__init__": ""}, None, None, ""),
    "in a package, whose files need no taken names": ({"env": "from .json import x\n" + GAME, "json": "x = 1",
                                                       "__init__": ""}, None, None, ""),
    "in a package that imports its parts": ({"env": "from .lib import x\n" + GAME, "lib": "x = __package__",
                                             "__init__": "from .lib import x"}, None, None, ""),
    "out of the top package": ({"env": "from .lib import x\n" + GAME, "lib": "from ..deep import x", "__init__": ""},
                               "lib.py", 1, "it climbs above the package"),
    "in a package that cannot be imported": ({"env": "from . import lib\n" + GAME, "lib": "",
                                              "__init__": "from ...far import x"}, "__init__.py", 1, "climbs above"),
    "in a folder with an __init__.py, of nothing relative": ({"env": "import lib\n" + GAME, "lib": "",
                                                              "__init__": "raise OSError"}, None, None, ""),
    "tried first": ({"env": "try:\n    from .lib import x\nexcept ImportError:\n    from lib import x\n" + GAME,
                     "lib": "x = 1"}, None, None, ""),
    "a name of Python's": ({"env": GAME, "statistics": ""}, "statistics.py", None, "statistics is already"),
    "a package with such a name": ({"env": GAME, "queue____init__": ""}, "queue/__init__.py", None, "queue is already"),
    "a name of ours": ({"env": GAME, "tinker_atropos": ""}, "tinker_atropos.py", None, "another name"),
    "wandb": ({"env": GAME, "wandb": ""}, "wandb.py", None, "another name"),
    "such a name further down": ({"env": GAME, "p__json": ""}, None, None, ""),
}  # fmt: skip


@pytest.mark.process
@pytest.mark.parametrize(("files", "file", "line", "message"), IMPORTS.values(), ids=IMPORTS)
def test_imports_are_checked_like_the_runners(tmp_path, files, file, line, message):
    problem = judged(tmp_path, **files).problem
    ran = forking.run([tmp_path / "env.py"], os.environ, code=LOAD)
    assert (ran.returncode == 0) == (problem is None) == (file is None), ran.stderr
    if problem is not None and file is not None:
        assert (problem.reason, problem.file, problem.line) == ("NotImportable", file, line)
        assert message in problem.message
        assert file.split("/")[-1 if line else 0] in ran.stderr.splitlines()[-1], "the runner names it, too"


PACKAGE = {
    "games/__init__.py": "",
    "games/board/__init__.py": "from ..rules import RULES",
    "games/board/chess.py": "from games.rules import RULES\nfrom .pieces import PIECES\n" + GAME,
    "games/board/pieces.py": "from ..rules import RULES as PIECES",
    "games/rules.py": "RULES = 1",
    "games/json.py": "",
}


@pytest.mark.process
def test_an_environment_inside_of_packages_is_served_as_a_part_of_the_top_one(tmp_path: Path) -> None:
    """Even if its folder has files of taken names: in a package they are nobody else's."""
    for file, text in PACKAGE.items():
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    found = discover_entry(tmp_path, "games/board/chess.py")
    assert found.problem is None
    assert [each.class_name for each in found.environments] == ["Game"]
    assert set(found.modules) == PACKAGE.keys() - {"games/json.py"}
    code = LOAD + "assert sys.modules['games.board.chess'].Game.__module__ == 'games.board.chess'\n"
    ran = forking.run([tmp_path / "games/board/chess.py"], os.environ, code=code)
    assert ran.returncode == 0, ran.stderr


def test_packages_above_the_searched_folder_are_not_known(tmp_path: Path) -> None:
    (tmp_path / "__init__.py").touch()
    (tmp_path / "board").mkdir()
    problem = judged(tmp_path / "board", env="from ..rules import RULES\n" + GAME, __init__="").problem
    assert (problem.reason, problem.file, problem.line) == ("NotImportable", "env.py", 1)
    assert "or out of the folder that is read" in problem.message


CONFIGS = {
    "of its own": "class C(BaseEnvConfig): ...\nclass E(BaseEnv):\n    env_config_cls = C",
    "of a parent": "class C(BaseEnvConfig): ...\nclass B(BaseEnv, ABC):\n    env_config_cls = C\nclass E(B): ...",
    "inside of it": "class E(BaseEnv):\n    class C(BaseEnvConfig): ...\n    env_config_cls = C",
    "under another name": "class C(BaseEnvConfig): ...\nD = C\nclass E(BaseEnv):\n    env_config_cls = D",
    "from elsewhere": "from gone import C\nclass E(BaseEnv):\n    env_config_cls = C",
    "of a class from elsewhere": "from gone import D\nclass C(D): ...\nclass E(BaseEnv):\n    env_config_cls = C",
    "that is made": "C = make()\nclass E(BaseEnv):\n    env_config_cls = C",
    "that is chosen": "if x: C = A\nelse: C = B\nclass E(BaseEnv):\n    env_config_cls = C",
    "that is called": "class E(BaseEnv):\n    env_config_cls = make()",
}


@pytest.mark.parametrize("source", CONFIGS.values(), ids=CONFIGS)
def test_a_possible_config_class_passes(tmp_path: Path, source: str) -> None:
    assert judged(tmp_path, env=HEAD + source).problem is None


def test_modules_are_the_files_the_entry_imports_itself(tmp_path: Path) -> None:
    found = judged(
        tmp_path,
        env=HEAD + "import json\nfrom lib.agents import A\nfrom near import B\ndef f():\n    import late\n"
        "class E(BaseEnv): ...",
        lib____init__="from lib.more import x",
        lib__agents="from env import E",
        lib__more="",
        near="import near",
        late="",
        unused="def f(:",
        lib__json="",
    )
    assert found.problem is None
    assert found.modules == ["env.py", "late.py", "lib/__init__.py", "lib/agents.py", "near.py", "lib/more.py"]


def test_a_missing_entry_names_the_existing_ones(tmp_path: Path) -> None:
    found = judged(tmp_path, other="")
    assert (found.problem.reason, found.problem.message) == (
        "NoEnvironment",
        "there is no such file (there is other.py)",
    )


@st.composite
def class_files(draw: st.DrawFn) -> str:
    """Classes that derive from each other or from BaseEnv, some abstract, some started."""
    lines = [HEAD]
    for index in range(draw(st.integers(0, 4))):
        bases = draw(st.lists(st.sampled_from(["BaseEnv", *(f"C{n}" for n in range(index))]), max_size=2, unique=True))
        abstract = ["ABC"] if draw(st.booleans()) else []
        lines.append(f"class C{index}({', '.join([*sorted(bases, reverse=True), *abstract])}): ...")
    if draw(st.booleans()):
        lines.append(f"if __name__ == '__main__':\n    C{draw(st.integers(0, 3))}.cli()")
    return "\n".join(lines)


@settings(max_examples=120, deadline=None)
@given(class_files())
def test_any_classes_are_checked_as_by_the_runner(tmp_path_factory: pytest.TempPathFactory, source: str) -> None:
    folder = tmp_path_factory.mktemp("classes")
    (folder / "env.py").write_text(source)
    try:
        served = load_environment(locate_environment(str(folder / "env.py"))).environment_class.__name__
    except ConfigError:
        served = None
    except Exception:  # noqa: BLE001 -- no such classes can be
        return
    found = discover_entry(folder, "env.py")
    assert [each.class_name for each in found.environments] == ([served] if served else [])


FILES = {path.name: path.read_text() for path in sorted(ENVIRONMENTS.glob("*.py"))}
FRAGMENTS = st.sampled_from(
    [
        "(",
        ")",
        "class",
        "BaseEnv",
        "\n",
        "    ",
        ":",
        "\0",
        "\\",
        '"""',
        "=",
        "import ",
        "é",
        "\ud800",
        "cli()",
        "if x:\n",
    ]
)


@st.composite
def damaged_files(draw: st.DrawFn) -> bytes:
    """A real file, cut short, with pieces removed, inserted, or duplicated."""
    text = draw(st.sampled_from(sorted(FILES.values())))
    for _ in range(draw(st.integers(1, 4))):
        begin = draw(st.integers(0, len(text)))
        end = min(len(text), begin + draw(st.integers(0, 60)))
        piece = draw(FRAGMENTS | st.just(text[begin:end] * 2) | st.text(max_size=5))
        text = text[:begin] + piece + (text[end:] if draw(st.booleans()) else "")
    return text.encode("utf-8", "surrogatepass")


@settings(max_examples=300, deadline=None)
@given(damaged_files())
def test_any_damage_gives_an_environment_or_a_problem_with_its_location(tmp_path_factory, content):
    folder = tmp_path_factory.mktemp("damaged")
    (folder / "env.py").write_bytes(content)
    found = discover_entry(folder, "env.py")
    assert (found.problem is None) == (len(found.environments) == 1)
    if found.problem is not None:
        assert found.problem.file == "env.py"
        assert found.problem.message
        line: Any = found.problem.line
        assert line is None or 1 <= line <= content.count(b"\n") + content.count(b"\r") + 2
        assert line is not None or found.problem.reason in ("NoEnvironment", "Unreadable")


def test_deep_chains_of_classes_are_a_problem_but_no_crash(tmp_path: Path) -> None:
    chain = "".join(f"class C{index}(C{index - 1}): ...\n" for index in range(1, 5000))
    found = judged(tmp_path, env=f"{HEAD}class C0(BaseEnv): ...\n{chain}")
    assert (found.problem.reason, found.problem.file) == ("Unreadable", "env.py")


def test_the_test_environments_are_checked_as_they_are_served(tmp_path: Path) -> None:
    judgments = {name: discover_entry(ENVIRONMENTS, name).problem for name in FILES}
    assert {name for name, problem in judgments.items() if problem} == {"syntax_error.py"}
    sources = Sources(ENVIRONMENTS)
    module = sources.module_of_file("plain_tools.py")
    assert [each.name for each in served_environments(sources, module)] == ["PlainTools"]
