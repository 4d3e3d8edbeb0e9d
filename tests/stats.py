"""The size of the project: `make stats`. Modules, lines, folders, functions and repeated names of each distribution."""

import ast
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

ROOT = Path(__file__).parents[1]
DISTRIBUTIONS = {
    "rl_contract": "tinker-atropos/contract/src/rl_contract",
    "rl_operator": "operator/src/rl_operator",
    "tinker_atropos": "tinker-atropos/src/tinker_atropos",
}


def lengths(tree: ast.AST) -> Iterator[int]:
    """Lines of every function, docstrings included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield (node.end_lineno or node.lineno) - node.lineno + 1


def quantiles(values: Sequence[int]) -> str:
    """Median, 90th percentile and largest."""
    ordered = sorted(values)
    return f"{statistics.median(ordered):.0f} / {ordered[len(ordered) * 9 // 10]} / {ordered[-1]}"


def repeated(names: Iterator[str]) -> int:
    return sum(count > 1 for count in Counter(names).values())


def rows(root: Path) -> Iterator[tuple[str, str]]:
    modules = [path for path in sorted(root.rglob("*.py")) if path.name != "__init__.py"]
    trees = [ast.parse(path.read_text(encoding="utf-8")) for path in modules]
    sizes = [len(path.read_text(encoding="utf-8").splitlines()) for path in modules]
    folders = Counter(path.parent for path in modules)
    largest, count = folders.most_common(1)[0]
    functions = [length for tree in trees for length in lengths(tree)]
    classes = (node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.ClassDef))
    yield "modules", str(len(modules))
    yield "lines", str(sum(sizes))
    yield "lines of a module: median / p90 / largest", quantiles(sizes)
    yield "lines of a function: median / p90 / largest", quantiles(functions)
    yield "folders", str(len(folders))
    yield "largest folder", f"{count}: {largest.relative_to(ROOT / root).as_posix()}"
    yield "file names used twice", str(repeated(path.name for path in modules))
    yield "class names used twice", str(repeated(classes))


def main() -> None:
    for name, folder in DISTRIBUTIONS.items():
        print(name)
        for what, value in rows(ROOT / folder):
            print(f"  {what:<45}{value}")


if __name__ == "__main__":
    main()
