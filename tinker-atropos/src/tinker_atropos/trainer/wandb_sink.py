"""The run's one W&B run. Advisory: whatever W&B does or fails to do, training goes on at the same pace.

All of wandb runs in a thread of its own behind a bounded queue; a full queue drops the newest point.
"""

import logging
import queue
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

logger = logging.getLogger(__name__)

State = Literal["disabled", "starting", "running", "offline", "failed", "finished"]

QUEUE_POINTS = 1_000
STEP_KEY = "train/step"


@dataclass(frozen=True, slots=True)
class WandbSettings:
    """Where the run goes. Project, group and name: None leaves the choice to W&B."""

    run_id: str | None
    project: str | None
    group: str | None
    name: str | None
    config: Mapping[str, Any]


def enabled(environ: Mapping[str, str]) -> bool:
    """W&B is used only when somebody asked for it: with a key, or for offline files."""
    mode = environ.get("WANDB_MODE", "")
    return mode == "offline" or (bool(environ.get("WANDB_API_KEY")) and mode != "disabled")


class WandbSink:
    """Takes metrics from the event loop without ever waiting for W&B."""

    def __init__(self, settings: WandbSettings | None) -> None:
        """None: disabled, every call is a no-op."""
        self._settings = settings
        self._points: queue.Queue[dict[str, Any] | None] = queue.Queue(QUEUE_POINTS)
        self._thread: threading.Thread | None = None
        self._state: State = "disabled"
        self._url: str | None = None
        self._run_id: str | None = settings.run_id if settings else None

    def start(self) -> None:
        if self._settings is not None:
            self._state = "starting"
            self._thread = threading.Thread(target=self._run, args=(self._settings,), daemon=True, name="wandb")
            self._thread.start()

    def log(self, step: int, metrics: Mapping[str, float]) -> None:
        """Queue one point of the axis `train/step`."""
        if self._state in ("starting", "running", "offline"):
            try:
                self._points.put_nowait({STEP_KEY: step, **metrics})
            except queue.Full:
                self._fail(TimeoutError(f"{QUEUE_POINTS} points wait to be sent"))

    def close(self, seconds: float) -> None:
        """Finish the W&B run, waiting at most `seconds`. Blocks: call it in a thread."""
        if self._thread is None or not self._thread.is_alive():
            return
        try:
            self._points.put_nowait(None)
        except queue.Full:
            return
        self._thread.join(seconds)
        if self._thread.is_alive():
            logger.warning("W&B did not take the last points within %g s; they stay in its folder", seconds)

    @property
    def alive(self) -> bool:
        """Whether W&B still holds the process: its exit hook would wait for an unreachable server."""
        return self._thread is not None and self._thread.is_alive()

    def to_wire(self) -> dict[str, Any]:
        return {"state": self._state, "url": self._url, "runId": self._run_id}

    def _run(self, settings: WandbSettings) -> None:
        try:
            import wandb

            run = wandb.init(
                id=settings.run_id,
                resume="allow",
                project=settings.project,
                group=settings.group,
                name=settings.name,
                config=dict(settings.config),
                settings=wandb.Settings(silent=True, console="off", disable_git=True, x_disable_stats=True),
            )
            run.define_metric(STEP_KEY)
            run.define_metric("*", step_metric=STEP_KEY)
            self._url, self._run_id = run.url, run.id
            self._state = "offline" if run.settings.mode == "offline" else "running"
            while (point := self._points.get()) is not None:
                run.log(point)
            run.finish()
            self._state = "finished"
        except Exception as error:  # noqa: BLE001 -- the thread's edge: W&B must never end a run
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        if self._state != "failed":
            self._state = "failed"
            logger.warning("W&B is off for this run: %s: %s", type(error).__name__, error)
