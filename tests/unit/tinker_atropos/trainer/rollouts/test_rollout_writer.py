"""Files as the keeper writes them, and that nothing that goes wrong with them is anything but a note."""

import threading
import time
from dataclasses import replace

import numpy as np
import pytest
from tests.unit.tinker_atropos.trainer.rollouts.kept_steps import (
    GROUP,
    MEGABYTE,
    RUN,
    SlowFolder,
    keeping,
    lines,
    new_keeper,
    report,
    trained,
)

from tinker_atropos.rollout_files.rollout_store import BoundedFolder
from tinker_atropos.trainer.rollouts.rollout_writer import MOST_WAITING, RolloutWriter
from tinker_atropos.trainer.trajectories.batch_collector import DroppedGroup
from tinker_atropos.trainer.trajectories.deliveries import read_group

EQUAL = {**GROUP, "scores": [0.0, 0.0]}
DROPPED = {"fate": "dropped", "reason": "equal", "why": "all the same", "group": EQUAL}
LOST = {"what": "rollout", "reason": "timeout", "why": "30 s", "count": 3, "tokens": 40}


def evaluated(step: int) -> dict:
    return {"fate": "evaluated", "step": step, "group": GROUP}


def test_a_step(tmp_path) -> None:
    stale = DroppedGroup(read_group(GROUP), "stale", "it is old")
    with keeping(tmp_path) as keeper:
        keeper.step_trained(12, trained(GROUP, EQUAL, unusable=(stale,)), {"reward/mean": 0.25, "x": float("nan")})
    step, *groups = lines(tmp_path / "000012-2.jsonl.zst")
    assert step == {
        "record": "step",
        "format": 1,
        "run": "sorting-1",
        "namespace": "team",
        "uid": "uid-1",
        "attempt": 2,
        "model": "bundled",
        "step": 12,
        "time": 1.5e9,
        "metrics": {"reward/mean": 0.25, "x": None},
        "tokens": {"trained": 2, "no_advantage": 2, "dropped": 2},
    }
    assert [(group["record"], group["fate"], group["group"]) for group in groups] == [
        ("group", "trained", 0),
        ("group", "no_advantage", 0),
        ("group", "dropped", 0),
    ]
    assert groups[0]["prompt"] == {"tokens": [11, 12], "pieces": ["<11>", "<12>"]}
    assert (keeper.warning, keeper.listing()) == (None, {"every": 1, "note": None})
    assert lines(tmp_path / "metrics-2.jsonl.zst") == [step]


def test_what_environments_report_is_in_the_step_it_belongs_to(tmp_path) -> None:
    with keeping(tmp_path) as keeper:
        keeper.reported(report(groups=[evaluated(0), DROPPED, evaluated(0), evaluated(5)], lost=[LOST]), collecting=6)
        keeper.reported(report(groups=[evaluated(5)]), collecting=7)
        keeper.evaluated(5, {"eval/percent_correct": 0.5})
    first = lines(tmp_path / "000000-2.jsonl.zst")
    assert [(line["fate"], line["group"], line["step"], line["environment"]) for line in first] == [
        ("evaluated", 0, 0, 1),
        ("evaluated", 1, 0, 1),
    ]
    *fifth, result = lines(tmp_path / "000005-2.jsonl.zst")
    assert [line["group"] for line in fifth] == [0, 1]
    assert result == {"record": "evaluation", "step": 5, "time": 1.5e9, "metrics": {"eval/percent_correct": 0.5}}
    dropped, lost = lines(tmp_path / "000006-2.jsonl.zst")
    assert (dropped["fate"], dropped["reason"], dropped["why"]) == ("dropped", "equal", "all the same")
    assert "step" not in dropped
    assert lost == {"record": "lost", **LOST, "environment": 1, "time": 1.5e9}
    assert lines(tmp_path / "metrics-2.jsonl.zst") == [result]
    assert not list(tmp_path.glob("000007*"))


