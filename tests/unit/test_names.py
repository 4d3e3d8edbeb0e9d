"""One name, one thing: within a distribution no two files and no two classes share a name."""

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DISTRIBUTIONS = ("operator/src/rl_operator", "tinker-atropos/src/tinker_atropos")


def files(distribution: str) -> Iterator[tuple[str, str]]:
    for path in (ROOT / distribution).rglob("*.py"):
        if path.name != "__init__.py":
            yield path.name, str(path.relative_to(ROOT))


def classes(distribution: str) -> Iterator[tuple[str, str]]:
    for path in (ROOT / distribution).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                yield node.name, f"{path.relative_to(ROOT)}:{node.lineno}"


@pytest.mark.parametrize("distribution", DISTRIBUTIONS)
@pytest.mark.parametrize("named", [files, classes])
def test_a_name_is_used_once(named, distribution):
    places = defaultdict(list)
    for name, place in named(distribution):
        places[name].append(place)
    assert {name: found for name, found in places.items() if len(found) > 1} == {}
    assert places
