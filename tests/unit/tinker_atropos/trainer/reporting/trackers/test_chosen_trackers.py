from dataclasses import replace

import pytest

from tinker_atropos.config.run_config import parse_config
from tinker_atropos.settings import Settings
from tinker_atropos.trainer.reporting.trackers.chosen_trackers import ChosenTrackers, chosen_trackers
from tinker_atropos.trainer.reporting.trackers.tracker_process import TrackerProcess

SETTINGS = Settings(run_name="sorting", run_uid="u-1", wandb_run_id="w-1")
CONFIG = parse_config(
    {
        "env": {
            "total_steps": 40, "group_size": 2, "batch_size": 4, "tokenizer_name": "bundled", "max_token_length": 64,
        },
        "tinker": {"wandb_project": "curves"},
    }
)  # fmt: skip
KEY = {"WANDB_API_KEY": "k"}
OFF = {"state": "disabled", "url": None, "runId": None}
WANDB = {**OFF, "runId": "w-1"}
TRACKIO = {"name": "trackio", "state": "disabled", "project": "curves", "run": "sorting", "show": None, "trouble": None}


@pytest.mark.parametrize(
    ("trackers", "expected"),
    [
        (("wandb",), {"wandb": WANDB, "tracker": None}),
        (("trackio",), {"wandb": OFF, "tracker": TRACKIO}),
        (("wandb", "trackio"), {"wandb": WANDB, "tracker": TRACKIO}),
    ],
)
def test_what_is_chosen_before_it_starts(trackers: tuple[str, ...], expected: dict) -> None:
    assert chosen_trackers(replace(SETTINGS, trackers=trackers), CONFIG, KEY).to_wire() == expected


class Remembering(TrackerProcess):
    def __init__(self) -> None:
        super().__init__("memory", {}, (), 1)
        self.calls: list[tuple] = []

    def start(self) -> None:
        self.calls.append(("start",))

    def log_step(self, *arguments) -> None:
        self.calls.append(("step", *arguments))

    def log_report(self, *arguments) -> None:
        self.calls.append(("report", *arguments))

    async def close(self, result) -> None:
        self.calls.append(("close", result))


async def test_each_tracker_gets_everything() -> None:
    first, second = Remembering(), Remembering()
    both = ChosenTrackers(first, second)
    both.start()
    both.log_step(1, {"train/loss": 0.5})
    both.log_report(None, {"env/reward_mean": 1.0})
    await both.close({"outcome": "stopped"})
    assert first.calls == [
        ("start",),
        ("step", 1, {"train/loss": 0.5}, ()),
        ("report", None, {"env/reward_mean": 1.0}),
        ("close", {"outcome": "stopped"}),
    ]
    assert second.calls == first.calls


async def test_a_package_that_is_missing_or_misconfigured_is_a_warning() -> None:
    trackers = chosen_trackers(replace(SETTINGS, trackers=("trackio",)), CONFIG, {"TRACKIO_DIR": "curves"})
    trackers.start()
    told = trackers.to_wire()["tracker"]
    assert told["state"] == "failed"
    assert told["trouble"].startswith("Trackio is off for this run: ")