def test_answers_whose_reward_is_not_known_have_none(tmp_path) -> None:
    group = GROUP | {"scores": [None, None]}
    with keeping(tmp_path) as keeper:
        keeper.reported(report(groups=[evaluated(5) | {"group": group}]), collecting=6)
    [line] = lines(tmp_path / "000005-2.jsonl.zst")
    assert [(rollout["reward"], rollout["advantage"]) for rollout in line["rollouts"]] == [(None, None)] * 2
    assert keeper.warning is None


def test_dropped_groups_have_a_number_each_whoever_dropped_them(tmp_path) -> None:
    stale = DroppedGroup(read_group(GROUP), "stale", "it is old")
    with keeping(tmp_path) as keeper:
        keeper.reported(report(groups=[DROPPED, DROPPED]), collecting=1)
        keeper.step_trained(1, trained(GROUP, unusable=(stale, stale)), {})
        keeper.reported(report(groups=[DROPPED]), collecting=1)
    groups = [line for line in lines(tmp_path / "000001-2.jsonl.zst") if line.get("fate") == "dropped"]
    assert [group["group"] for group in groups] == [0, 1, 2, 3, 4]


def test_what_cannot_be_written_as_json_costs_only_itself(tmp_path) -> None:
    deep: list = []
    for _ in range(300):  # orjson reads as much, and writes 254
        deep = [deep]
    told = {"item": deep, "components": [{"a": 1}, deep]}
    with keeping(tmp_path) as keeper:
        keeper.step_trained(1, trained({**GROUP, "group_overrides": told}, GROUP), {"reward/mean": 0.5})
        keeper.reported(report(groups=[], lost=[LOST | {"item": 10**30}]), collecting=1)
    step, strange, plain, lost = lines(tmp_path / "000001-2.jsonl.zst")
    assert step["tokens"] == {"trained": 4}
    assert "item" not in strange
    assert [rollout["reward"] for rollout in strange["rollouts"]] == [1.0, 0.0]
    assert strange["rollouts"][0].keys() == plain["rollouts"][0].keys()
    assert (lost["why"], "item" in lost) == ("30 s", False)
    assert keeper.warning is None


def test_nothing_is_kept_with_0(tmp_path) -> None:
    before = threading.active_count()
    with keeping(tmp_path / "rollouts", megabytes=0) as keeper:
        assert threading.active_count() == before
        keeper.step_trained(1, trained(GROUP), {})
        keeper.reported(report(groups=[evaluated(0)], lost=[LOST]), collecting=1)
        keeper.evaluated(1, {})
    assert list(tmp_path.iterdir()) == []
    assert keeper.listing()["note"] is None


def test_a_step_that_is_not_kept_is_in_the_metrics(tmp_path) -> None:
    folder = BoundedFolder(tmp_path, MEGABYTE)
    folder.every = 2
    with keeping(folder, megabytes=1) as keeper:
        for step in (1, 2):
            keeper.step_trained(step, trained(GROUP), {"reward/mean": 0.5})
            keeper.reported(report(lost=[LOST]), collecting=step)
    assert [line["step"] for line in lines(tmp_path / "metrics-2.jsonl.zst")] == [1, 2]
    assert sorted(folder.names()) == ["000002-2.jsonl.zst", "metrics-2.jsonl.zst"]


class FailingFolder(BoundedFolder):
    """Fails as long as it has an error."""

    error: Exception | None = None

    def __init__(self, folder, limit_bytes):
        super().__init__(folder, limit_bytes)
        self.asked = threading.Semaphore(0)

    def append(self, file, content):
        self.asked.release()
        if self.error:
            raise self.error
        return super().append(file, content)


FAILURES = {
    "a full disk": (OSError(28, "No space left on device"), "No space left on device"),
    "a large step": (OSError("step 1 takes 9.0 MB"), "step 1 takes 9.0 MB"),
    "a defect": (KeyError("no"), "KeyError: 'no'"),
}


