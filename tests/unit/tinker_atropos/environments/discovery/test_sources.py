"""What names mean, compared with Python on the same files."""

import ast
from pathlib import Path

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from tinker_atropos.environments.discovery.modules import SourceClass
from tinker_atropos.environments.discovery.sources import Foreign, Sources

Files = dict[str, str]


def write(folder: Path, files: Files) -> Path:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return folder


MEANINGS: dict[str, tuple[Files, str, str]] = {
    "a class of the file": ({"env.py": "class A: ..."}, "A", "env.py:A"),
    "of two, the later": ({"env.py": "class A: ...\nclass A: x = 1"}, "A", "env.py:A"),
    "inside an if": ({"env.py": "if True:\n    class A: ..."}, "A", "env.py:A"),
    "inside a try": ({"env.py": "try:\n    import x\nexcept ImportError:\n    class A: ..."}, "A", "env.py:A"),
    "another name for it": ({"env.py": "class A: ...\nB = A\nC = B"}, "C", "env.py:A"),
    "imported": ({"env.py": "from lib import A", "lib.py": "class A: ..."}, "A", "lib.py:A"),
    "imported under another name": ({"env.py": "from lib import A as B", "lib.py": "class A: ..."}, "B", "lib.py:A"),
    "relative": ({"env.py": "from .lib import A", "lib.py": "class A: ..."}, "A", "lib.py:A"),
    "from the module": ({"env.py": "import lib", "lib.py": "class A: ..."}, "lib.A", "lib.py:A"),
    "from the module, renamed": ({"env.py": "import lib as l", "lib.py": "class A: ..."}, "l.A", "lib.py:A"),
    "from a module of a package": ({"env.py": "import p.q", "p/q.py": "class A: ..."}, "p.q.A", "p/q.py:A"),
    "a module from a package": ({"env.py": "from p import q", "p/q.py": "class A: ..."}, "q.A", "p/q.py:A"),
    "re-exported by a package": (
        {"env.py": "from p import A", "p/__init__.py": "from .q import A", "p/q.py": "class A: ..."},
        "A",
        "p/q.py:A",
    ),
    "re-exported by a star": (
        {"env.py": "from p import *", "p/__init__.py": "from p.q import *", "p/q.py": "class A: ..."},
        "A",
        "p/q.py:A",
    ),
    "two levels up": (
        {"p/q/env.py": "from ..r import A", "p/r.py": "class A: ..."},
        "A",
        "p/r.py:A",
    ),
    "the second choice of a try": (
        {
            "env.py": "try:\n    from gone import A\nexcept ImportError:\n    from lib import A",
            "lib.py": "class A: ...",
        },
        "A",
        "lib.py:A",
    ),
    "beside, in a folder that somebody will have on the path": (
        {"p/env.py": "from lib import A", "p/lib.py": "class A: ..."},
        "A",
        "p/lib.py:A",
    ),
    "below the folder's own name": ({"env.py": "from envs.lib import A", "lib.py": "class A: ..."}, "A", "lib.py:A"),
    "in a file with an underscore": ({"env.py": "from _lib import A", "_lib.py": "class A: ..."}, "A", "_lib.py:A"),
    "nested": ({"env.py": "class A:\n    class B: ..."}, "A.B", "env.py:B"),
    "of a package that is not here": ({"env.py": "from gone.deep import A as B"}, "B", "gone.deep.A"),
    "of a module that is not here": ({"env.py": "import gone.deep"}, "gone.deep.A", "gone.deep.A"),
    "of a star of what is not here": ({"env.py": "from gone import *"}, "A", "gone.A"),
    "of Python": ({"env.py": ""}, "dict", "builtins.dict"),
    "nothing": ({"env.py": ""}, "A", "None"),
    "set twice": ({"env.py": "if x: A = B\nelse: A = C\nclass B: ...\nclass C: ..."}, "A", "None"),
    "a circle of imports": ({"env.py": "from lib import A", "lib.py": "from env import A"}, "A", "None"),
    "a circle of names": ({"env.py": "A = B\nB = A"}, "A", "None"),
    "what Python ships, whatever lies here": (
        {"env.py": "from json import A", "json.py": "class A: ..."},
        "A",
        "json.A",
    ),
}


