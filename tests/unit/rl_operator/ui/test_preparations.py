"""What is shown while a run is prepared, and after that has failed."""

import threading
from collections.abc import Callable

import pytest

from rl_operator.operator_errors import RefusedError
from rl_operator.ui.preparations import Preparations, Progress

END_SECONDS = 60  # only ends a hang


class Watcher:
    """Who is told that there is something new."""

    def __init__(self, preparations: Preparations) -> None:
        self._preparations = preparations
        self.ended = threading.Event()
        self.seen: list[tuple[str, str] | None] = []

    def __call__(self) -> None:
        found = self._preparations.of("uid")
        self.seen.append(found and (found.step, found.fault))
        if found is None or found.fault:
            self.ended.set()


def watched(work: Callable[[Progress], object], preparations: Preparations) -> Watcher:
    watcher = Watcher(preparations)
    preparations.begin("uid", work, watcher)
    assert watcher.ended.wait(END_SECONDS)
    return watcher


def steps(progress: Progress) -> None:
    progress("making a virtual environment")
    progress("uv installs numpy")


def refused(_: Progress) -> None:
    raise RefusedError("pip could not install it")


def broken(_: Progress) -> None:
    raise ZeroDivisionError


def test_its_steps_are_shown_and_nothing_once_it_is_done() -> None:
    assert watched(steps, Preparations()).seen == [
        ("making a virtual environment", ""),
        ("uv installs numpy", ""),
        None,
    ]


@pytest.mark.parametrize(
    ("work", "fault"),
    [(refused, "pip could not install it"), (broken, "the server failed; its log says more")],
)
def test_why_it_failed_is_kept_until_it_is_tried_again(work: Callable[[Progress], object], fault: str) -> None:
    preparations = Preparations()
    assert watched(work, preparations).seen == [("", fault)]
    assert watched(lambda _: None, preparations).seen == [None]
    assert preparations.of("uid") is None


def test_a_second_click_begins_nothing() -> None:
    preparations, may_end, begun = Preparations(), threading.Event(), list[str]()

    def slow(progress: Progress) -> None:
        begun.append("first")
        progress("at work")
        may_end.wait(END_SECONDS)

    watcher = Watcher(preparations)
    preparations.begin("uid", slow, watcher)
    preparations.begin("uid", lambda _: begun.append("second"), watcher)
    may_end.set()
    assert watcher.ended.wait(END_SECONDS)
    assert begun == ["first"]


def test_a_server_that_has_ended_does_not_keep_a_run_from_its_start() -> None:
    started = threading.Event()

    def gone() -> None:
        raise RuntimeError("Event loop is closed")

    def work(progress: Progress) -> None:
        progress("at work")
        started.set()

    Preparations().begin("uid", work, gone)
    assert started.wait(END_SECONDS)
