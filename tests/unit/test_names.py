"""One name, one thing: no two files and no two classes of the product share a name, and no two fixtures of the tests.

And imports have one way.
"""

import ast
from collections import defaultdict
from pathlib import Path

import pytest
from tests.stats import circle, places, product, repeated

SAME_THING = {
    "Environment",  # of the run, whose spec names it, and what an author derives it from
}


@pytest.mark.parametrize("of_classes", [False, True], ids=["files", "classes"])
def test_a_name_is_used_once(of_classes):
    found = places(of_classes=of_classes)
    assert {name: where for name, where in repeated(found).items() if name not in SAME_THING} == {}
    assert found


def test_no_module_imports_itself_through_others():
    assert len(product()) > 100
    assert circle() == ()


def test_a_fixtures_name_stands_for_one_thing():
    """Another fixture of the name overrides an outer one, or each is the one of its own folder, in a conftest."""
    found = fixtures()
    assert {name: [str(at) for at in outermost(at)] for name, at in found.items() if is_ambiguous(outermost(at))} == {}
    assert len(found) > 100


def fixtures() -> dict[str, list[Path]]:
    """The files that define each."""
    found = defaultdict(list)
    for file in sorted(Path("tests").rglob("*.py")):
        if "data" not in file.parts:
            tree = ast.parse(file.read_text(encoding="utf-8"))
            functions = (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef))
            for function in functions:
                if any(ast.unparse(each).startswith("pytest.fixture") for each in function.decorator_list):
                    found[function.name].append(file)
    return found


def outermost(files: list[Path]) -> list[Path]:
    conftests = [file for file in files if file.name == "conftest.py"]
    return [file for file in files if not any(c != file and c.parent in file.parents for c in conftests)]


def is_ambiguous(files: list[Path]) -> bool:
    return len(files) > 1 and not all(file.name == "conftest.py" for file in files)
