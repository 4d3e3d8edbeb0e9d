import pytest
import zstandard
from tests.unit.rl_operator.rollouts.made_rollouts import frame

from rl_operator.rollouts import file_lines
from rl_operator.rollouts.file_lines import FileFaults, lines_of

ONE, TWO, THREE = frame(b"one\n"), frame(b"two\n", b"2\n"), frame(b"three\n")
TORN = frame(*(b"%d lost or not\n" % number for number in range(50_000)))[:-40]


def read(content: bytes) -> tuple[list[bytes], FileFaults]:
    faults = FileFaults(longest_line=1_000)
    return list(lines_of(content, faults)), faults


@pytest.mark.parametrize(
    ("content", "lines", "torn"),
    [
        pytest.param(b"", [], 0, id="empty"),
        pytest.param(ONE + TWO, [b"one", b"two", b"2"], 0, id="frames"),
        pytest.param(ONE + TWO[:-1], [b"one"], 1, id="a torn frame, all of it lost"),
        pytest.param(ONE + TWO[:3], [b"one"], 1, id="not even its header"),
        pytest.param(ONE + b"garbage" + THREE, [b"one", b"three"], 1, id="garbage between frames"),
        pytest.param(b"garbage" * 1_000, [], 1, id="garbage only"),
        pytest.param(frame(b"\n\nx\n\n"), [b"x"], 0, id="empty lines"),
        pytest.param(frame(b"no end") + THREE, [b"three"], 0, id="a line never spans frames"),
    ],
)
def test_whole_lines_are_read(content: bytes, lines: list[bytes], torn: int) -> None:
    found, faults = read(content)
    if b"two" in found and torn:
        found = [each for each in found if each not in (b"two", b"2")]  # what is whole of a torn frame may be read
    assert (found, faults.torn_frames) == (lines, torn)


def test_after_a_torn_frame_reading_goes_on() -> None:
    found, faults = read(ONE + TORN + THREE)
    assert (found[0], found[-1]) == (b"one", b"three")
    assert faults.torn_frames >= 1
    assert all(each.endswith(b"lost or not") for each in found[1:-1]), "no part of a line is taken for a line"


def test_a_long_line_costs_itself_only() -> None:
    found, faults = read(frame(b"a\n", b"x" * 1_001 + b"\n", b"y" * 1_000 + b"\n", b"b\n"))
    assert found == [b"a", b"y" * 1_000, b"b"]
    assert list(faults.sentences()) == ["1 line is longer than 0.000953674 MiB and left out"]


def test_a_decompression_bomb_ends_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_lines, "ALWAYS_READ", 2**20)
    bomb = zstandard.ZstdCompressor().compress(bytes(64 * 2**20))
    found, faults = read(bomb + THREE)
    assert len(bomb) < 10_000
    assert (found, faults.is_cut, faults.long_lines) == ([], True, 1)


def test_a_frame_that_asks_for_much_memory_is_not_read() -> None:
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=28)
    writer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()
    greedy = writer.compress(b"x\n" * 1_000) + writer.flush()
    assert zstandard.get_frame_parameters(greedy).window_size > file_lines.LARGEST_WINDOW
    found, faults = read(greedy + THREE)
    assert (found, faults.torn_frames) == ([b"three"], 1)


def test_it_does_not_look_for_frames_forever() -> None:
    _, faults = read(b"\x28\xb5\x2f\xfd" * 10_000)
    assert faults.torn_frames == file_lines.MOST_TORN
