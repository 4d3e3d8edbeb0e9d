"""Which weights are kept as the best, in the order in which saves and results arrive; the backend is scripted."""

import asyncio
from collections.abc import Iterable, Sequence
from typing import Any

import pytest

from rl_contract.status_metrics import EvaluatedFigure
from rl_contract.trainer_messages import BestCheckpoint, TrainerResult
from tinker_atropos.errors import BackendError, InternalError
from tinker_atropos.result import ResultFile
from tinker_atropos.trainer.backend.checkpoints import StoredCheckpoint
from tinker_atropos.trainer.backend.policy import Policy
from tinker_atropos.trainer.best_weights import BestWeights, Candidate
from tinker_atropos.trainer.data.step_counts import StepCounts
from tinker_atropos.trainer.reporting.trainer_status import LiveStatus
from tinker_atropos.trainer.trainer_state import TrainerState

EARLIER = BestCheckpoint(
    step=20,
    held_out=EvaluatedFigure(value=0.7, low=0.65, high=0.75),
    state_path="state-20-of-attempt-1",
    sampler_path="sampler-20-of-attempt-1",
)


class Stored:
    """A backend's checkpoints by path, and the paths that the run's keeper was told to spare."""

    def __init__(self) -> None:
        self.paths: list[str] = []
        self.forever: list[str] = []
        self.spared: set[str] = set()
        self.error: Exception | None = None
        self.silent = False
        self.stored = self  # it stands for the keeper, too
        self.stuck: str | None = None

    async def list(self) -> list[StoredCheckpoint]:
        if self.error is not None:
            raise self.error
        kinds = ((path, "sampler" if path.startswith("sampler") else "state") for path in self.paths)
        return [StoredCheckpoint(path, kind, "u", 1, 20) for path, kind in kinds]

    def samplers_of_earlier_attempts(self, listed: Iterable[StoredCheckpoint]) -> Sequence[StoredCheckpoint]:
        return [each for each in listed if each.path.startswith("sampler-earlier")]

    async def delete(self, path: str) -> None:
        if self.error is not None:
            raise self.error
        if path == self.stuck:
            raise BackendError(f"deleting {path}: the disk is full")
        self.paths.remove(path)

    async def keep_forever(self, path: str) -> None:
        if self.silent:
            await asyncio.Event().wait()
        if self.error is not None:
            raise self.error
        self.forever.append(path)

    async def tidy(self, spared: set[str]) -> None:
        self.spared = spared


class Training:
    """One run: its best weights, and the backend."""

    def __init__(self, found: BestCheckpoint | None = None) -> None:
        self.stored: Any = Stored()
        self.state = TrainerState(
            StepCounts(100), LiveStatus(100), ResultFile(None, TrainerResult(outcome="running", total_steps=100))
        )
        self.weights = BestWeights(self.state, self.stored, found)

    def save(self, step: int, expires_at: str | None = None) -> None:
        self.stored.paths += [f"state-{step}", f"sampler-{step}"]
        self.weights.saved(step, Candidate(f"state-{step}", f"sampler-{step}", expires_at))

    def evaluate(self, step: int, figure: float) -> None:
        self.weights.evaluated(step, EvaluatedFigure(value=figure, low=round(figure - 0.1, 4), step=step))

    @property
    def best(self) -> tuple[int, float] | None:
        best = self.state.status.best
        assert best == self.state.results.result.best_checkpoint
        return best and (best.step, best.held_out.value)


@pytest.fixture
async def scripted_training() -> Training:
    return Training()


async def test_the_highest_figure_wins_and_of_equal_ones_the_earlier(scripted_training) -> None:
    for step, figure in ((10, 0.5), (20, 0.8), (30, 0.8), (40, 0.6)):
        scripted_training.save(step)
        scripted_training.evaluate(step, figure)
    assert scripted_training.best == (20, 0.8)
    assert scripted_training.weights.best.held_out.low == 0.7
    await scripted_training.weights.tidy()
    assert [path for path in scripted_training.stored.paths if path.startswith("sampler")] == ["sampler-20"]
    assert scripted_training.stored.spared == {"state-20", "sampler-20"}


async def test_a_result_may_come_before_the_weights_are_saved(scripted_training) -> None:
    scripted_training.evaluate(10, 0.5)
    assert scripted_training.best is None
    scripted_training.save(10)
    assert scripted_training.best == (10, 0.5)


async def test_weights_that_were_not_saved_cannot_be_the_best(scripted_training) -> None:
    scripted_training.evaluate(0, 0.9)
    scripted_training.save(10)
    scripted_training.evaluate(10, 0.5)
    assert scripted_training.best == (10, 0.5)


async def test_what_waits_for_its_result_is_never_deleted(scripted_training) -> None:
    scripted_training.save(10)
    await scripted_training.weights.tidy()
    assert scripted_training.stored.spared == {"state-10", "sampler-10"}
    assert "sampler-10" in scripted_training.stored.paths


async def test_evaluations_without_a_result_do_not_keep_their_weights(scripted_training) -> None:
    for step in (10, 20, 30, 40):
        scripted_training.save(step)
    await scripted_training.weights.tidy()
    assert scripted_training.stored.spared == {"state-30", "sampler-30", "state-40", "sampler-40"}
    assert "sampler-10" not in scripted_training.stored.paths


