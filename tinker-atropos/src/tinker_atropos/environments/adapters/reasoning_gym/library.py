"""reasoning-gym itself, imported without two of its dependencies.

cellpylib, for the game of life, imports matplotlib, which takes a third of the import's time and, at the first start in
a fresh home, seconds to look at all fonts. Nothing here plots. pycosat, for zebra puzzles, has no wheels: where it is
not installed, python-sat solves in its place.
"""

import contextlib
import importlib.util
import sys
from collections.abc import Iterable, Iterator
from types import ModuleType
from typing import Final

_PLOTTING: Final = (
    *("matplotlib", "matplotlib.pyplot", "matplotlib.animation", "matplotlib.collections"),
    *("mpl_toolkits", "mpl_toolkits.mplot3d"),
)


@contextlib.contextmanager
def _plotting_hidden() -> Iterator[None]:
    """Empty modules in place of those that are not imported yet."""
    hidden = {name: ModuleType(name) for name in _PLOTTING if name not in sys.modules}
    for module in hidden.values():
        module.Axes3D = None  # type: ignore[attr-defined]  # imported by name
    sys.modules.update(hidden)
    try:
        yield
    finally:
        for name in hidden:
            del sys.modules[name]


def _models(clauses: Iterable[Iterable[int]]) -> Iterator[list[int]]:
    """Assignments that satisfy all clauses, as `pycosat.itersolve` gives them."""
    from pysat.solvers import Cadical153

    with Cadical153(bootstrap_with=[list(clause) for clause in clauses]) as solver:
        yield from solver.enum_models()


if importlib.util.find_spec("pycosat") is None:
    sys.modules["pycosat"] = ModuleType("pycosat")
    sys.modules["pycosat"].itersolve = _models  # type: ignore[attr-defined]

with _plotting_hidden():
    from reasoning_gym import create_dataset
    from reasoning_gym.factory import DATASETS
    from reasoning_gym.utils import SYSTEM_PROMPTS, extract_answer

__all__ = ["DATASETS", "SYSTEM_PROMPTS", "create_dataset", "extract_answer"]