@pytest.mark.parametrize(("error", "why"), FAILURES.values(), ids=FAILURES)
def test_a_failure_is_a_note_until_something_is_kept_again(tmp_path, error, why, caplog) -> None:
    folder = FailingFolder(tmp_path, MEGABYTE)
    folder.error = error
    with keeping(folder) as keeper:
        for step in (1, 2, 3):
            keeper.step_trained(step, trained(GROUP), {})
    assert keeper.warning == f"rollouts of step 3 were not kept: {why}"
    assert keeper.listing() == {"every": 1, "note": keeper.warning}
    assert len(caplog.records) == 1, "of each trouble the log has a line"

    folder.error = None
    again = new_keeper(folder)
    again._trouble = keeper.warning
    again.step_trained(4, trained(GROUP), {})
    again.close(60)
    assert again.warning is None
    assert [line["record"] for line in lines(tmp_path / "000004-2.jsonl.zst")] == ["step", "group"]


def test_a_full_disk_is_waited_for_and_holds_nobody_up(tmp_path) -> None:
    folder = FailingFolder(tmp_path, MEGABYTE)
    folder.error = OSError(28, "No space")
    with keeping(folder) as keeper:
        keeper.step_trained(0, trained(GROUP), {})
        assert all(folder.asked.acquire(timeout=60) for _ in range(2)), "it tries again"
        assert keeper.warning == "rollouts wait for room: No space"
        for step in range(1, MOST_WAITING + 2):
            keeper.step_trained(step, trained(GROUP), {})
        assert keeper.warning == f"rollouts of step {MOST_WAITING + 1} were not kept: No space"
        folder.error = None
        assert all(folder.asked.acquire(timeout=60) for _ in range(MOST_WAITING + 1))
    assert keeper.warning is None
    assert [int(name[:6]) for name in sorted(folder.names()) if name[0] == "0"] == list(range(MOST_WAITING + 1))
    assert [line["step"] for line in lines(tmp_path / "metrics-2.jsonl.zst")] == list(range(MOST_WAITING + 1))


class Mirror:
    """Remembers the files of a folder; fails as long as it has an error."""

    def __init__(self, folder: BoundedFolder) -> None:
        self.folder = folder
        self.files: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.error: OSError | None = None
        self.closed = False
        self.earlier: dict[str, int] | None = {}

    def names(self):
        return {name: len(content) for name, content in self.files.items()}

    def ask(self, name, *, gone):
        self.asked.append(name)
        if self.error:
            raise self.error
        if gone:
            self.files.pop(name, None)
        elif name in self.folder.names():
            self.files[name] = self.folder.read(name)

    def close(self, seconds):  # noqa: ARG002 -- there is nothing to wait for
        self.closed = True


def test_a_mirror_has_what_the_folder_has(tmp_path) -> None:
    folder = BoundedFolder(tmp_path, 24_000)
    mirror = Mirror(folder)
    random = np.random.default_rng(1)
    with keeping(folder, mirror=mirror) as keeper:
        for step in range(1, 13):
            tokens = random.integers(0, 2**31, (2, 200)).tolist()
            group = {"tokens": tokens, "masks": tokens, "scores": [1.0, 0.0]}
            keeper.reported(report(groups=[{"fate": "evaluated", "step": step, "group": group}]), collecting=step)
            wait_until_written(keeper)
    assert keeper.warning is None
    assert folder.every > 1
    assert mirror.files == {name: folder.read(name) for name in folder.names()}
    assert mirror.closed, "it does what waits before the trainer leaves"


def test_what_earlier_attempts_left_takes_room_too(tmp_path) -> None:
    """The mirror learns of it late, and a step of the interval that then holds is kept."""
    folder = BoundedFolder(tmp_path, 2_000)
    mirror = Mirror(folder)
    mirror.files = {f"{step:06d}-1.jsonl.zst": bytes(100) for step in range(0, 40, 2)}
    found, mirror.earlier = mirror.names(), None
    group = {"fate": "evaluated", "group": GROUP}
    with keeping(folder, mirror=mirror) as keeper:
        keeper.reported(report(groups=[group | {"step": 37}]), collecting=38)
        wait_until_written(keeper)
        mirror.earlier = found
        for step in (39, 40):
            keeper.reported(report(groups=[group | {"step": step}]), collecting=38)
            wait_until_written(keeper)
    assert keeper.warning is None
    assert folder.every == 4
    assert set(folder.names()) == {"000040-2.jsonl.zst"}
    kept = {f"{step:06d}-1.jsonl.zst" for step in range(0, 40, 4)}
    assert set(mirror.files) == kept | set(folder.names())
    assert sum(mirror.names().values()) <= 2_000


