"""Which runs' answers are read, and what is said of those whose answers cannot be."""

from typing import Any

import pytest
from tests.unit.rl_operator.experiments.rows import row
from tests.unit.rl_operator.rollouts.made_rollouts import group, rollout, source
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_contract.status_metrics import EvaluatedFigure
from rl_operator.experiments.run_figures import RunFigures
from rl_operator.operator_errors import ForbiddenError, OperatorError, PodNeededError
from rl_operator.targets.runs.held_out_answers import with_answers

RUN = parsed(run_manifest("a"))
ROW = row("a", uid=RUN.metadata.uid, held_out=EvaluatedFigure(value=1.0, samples=1, step=3))
KEPT = source({"3-1": [group(0, rollout(1.0, worth=1.0), fate="evaluated", step=3, item="x")]})


def read(found: object, which: RunFigures = ROW) -> RunFigures:
    class Kept(MemoryTarget):
        def rollouts(self, run: Any, *, may_start: bool = True) -> Any:
            assert (run, may_start) == (RUN, False), "a comparison only reads"
            if isinstance(found, OperatorError):
                raise found
            return found

    (answered,) = with_answers(Kept(), [which], [RUN])
    return answered


def test_the_answers_are_read_from_the_runs_rollouts() -> None:
    found = read(KEPT)
    assert (list(found.answers.values()), found.unpaired) == ([(1.0,)], "")
    assert found.kept == ROW.kept, "the table of an experiment does not keep them"


@pytest.mark.parametrize(
    ("found", "settings", "why"),
    [
        (KEPT, {"trainer.keep_rollouts_mb": 0}, "trainer.keep_rollouts_mb is 0"),
        (PodNeededError("the trainer has ended"), {}, "rlctl rollouts a starts one"),
        (ForbiddenError("no"), {}, "no"),
        (source({}), {}, "there are no rollouts in memory"),
    ],
)
def test_why_there_are_none(found: object, settings: dict[str, Any], why: str) -> None:
    answered = read(found, ROW.with_changes(settings=settings))
    assert not answered.answers
    assert why in answered.unpaired


def test_runs_without_a_figure_and_runs_that_are_gone_are_left_alone() -> None:
    assert read(KEPT, row("a", uid=RUN.metadata.uid)) == row("a", uid=RUN.metadata.uid)
    gone = row("b", 0.5, gone=True)
    assert with_answers(MemoryTarget(), [gone], [RUN]) == (gone,)
