"""rl_compare: runs side by side, or an experiment from best to worst, with a verdict in words."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from pydantic import Field

from rl_contract.run_metrics import EvaluatedFigure
from rl_operator.api.refusal import redacted
from rl_operator.api.value_text import text_of
from rl_operator.experiments.ranking import conclusions, ranked, verdicts
from rl_operator.experiments.run_figures import RunFigures, differing_settings
from rl_operator.status.text.sentences import cut
from rl_operator.targets.experiment_runs import figures, read_experiment
from rl_operator.tools.agent_tool import AgentTool, Answer, Arguments, ToolRefusedError
from rl_operator.tools.answers.run_status import without_empty
from rl_operator.tools.answers.shown_text import fit_tokens, one_line
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.runs import STATES, named_run

MOST: Final = 10
"""Runs side by side."""

SHOWN: Final = 20
"""Of an experiment: the best ones."""

MOST_SETTINGS: Final = 12
MOST_TOKENS: Final = 2_000
LONGEST_VALUE: Final = 80


class CompareRuns(Arguments):
    run_ids: list[str] | None = Field(default=None, description=f"2 to {MOST} runs.")
    experiment: str | None = Field(default=None, max_length=63, description="All runs of it instead.")


def compare(context: CallContext, asked: CompareRuns) -> Answer:
    if bool(asked.run_ids) == bool(asked.experiment):
        raise ToolRefusedError("give run_ids, a list of two runs or more, or experiment, the name of one; not both")
    answer = _experiment(context, asked.experiment) if asked.experiment else _runs(context, asked.run_ids or [])
    return fit_tokens(context.where() | without_empty(answer), MOST_TOKENS)


def _runs(context: CallContext, names: Sequence[str]) -> Answer:
    if not 2 <= len(names) <= MOST:
        raise ToolRefusedError(f"run_ids has {len(names)} runs: 2 to {MOST} can be compared")
    runs = [named_run(context, name) for name in names]
    if len({run.metadata.name for run in runs}) < len(runs):
        raise ToolRefusedError("run_ids names a run twice: a run is compared with others")
    rows = figures(context.target, runs)
    settings = dict(list(differing_settings(rows).items())[:MOST_SETTINGS])
    lines = [line(row, {field: values[at] for field, values in settings.items()}) for at, row in enumerate(rows)]
    return {"runs": lines, "verdicts": [each.sentence for each in verdicts(rows)]}


def _experiment(context: CallContext, name: str) -> Answer:
    """Best first. The table of runs that are gone is read, and not written: this tool only reads."""
    rows = ranked(read_experiment(context.target, context.namespace, name).rows)
    lines = [line(row, row.swept) for row in rows[:SHOWN]]
    return {"runs": lines, "more_runs": len(rows[SHOWN:]) or None, "verdicts": list(conclusions(rows))}


def line(row: RunFigures, settings: Mapping[str, object]) -> Answer:
    """One run, by the names that agents know. Pure."""
    return without_empty(
        {
            "run_id": row.name,
            "status": STATES[row.phase],
            "gone": row.gone or None,
            "step": None if row.step is None else row.steps,
            "reward_mean": row.reward,
            **_figure("eval", row.held_out),
            **_figure("baseline", row.before),
            "no_figure": row.without_figure,
            "settings": {field: _short(redacted(value, field)) for field, value in settings.items()},
        }
    )


def _figure(name: str, figure: EvaluatedFigure | None) -> Answer:
    if figure is None:
        return {}
    value = "eval_percent_correct" if name == "eval" else name
    ends = None if None in (figure.low, figure.high) else [figure.low, figure.high]
    return {value: figure.value, f"{name}_interval": ends, f"{name}_samples": figure.samples}


def _short(value: object) -> Any:
    text = text_of(value)
    short = value if len(text) <= LONGEST_VALUE else cut(text, LONGEST_VALUE)
    return one_line(short) if isinstance(short, str) else short


COMPARE: Final = AgentTool(
    name="rl_compare",
    title="Compare runs",
    description="Figures, differing settings, and which run is better as far as the intervals tell.",
    arguments=CompareRuns,
    call=compare,
    effect="reads",
)
