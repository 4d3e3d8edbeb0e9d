"""The size of the project: `make stats`. Each distribution, then all of them together.

tests/unit/test_names.py holds what must not change: a name is used once, and no imports go in a circle.
"""

import ast
import functools
import graphlib
import statistics
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
SOURCES = ("tinker-atropos/contract/src", "operator/src", "tinker-atropos/src", "tinker-atropos/tinker-service/src")
NOT_OURS = ("environments",)
"""Atropos' package: its names are not ours to choose."""


@dataclass(frozen=True)
class Module:
    """One file of the product. `package` is that of its distribution, `rl_operator` for example."""

    path: Path
    name: str
    text: str

    @property
    def package(self) -> str:
        return self.name.partition(".")[0]

    @functools.cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text)

    @property
    def is_package(self) -> bool:
        return self.path.name == "__init__.py"

    @property
    def size(self) -> int:
        return len(self.text.splitlines())


@functools.cache
def product() -> tuple[Module, ...]:
    """All of it, `__init__.py` included."""
    found = ((source, path) for source in SOURCES for path in sorted((ROOT / source).rglob("*.py")))
    return tuple(
        Module(path, ".".join(path.relative_to(ROOT / source).with_suffix("").parts).removesuffix(".__init__"),
               path.read_text(encoding="utf-8"))
        for source, path in found
    )  # fmt: skip


def counted(modules: Iterable[Module]) -> list[Module]:
    """Without packages' own files, which are docstrings or names that they export."""
    return [module for module in modules if not module.is_package]


def imports() -> Mapping[str, set[str]]:
    """Which modules each module imports, also inside of functions and for types only."""
    known = {module.name for module in product()}
    return {module.name: {name for name in _imported(module.tree) if name in known} for module in product()}


def _imported(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def circle() -> Sequence[str]:
    """A circle of imports between modules; empty: there is none. Packages' own files count as what they export."""
    graph = {name: found - {name} for name, found in imports().items()}
    packages = {module.name for module in product() if module.is_package}
    try:
        graphlib.TopologicalSorter({n: f - packages for n, f in graph.items() if n not in packages}).prepare()
    except graphlib.CycleError as error:
        found: Sequence[str] = error.args[1]
        return found
    return ()


def with_one_importer() -> list[str]:
    importers = Counter(name for found in imports().values() for name in found)
    return [module.name for module in counted(product()) if importers[module.name] == 1]


def function_local_imports() -> int:
    inside = (
        node
        for module in product()
        for function in ast.walk(module.tree)
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        for node in ast.walk(function)
    )
    return len({id(node) for node in inside if isinstance(node, ast.Import | ast.ImportFrom)})


def places(*, of_classes: bool) -> Mapping[str, set[str]]:
    """Where each name of a file, or of a class, is used."""
    found: dict[str, set[str]] = defaultdict(set)
    for module in counted(product()):
        if module.package in NOT_OURS:
            continue
        path = module.path.relative_to(ROOT).as_posix()
        classes = (node.name for node in ast.walk(module.tree) if isinstance(node, ast.ClassDef))
        for name in classes if of_classes else [module.path.name]:
            found[name].add(path)
    return found


def repeated(names: Mapping[str, set[str]]) -> dict[str, list[str]]:
    return {name: sorted(found) for name, found in names.items() if len(found) > 1}


def anys() -> float:
    """How often `Any` is written per 1,000 lines, imports aside."""
    written = sum(
        isinstance(node, ast.Name) and node.id == "Any" for module in product() for node in ast.walk(module.tree)
    )
    return 1000 * written / sum(module.size for module in product())


def lengths(tree: ast.AST) -> Iterator[int]:
    """Lines of every function, docstrings included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def quantiles(values: Sequence[int]) -> str:
    """Median, 90th percentile and largest."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.0f} / {ordered[len(ordered) * 9 // 10]} / {ordered[-1]}"


def rows(modules: Sequence[Module]) -> Iterator[tuple[str, str]]:
    """Of one distribution."""
    folders = Counter(module.path.parent for module in modules)
    largest, count = folders.most_common(1)[0]
    yield "modules", str(len(modules))
    yield "lines", str(sum(module.size for module in modules))
    yield "lines of a module: median / p90 / largest", quantiles([module.size for module in modules])
    yield "lines of a function: median / p90 / largest", quantiles([n for each in modules for n in lengths(each.tree)])
    yield "folders", str(len(folders))
    yield "largest folder", f"{count}: {largest.relative_to(ROOT).as_posix()}"


def rows_together() -> Iterator[tuple[str, str]]:
    modules, alone = counted(product()), with_one_importer()
    tests = sum(len(path.read_text(encoding="utf-8").splitlines()) for path in (ROOT / "tests").rglob("*.py"))
    lines = sum(module.size for module in modules)
    yield "modules", str(len(modules))
    yield "lines", str(lines)
    yield "lines of tests", f"{tests} ({tests / lines:.2f} x)"
    yield "modules with one importer", f"{len(alone)} ({100 * len(alone) / len(modules):.0f} %)"
    yield "imports inside of functions", str(function_local_imports())
    yield "circle of imports", " -> ".join(circle()) or "none"
    yield "Any per 1,000 lines", f"{anys():.1f}"
    yield "file names used twice", ", ".join(repeated(places(of_classes=False))) or "none"
    yield "class names used twice", ", ".join(repeated(places(of_classes=True))) or "none"


def main() -> None:
    packages = [package for package in dict.fromkeys(each.package for each in product()) if package not in NOT_OURS]
    for package in packages:
        _print(package, rows([module for module in counted(product()) if module.package == package]))
    _print("together", rows_together())


def _print(title: str, table: Iterable[tuple[str, str]]) -> None:
    print(title)
    for what, value in table:
        print(f"  {what:<45}{value}")


if __name__ == "__main__":
    main()
