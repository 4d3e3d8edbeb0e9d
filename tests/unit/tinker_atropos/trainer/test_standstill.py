"""A pause is one that lasts, until it ends; what ended last is when training went on."""

from datetime import UTC, datetime, timedelta

from tinker_atropos.trainer.standstill import Standstill

BEGAN = datetime(2026, 11, 29, 10, 41, tzinfo=UTC)


class Clock:
    seconds = 0.0

    def standstill(self) -> Standstill:
        return Standstill(lambda: BEGAN + timedelta(seconds=self.seconds), lambda: self.seconds)


def test_a_pause_lasts_from_its_beginning_and_has_the_newest_reason() -> None:
    clock = Clock()
    still = clock.standstill()
    still.begin("BackendPaused", "a rate limit")
    clock.seconds = 60
    still.begin("BackendPaused", "short on capacity.")
    assert still.pause is not None
    assert (still.pause.reason, still.pause.since) == ("short on capacity.", "2026-11-29T10:41:00+00:00")
    assert (still.seconds, still.resumed_at) == (60, None)
    clock.seconds = 90
    still.end("BackendPaused")
    clock.seconds = 200
    still.end("BackendPaused")
    assert (still.pause, still.seconds, still.resumed_at) == (None, 90, "2026-11-29T10:42:30+00:00")


def test_of_two_pauses_the_first_is_told_and_no_second_counts_twice() -> None:
    clock = Clock()
    still = clock.standstill()
    still.begin("DiskFull", "0 of 12 MB free")
    clock.seconds = 10
    still.begin("BackendPaused", "short on capacity")
    assert still.pause is not None
    assert still.pause.cause == "DiskFull"
    clock.seconds = 30
    still.end("DiskFull")
    assert still.pause is not None
    assert (still.pause.cause, still.seconds) == ("BackendPaused", 30)
    clock.seconds = 40
    still.end("BackendPaused")
    assert still.seconds == 40


def test_a_process_that_was_frozen_is_not_paused_and_counts_from_its_thaw() -> None:
    clock = Clock()
    still = clock.standstill()
    clock.seconds = 22
    still.froze(22)
    assert (still.pause, still.seconds, still.resumed_at) == (None, 22, "2026-11-29T10:41:22+00:00")
