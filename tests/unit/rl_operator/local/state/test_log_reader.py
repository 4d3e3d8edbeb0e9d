from pathlib import Path

import pytest

from rl_operator.local.state.pod_logs import follow_log, tail_log


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "trainer.log"
    path.write_text("three\nfour\n")
    path.with_suffix(".log.1").write_text("one\ntwo\n")
    return path


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        (None, ["one", "two", "three", "four"]),
        (3, ["two", "three", "four"]),
        (0, []),
        (9, ["one", "two", "three", "four"]),
    ],
)
def test_the_tail_includes_the_rotated_part(log: Path, lines: int | None, expected: list[str]) -> None:
    assert [line.rstrip("\n") for line in tail_log(log, lines)] == expected


def test_a_missing_log_is_empty(tmp_path: Path) -> None:
    assert list(tail_log(tmp_path / "none.log", None)) == []


def test_only_a_line_feed_ends_a_line(log: Path) -> None:
    """As on a cluster: a progress bar that overwrites itself is one line, in a followed log, too."""
    bar = "\r 1 %\r 2 %\x0b\u2028\r\n"
    log.write_bytes(bar.encode())
    assert list(tail_log(log, 1)) == list(follow_log(log, 1, lambda: True)) == [bar]


@pytest.mark.parametrize(
    ("begun", "added", "lines"),
    [
        pytest.param("", ["five\n", "six\n", "seven\n"], ["four\n", "five\n", "six\n", "seven\n"], id="lines"),
        pytest.param(
            "begun, ",
            ["going on, ", "ended\nand a", "n end"],
            ["four\n", "begun, going on, ended\n", "and an end"],
            id="pieces of lines, each line once",
        ),
    ],
)
def test_following_yields_what_is_added_until_the_end(
    log: Path, begun: str, added: list[str], lines: list[str]
) -> None:
    left = list(added)

    def write(text: str) -> None:
        with log.open("a") as writer:
            writer.write(text)

    def ended() -> bool:
        write(left.pop(0))
        return not left

    write(begun)
    assert list(follow_log(log, 1, ended)) == lines


def test_following_continues_when_the_log_starts_over(log: Path) -> None:
    looks = iter([False, True])

    def ended() -> bool:
        log.write_text("new\n")
        return next(looks)

    assert list(follow_log(log, 0, ended)) == ["new\n"]
