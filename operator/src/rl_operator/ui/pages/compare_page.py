"""Several runs over each other: their curves, their figures, the settings that differ, and a verdict."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_operator.documents.parse import parse_stored_run
from rl_operator.documents.yaml_text import flow
from rl_operator.experiments.comparison import Comparison
from rl_operator.experiments.ranking import verdicts
from rl_operator.experiments.run_figures import RunFigures, differing_settings
from rl_operator.operator_errors import RefusedError
from rl_operator.rollouts.visible_text import visible
from rl_operator.status.text.sentences import cut
from rl_operator.targets.experiment_runs import figures
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.runs.run_text import compared_figures
from rl_operator.targets.target import Target
from rl_operator.ui.ui_context import asked, context_of, visitor_of

LONGEST_VALUE: Final = 200
UNKNOWN: Final = "–"


@dataclass(frozen=True, slots=True)
class ComparisonRow:
    name: str
    cells: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SideBySide:
    figures: tuple[ComparisonRow, ...]
    settings: tuple[ComparisonRow, ...]
    verdicts: tuple[str, ...]
    """One that begins with the name of a run begins with a small letter: names have no others."""


def side_by_side_rows(rows: Sequence[RunFigures]) -> SideBySide:
    told = [compared_figures(row, UNKNOWN) for row in rows]
    figures = tuple(ComparisonRow(name, tuple(each[name] for each in told)) for name in (told[0] if told else ()))
    differing = differing_settings(rows).items()
    settings = tuple(ComparisonRow(field, tuple(map(_shown, values))) for field, values in differing)
    return SideBySide(figures, settings, tuple(map(_sentence, verdicts(rows))))


def _sentence(verdict: Comparison) -> str:
    said = visible(verdict.sentence)
    return f"{said if verdict.sentence.startswith(verdict.runs) else said[:1].upper() + said[1:]}."


def _shown(value: object) -> str:
    return cut(visible(flow(value)), LONGEST_VALUE)


FEWEST, MOST = 2, 5

Key = tuple[str, str]


async def compare_runs_page(request: Request) -> Response:
    """`?run=NAMESPACE/NAME`, two to five times."""
    named = list(dict.fromkeys(request.query_params.getlist("run")))
    if not FEWEST <= len(named) <= MOST:
        values = {"title": "Compare", "asked_for": len(named), "runs": []}
    else:
        values = await asked(_values, visitor_of(request).target, [_key(each) for each in named])
    return context_of(request).page(request, "compare.html", {"fewest": FEWEST, "most": MOST, **values})


def _key(text: str) -> Key:
    namespace, slash, name = text.partition("/")
    if not (namespace and slash and name):
        raise RefusedError(f"run is {text[:100]!r}; it must be NAMESPACE/NAME")
    return namespace, name


def _values(target: Target, keys: Sequence[Key]) -> dict[str, Any]:
    runs = [parse_stored_run(existing_run(target, *key)) for key in keys]
    several = len({namespace for namespace, _ in keys}) > 1
    return {
        "title": "Compare " + ", ".join(name for _, name in keys),
        "asked_for": len(keys),
        "runs": [
            {
                "label": f"{namespace}/{name}" if several else name,
                "path": f"{quote(namespace, safe='')}/{quote(name, safe='')}",
            }
            for namespace, name in keys
        ],
        "compared": side_by_side_rows(figures(target, runs)),
    }


ROUTES: Final = [Route("/compare", compare_runs_page)]