@pytest.mark.parametrize("ended", [False, True])
async def test_a_late_result_finds_its_weights(scripted_training, ended) -> None:
    """Step 10 is still evaluated when three more are due, or its result is on its way."""
    sampler: Any = object()
    scripted_training.state.policy.swap(Policy(10, sampler), opened=True)
    scripted_training.state.policy.begin_evaluation(10)
    scripted_training.save(10)
    if ended:
        scripted_training.state.policy.end_evaluation(10)
    for step in (20, 30, 40):
        scripted_training.save(step)
    scripted_training.evaluate(10, 0.9)
    assert scripted_training.best == (10, 0.9)


async def test_the_best_never_expires(scripted_training) -> None:
    scripted_training.save(10, "2026-12-24T18:00:00Z")
    scripted_training.evaluate(10, 0.5)
    assert scripted_training.weights.best.expires_at == "2026-12-24T18:00:00Z"
    await scripted_training.weights.tidy()
    assert scripted_training.stored.forever == ["state-10", "sampler-10"]
    assert scripted_training.weights.best.expires_at is None


async def test_why_the_best_may_expire_is_said(scripted_training, caplog) -> None:
    scripted_training.save(10, "2026-12-24T18:00:00Z")
    scripted_training.evaluate(10, 0.5)
    scripted_training.stored.error = BackendError("keeping state-10: HTTP 403")
    await scripted_training.weights.keep(5.0)
    scripted_training.stored.silent = True
    await scripted_training.weights.keep(0.01)
    assert caplog.messages == [
        "the best weights may expire: keeping state-10: HTTP 403",
        "the best weights may expire: no answer within 0.01 s",
    ]
    assert scripted_training.weights.best.expires_at is not None


async def test_the_best_of_an_earlier_attempt_stays_until_it_is_beaten() -> None:
    training = Training(EARLIER)
    training.stored.paths = [EARLIER.state_path, EARLIER.sampler_path, "sampler-earlier-24"]
    await training.weights.check()
    await training.weights.tidy()
    assert training.stored.paths == [EARLIER.state_path, EARLIER.sampler_path], "a result that nobody waits for"
    training.save(30)
    training.evaluate(30, 0.6)
    assert training.best == (20, 0.7)
    training.save(40)
    training.evaluate(40, 0.71)
    assert training.best == (40, 0.71)
    await training.weights.tidy()
    assert EARLIER.sampler_path not in training.stored.paths


@pytest.mark.parametrize("left", [[], [EARLIER.state_path], [EARLIER.sampler_path]])
async def test_a_best_that_the_backend_no_longer_has_is_forgotten(left) -> None:
    training = Training(EARLIER)
    training.stored.paths = left
    await training.weights.check()
    assert training.best is None
    assert "step 20" in training.state.status.warnings["best"]


async def test_a_backend_that_cannot_say_changes_nothing() -> None:
    training = Training(EARLIER)
    training.stored.error = BackendError("listing checkpoints: no answer")
    await training.weights.check()
    assert training.best == (20, 0.7)


async def test_the_final_weights_are_never_deleted(scripted_training) -> None:
    scripted_training.state.results.write(sampler_path="sampler-100")
    scripted_training.save(50)
    scripted_training.evaluate(50, 0.9)
    scripted_training.save(100)
    scripted_training.evaluate(100, 0.4)
    await scripted_training.weights.tidy()
    assert {"sampler-50", "sampler-100"} <= set(scripted_training.stored.paths)


async def test_one_failed_deletion_holds_nothing_else_up(scripted_training, caplog) -> None:
    """Neither the others nor the expiry of the best; and what is deleted is not deleted again."""
    for step, figure in ((10, 0.1), (20, 0.2), (30, 0.3), (40, 0.8)):
        scripted_training.save(step, "2026-12-24T18:00:00Z")
        scripted_training.evaluate(step, figure)
    scripted_training.stored.stuck = "sampler-20"
    await scripted_training.weights.tidy()
    assert [path for path in scripted_training.stored.paths if path.startswith("sampler")] == [
        "sampler-20",
        "sampler-40",
    ]
    assert scripted_training.stored.forever == ["state-40", "sampler-40"]
    assert caplog.messages == ["weights of an evaluation could not be deleted: deleting sampler-20: the disk is full"]
    scripted_training.stored.stuck = None
    await scripted_training.weights.tidy()
    assert "sampler-20" not in scripted_training.stored.paths
    assert len(caplog.messages) == 1


async def test_a_failed_deletion_is_tried_again_and_a_newer_attempt_is_not_ignored(scripted_training) -> None:
    for step, figure in ((10, 0.5), (20, 0.8)):
        scripted_training.save(step)
        scripted_training.evaluate(step, figure)
    scripted_training.stored.error = BackendError("deleting: no answer")
    await scripted_training.weights.tidy()
    scripted_training.stored.error = None
    await scripted_training.weights.tidy()
    assert "sampler-10" not in scripted_training.stored.paths
    await scripted_training.weights.tidy()

    async def newer(*_args: Any, **_kwargs: Any) -> None:
        raise InternalError("attempt 2 of this run has already saved")

    scripted_training.stored.tidy = newer
    with pytest.raises(InternalError):
        await scripted_training.weights.tidy()