@pytest.mark.parametrize(("files", "name", "meaning"), MEANINGS.values(), ids=MEANINGS)
def test_a_name_means(tmp_path: Path, files: Files, name: str, meaning: str) -> None:
    sources = Sources(write(tmp_path, files))
    entry = next(file for file in files if file.endswith("env.py"))
    module = sources.module_of_file(entry)
    found = sources.resolve(module, ast.parse(name, mode="eval").body)
    match found:
        case SourceClass():
            assert f"{found.module.file}:{found.name}" == meaning
        case Foreign():
            assert f"{found.module}.{found.name}" == meaning
        case _:
            assert str(found) == meaning


def test_with_an_import_root_only_that_folder_is_on_the_path(tmp_path: Path) -> None:
    files = {
        "p/env.py": "from lib import A\nfrom other import B",
        "p/lib.py": "class A: ...",
        "q/other.py": "class B: ...",
    }
    sources = Sources(write(tmp_path, files), import_root="p")
    module = sources.module_of_file("p/env.py")
    assert isinstance(sources.lookup(module, "A"), SourceClass)
    assert sources.lookup(module, "B") == Foreign("other", "B")


def test_hidden_folders_and_links_to_folders_are_skipped(tmp_path: Path) -> None:
    write(tmp_path, {".venv/a.py": "", "b/c.py": "", "__pycache__/d.py": "", ".e.py": "", "f.txt": ""})
    (tmp_path / "link").symlink_to(tmp_path / "b")
    (tmp_path / "g.py").symlink_to(tmp_path / "f.txt")  # as a ConfigMap is mounted
    assert list(Sources(tmp_path).paths) == ["b/c.py", "g.py"]


@st.composite
def class_graphs(draw: st.DrawFn) -> list[tuple[int, list[int]]]:
    """For each class the number of its file, and the earlier classes it derives from."""
    size = draw(st.integers(1, 9))
    return [
        (
            draw(st.integers(0, 2)),
            draw(st.lists(st.integers(0, index - 1), unique=True, max_size=3) if index else st.just([])),
        )
        for index in range(size)
    ]


@settings(max_examples=150, deadline=None)
@given(class_graphs())
def test_ancestry_matches_python(tmp_path_factory: pytest.TempPathFactory, graph: list[tuple[int, list[int]]]) -> None:
    """Classes C0, C1, … in three files, which import from each other if a base is needed."""
    folder = tmp_path_factory.mktemp("graph")
    names = [f"graph_of_classes_{number}" for number in range(3)]
    lines: dict[str, list[str]] = {name: [] for name in names}
    python: list[type] = []
    for index, (file, bases) in enumerate(graph):
        lines[names[file]] += [
            f"from {names[graph[base][0]]} import C{base}" for base in bases if graph[base][0] != file
        ]
        lines[names[file]].append(f"class C{index}({', '.join(f'C{base}' for base in bases)}): ...")
        try:
            python.append(type(f"C{index}", tuple(python[base] for base in bases), {}))
        except TypeError:  # no such class can exist
            assume(False)
    write(folder, {f"{name}.py": "\n".join(text) for name, text in lines.items()})
    sources = Sources(folder)
    for index, (file, _) in enumerate(graph):
        module = sources.module_of_file(f"{names[file]}.py")
        own = sources.lookup(module, f"C{index}")
        assert isinstance(own, SourceClass)
        ours = [each.name for each in sources.ancestry(own)]
        assert ours == [each.__name__ for each in python[index].__mro__[:-1]]


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.sampled_from(["A", "B", "C"]),
            st.sampled_from(["A", "B", "a.A", "b.B", "A[B]", "f(A)"]),
        ),
        max_size=8,
    )
)
def test_any_graph_terminates(tmp_path_factory: pytest.TempPathFactory, classes: list[tuple[str, str, str]]) -> None:
    """Cycles of classes, imports and re-exports."""
    head = "import a, b, c\nfrom a import *\nfrom b import A, B\nfrom c import C\n"
    texts = {f"{file}.py": head for file in "abc"}
    for file, name, base in classes:
        texts[f"{file}.py"] += f"class {name}({base}): ...\n"
    sources = Sources(write(tmp_path_factory.mktemp("circle"), texts))
    for file in texts:
        module = sources.module_of_file(file)
        for node in module.classes.values():
            assert sources.ancestry(SourceClass(module, node))[0].name == node.name
