"""Keepers over a folder, what they keep, and how it is read: as docs/reference/rollout-files.md says."""

import io
import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import zstandard

from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.rollout_files.rollout_store import MEGABYTE, BackgroundMirror, BoundedFolder
from tinker_atropos.trainer.data.datums import build_batch
from tinker_atropos.trainer.rollouts.reported_rollouts import RolloutReport
from tinker_atropos.trainer.rollouts.rollout_lines import KeptRun, RolloutLines, TrainedStep
from tinker_atropos.trainer.rollouts.rollout_writer import RolloutWriter
from tinker_atropos.trainer.trajectories.batch_collector import Collected, DroppedGroup
from tinker_atropos.trainer.trajectories.deliveries import read_group

RUN = KeptRun("sorting-1", "team", "uid-1", 2, "bundled")
CLOSE_SECONDS = 60.0
GROUP: dict[str, Any] = {
    "tokens": [[11, 12, 13], [11, 12, 15]],
    "masks": [[-100, -100, 13], [-100, -100, 15]],
    "scores": [1.0, 0.0],
}


def pieces(tokens: Sequence[int]) -> list[str]:
    return [f"<{token}>" for token in tokens]


def trained(*groups: dict[str, Any], unusable: tuple[DroppedGroup, ...] = ()) -> TrainedStep:
    read = tuple(map(read_group, groups))
    batch = build_batch(read, TrainerSettings())
    collected = Collected(read, Counter(), 0, 0, 0, waited=0.0, unusable=unusable)
    return TrainedStep(collected, batch, [np.full(len(datum.target_T), -0.5) for datum in batch.datums])


def report(**fields: Any) -> RolloutReport:
    return RolloutReport.model_validate_json(json.dumps({"environment": 1, **fields}))


def new_keeper(
    folder: BoundedFolder,
    run: KeptRun = RUN,
    *,
    megabytes: int = 256,
    text_of: Callable[[Sequence[int]], list[str]] = pieces,
    mirror: BackgroundMirror | None = None,
    clock: Callable[[], float] = time.time,
) -> RolloutWriter:
    lines_of = RolloutLines(run, TrainerSettings(keep_rollouts_mb=megabytes), text_of)
    return RolloutWriter(folder, lines_of, mirror=mirror, clock=clock)


@contextmanager
def keeping(folder: Path | BoundedFolder, *, megabytes: int = 256, **options: Any) -> Iterator[RolloutWriter]:
    """All that was given to the keeper in the block is written after it."""
    kept = folder if isinstance(folder, BoundedFolder) else BoundedFolder(folder, megabytes * MEGABYTE)
    keeper = new_keeper(kept, megabytes=megabytes, clock=lambda: 1.5e9, **options)
    yield keeper
    keeper.close(CLOSE_SECONDS)


def lines(path: Path) -> list[dict[str, Any]]:
    with path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return [json.loads(line) for line in io.TextIOWrapper(stream, encoding="utf-8")]


class SlowFolder(BoundedFolder):
    """Holds each write until it is let go."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, MEGABYTE)
        self.entered, self.go_on = threading.Event(), threading.Event()

    def keeps(self, step: int) -> bool:
        self.entered.set()
        assert self.go_on.wait(60)
        return super().keeps(step)
