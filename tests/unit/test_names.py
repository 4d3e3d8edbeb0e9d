"""One name, one thing: no two files and no two classes of the product share a name, and no two fixtures of the tests.

And imports have one way, and sentences are pinned once.
"""

import ast
from collections import defaultdict
from functools import cache
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
    found, _ = looked_through()
    assert {name: [str(at) for at in outermost(at)] for name, at in found.items() if is_ambiguous(outermost(at))} == {}
    assert len(found) > 100


@cache
def looked_through() -> tuple[dict[str, list[Path]], list[str]]:
    """The files that define each fixture, and the sentences in asserts: in one pass, for all tests are parsed."""
    defined, pinned = defaultdict(list), []
    for file in sorted(Path("tests").rglob("*.py")):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if "data" not in file.parts else ():
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                if any(ast.unparse(each).startswith("pytest.fixture") for each in node.decorator_list):
                    defined[node.name].append(file)
            elif isinstance(node, ast.Assert):
                pinned += sentences(node.test)
            elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "raises":
                pinned += [text for keyword in node.keywords if keyword.arg == "match" for text in sentences(keyword)]
    return defined, pinned


def sentences(node: ast.AST) -> list[str]:
    """Texts of 40 characters and five words or more."""
    texts = [each.value for each in ast.walk(node) if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return [text for text in texts if len(text) >= 40 and len(text.split()) >= 5]


def outermost(files: list[Path]) -> list[Path]:
    conftests = [file for file in files if file.name == "conftest.py"]
    return [file for file in files if not any(c != file and c.parent in file.parents for c in conftests)]


def is_ambiguous(files: list[Path]) -> bool:
    return len(files) > 1 and not all(file.name == "conftest.py" for file in files)


MOST_SENTENCES = 519
"""Where it is less, lower this: whoever changes a word changes it in each of these places."""


def test_no_more_sentences_are_pinned_in_asserts():
    """A new one is a row of a table (tests/data/refusals.yaml); a test asserts the code, field, value or reason."""
    assert len(looked_through()[1]) <= MOST_SENTENCES
