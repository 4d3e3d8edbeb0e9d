"""reasoning-gym itself, imported without two of its dependencies.

cellpylib, for the game of life, imports matplotlib, which takes a third of the import's time and, at the first start in
a fresh home, seconds to look at all fonts. Nothing here plots. pycosat, for zebra puzzles, has no wheels: where it is
not installed, python-sat solves in its place.
"""

import importlib.util
import sys
from collections.abc import Iterable, Iterator, Mapping
from types import ModuleType
from typing import Any, Final

from tinker_atropos.environments.adapters.stand_ins import standing_in

_PLOTTING: Final[Mapping[str, Mapping[str, Any]]] = {
    "matplotlib": {},
    "matplotlib.pyplot": {},
    "matplotlib.animation": {},
    "matplotlib.collections": {},
    "mpl_toolkits": {},
    "mpl_toolkits.mplot3d": {"Axes3D": None},
}


def _models(clauses: Iterable[Iterable[int]]) -> Iterator[list[int]]:
    """Assignments that satisfy all clauses, as `pycosat.itersolve` gives them."""
    from pysat.solvers import Cadical153

    with Cadical153(bootstrap_with=[list(clause) for clause in clauses]) as solver:
        yield from solver.enum_models()


if importlib.util.find_spec("pycosat") is None:
    sys.modules["pycosat"] = ModuleType("pycosat")
    sys.modules["pycosat"].itersolve = _models  # type: ignore[attr-defined]

with standing_in(_PLOTTING):
    from reasoning_gym import create_dataset
    from reasoning_gym.factory import DATASETS
    from reasoning_gym.utils import SYSTEM_PROMPTS, extract_answer

__all__ = ["DATASETS", "SYSTEM_PROMPTS", "create_dataset", "extract_answer"]