def wait_until_written(keeper: RolloutWriter) -> None:
    give_up = time.monotonic() + 60
    while keeper._work.qsize():
        assert time.monotonic() < give_up
        time.sleep(0.001)


def test_a_mirror_that_is_away_is_a_note_and_the_folder_keeps_on(tmp_path) -> None:
    folder = BoundedFolder(tmp_path, MEGABYTE)
    mirror = Mirror(folder)
    mirror.error = OSError("cannot put it in bucket b: the server does not answer in time")
    with keeping(folder, mirror=mirror) as keeper:
        keeper.step_trained(1, trained(GROUP), {})
    assert keeper.warning == f"metrics-2.jsonl.zst was not copied: {mirror.error}"
    assert (tmp_path / "000001-2.jsonl.zst").exists()
    assert mirror.asked == ["metrics-2.jsonl.zst", "000001-2.jsonl.zst", "metrics-2.jsonl.zst"], "all of it, at once"


def test_a_slow_disk_costs_rollouts_and_no_time(tmp_path) -> None:
    folder = SlowFolder(tmp_path)
    keeper = new_keeper(folder)
    keeper.step_trained(0, trained(GROUP), {})
    assert folder.entered.wait(60)
    for step in range(1, MOST_WAITING + 3):
        keeper.step_trained(step, trained(GROUP), {})
    assert keeper.warning == f"rollouts of step {MOST_WAITING + 2} were not kept: writing takes longer than training"
    begun = time.monotonic()
    keeper.close(1)
    assert 1 <= time.monotonic() - begun < 2, "not twice: until there is room, and until it is written"
    folder.go_on.set()
    keeper.close(60)
    assert [int(name[:6]) for name in sorted(folder.names()) if name[0] == "0"] == list(range(MOST_WAITING + 1))
    assert keeper.warning is None


def test_reports_of_environments_do_not_push_out_what_is_trained(tmp_path) -> None:
    folder = SlowFolder(tmp_path)
    keeper = new_keeper(folder)
    keeper.step_trained(0, trained(GROUP), {})
    assert folder.entered.wait(60)
    lost = {"what": "rollout", "reason": "raised", "why": "no data"}
    for _ in range(3 * MOST_WAITING):
        keeper.reported(report(lost=[lost]), collecting=1)
    keeper.step_trained(1, trained(GROUP), {})
    folder.go_on.set()
    keeper.close(60)
    assert "000001-2.jsonl.zst" in folder.names()
    assert [line["step"] for line in lines(tmp_path / "metrics-2.jsonl.zst")] == [0, 1]


def test_a_closed_keeper_keeps_nothing(tmp_path) -> None:
    with keeping(tmp_path) as keeper:
        keeper.step_trained(1, trained(GROUP), {})
    keeper.step_trained(2, trained(GROUP), {})
    keeper.close(60)
    assert not (tmp_path / "000002-2.jsonl.zst").exists()


def test_the_next_attempt_has_files_of_its_own(tmp_path) -> None:
    with keeping(tmp_path) as keeper:
        keeper.step_trained(1, trained(GROUP), {})
    earlier = (tmp_path / "000001-2.jsonl.zst").read_bytes()
    kept = BoundedFolder(tmp_path, MEGABYTE)
    later = new_keeper(kept, replace(RUN, attempt=3))
    later.step_trained(1, trained(GROUP), {})
    later.close(60)
    assert (tmp_path / "000001-2.jsonl.zst").read_bytes() == earlier
    assert lines(tmp_path / "000001-3.jsonl.zst")[0]["attempt"] == 3


def test_a_torn_frame_at_the_end_hides_nothing_before_it(tmp_path) -> None:
    """An attempt that was killed while it wrote."""
    with keeping(tmp_path) as keeper:
        keeper.step_trained(1, trained(GROUP), {})
        keeper.reported(report(lost=[LOST]), collecting=1)
    path = tmp_path / "000001-2.jsonl.zst"
    whole = lines(path)
    path.write_bytes(path.read_bytes()[:-5])
    assert lines(path)[:2] == whole[:2]
