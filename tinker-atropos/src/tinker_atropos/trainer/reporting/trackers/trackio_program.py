"""Trackio in a process of its own: `python -m tinker_atropos.trainer.reporting.trackers.trackio_program SETTINGS`."""

import json
import os
import shlex
import sys
import warnings
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from tinker_atropos.trainer.reporting.trackers.step_axis import STEP_KEY, StepAxis
from tinker_atropos.trainer.reporting.trackers.tracker_program import follow, take_the_background, tell, tell_failure

INTERRUPTED = "interrupted: later points are missing"
RESULT_KEY = "result/summary"


class TrackioRecording:
    """The open run. Implements `tracker_program.Recording`."""

    def __init__(self, trackio: Any, run: Any) -> None:
        self._trackio = trackio
        self._run = run
        self._last = max(run._next_step - 1, 0)  # noqa: SLF001 -- the only place that knows it for all ways to store

    def axis(self) -> StepAxis:
        """The axis after what earlier attempts logged."""
        return StepAxis(self._last)

    def log(self, point: Mapping[str, Any]) -> None:
        self._last = int(point[STEP_KEY])
        self._run.log({name: value for name, value in point.items() if name != STEP_KEY}, step=self._last)

    def table(self, columns: Sequence[str], rows: Sequence[Sequence[Any]], step: int) -> Any:
        del step
        return self._trackio.Table(columns=columns, data=rows)

    def conclude(self, summary: Mapping[str, Any]) -> None:
        """Trackio has no summary of a run: a table of it stands at the last step."""
        rows = [[name.removeprefix("result/"), _as_text(value)] for name, value in summary.items() if value is not None]
        self._run.log({RESULT_KEY: self._trackio.Table(columns=["name", "value"], data=rows)}, step=self._last)


def main() -> None:
    take_the_background(stdout=os.open(os.devnull, os.O_WRONLY))  # it greets people in a terminal
    try:
        import trackio

        run = _open(trackio, json.loads(sys.argv[1]))
        recording = TrackioRecording(trackio, run)
        follow(sys.stdin.buffer, recording.axis(), recording, "Trackio")
        run.finish()
    except Exception as error:  # noqa: BLE001 -- the process's edge: the trainer logs it once and continues
        tell_failure(error)
        os._exit(1)  # its exit would try to send the rest
    tell(state="finished")


def _open(trackio: Any, wanted: Mapping[str, Any]) -> Any:
    """The run, resumed where its earlier attempts ended. What Trackio warns of from now on is told to the trainer."""
    warnings.filterwarnings("always", category=UserWarning)
    warnings.filterwarnings("ignore", message="Reserved keys renamed")  # nothing is lost: `step` becomes `__step`
    warnings.showwarning = lambda message, *_, **__: tell(trouble=str(message).splitlines()[0])
    name = own_name(wanted["name"], wanted["uid"], dict(_uids(trackio, wanted["project"])))
    run = trackio.init(
        project=wanted["project"], name=name, group=wanted["group"], config=wanted["config"], resume="allow",
        embed=False, auto_log_gpu=False, auto_log_cpu=False,
    )  # fmt: skip
    tell(state="running", run=name, show=_shown(trackio, run), if_unsent=INTERRUPTED)
    return run


def own_name(name: str, uid: str, uids: Mapping[str, str | None]) -> str:
    """Trackio resumes a run by its name. `uids` says whose the names in the project are: if another run has ours, we
    add the beginning of our uid, and keep it in later attempts.
    """
    longer = f"{name}-{uid[:8]}"
    return longer if longer in uids or uids.get(name, uid) != uid else name


def _uids(trackio: Any, project: str) -> Iterator[tuple[str, str | None]]:
    try:
        runs = trackio.Api().runs(project)
    except ValueError:  # it does not exist yet
        return
    for run in runs:
        yield run.name, ((run.config or {}).get("run") or {}).get("uid")


def _shown(trackio: Any, run: Any) -> str:
    """The page of a run that is sent elsewhere, else the command that shows the project's folder."""
    if run.url:
        return str(run.url)
    folder = shlex.quote(str(trackio.utils.TRACKIO_DIR))
    return f"TRACKIO_DIR={folder} trackio show --project {shlex.quote(run.project)}"


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


if __name__ == "__main__":
    main()
