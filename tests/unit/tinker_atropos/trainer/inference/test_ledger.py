"""What the ledger finds in a sequence: only what was sampled, with its own logprobs and policy steps."""

import contextlib
import sqlite3
import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.small_disks import filled, mounted, read_only

from tinker_atropos.trainer.data.groups import UNKNOWN_STEP, TokenSequence
from tinker_atropos.trainer.inference.ledger import Attribution, Ledger, generated_spans, prefix_keys
from tinker_atropos.trainer.inference.ledger_file import OVERHEAD_BYTES

NAN = np.nan
EOS = 2


def sequence(tokens: list[int], generated: str, logprobs: list[float] | None = None) -> TokenSequence:
    return TokenSequence(
        tokens_T=np.array(tokens),
        generated_T=np.array([bit == "1" for bit in generated]),
        logprobs_T=np.full(len(tokens), NAN) if logprobs is None else np.array(logprobs),
        policy_step_T=np.full(len(tokens), UNKNOWN_STEP),
        score=1.0,
    )


def record(ledger: Ledger, prompt: list[int], output: list[int], logprobs: list[float], step: int = 7) -> None:
    ledger.record(np.array(prompt), np.array(output), np.array(logprobs), policy_step=step)


def bits(values: np.ndarray) -> str:
    return "".join("1" if value else "0" for value in values)


@pytest.mark.parametrize(
    ("case", "tokens", "masked", "sampled", "logprobs"),
    [
        ("the answer as it was sampled", [1, 1, 30, 31, EOS], "00111", "00111", [-0.5, -0.25, -0.125]),
        ("a template's newline after EOS", [1, 1, 30, 31, EOS, 9], "001111", "001110", [-0.5, -0.25, -0.125]),
        ("EOS doubled by the template", [1, 1, 30, 31, EOS, EOS, 9], "0011111", "0011100", [-0.5, -0.25, -0.125]),
        ("EOS cut off", [1, 1, 30, 31], "0011", "0011", [-0.5, -0.25]),
        ("the generation prompt marked as generated", [1, 1, 30, 31, EOS], "01111", "00111", [-0.5, -0.25, -0.125]),
        ("everything marked as generated", [1, 1, 30, 31, EOS], "11111", "00111", [-0.5, -0.25, -0.125]),
    ],
)
def test_samples_are_found_within_what_the_environment_marked(case, tokens, masked, sampled, logprobs) -> None:
    ledger = Ledger()
    record(ledger, [1, 1], [30, 31, EOS], [-0.5, -0.25, -0.125])
    found = ledger.attribute(sequence(tokens, masked))
    assert bits(found.sequence.generated_T) == sampled, case
    assert found.sequence.logprobs_T[found.sequence.generated_T].tolist() == logprobs
    assert set(found.sequence.policy_step_T[found.sequence.generated_T]) == {7}
    assert not found.missing
    assert len(found.generations) == 1


def test_every_turn_is_looked_up_with_everything_before_it() -> None:
    ledger = Ledger()
    record(ledger, [1], [2], [-0.5], step=3)
    record(ledger, [1, 2, 9], [4, 5], [-0.25, -0.125], step=4)
    record(ledger, [1], [4, 5], [-8.0, -8.0], step=9)  # the same answer after another prompt
    for masked in ("01011", "01111", "11111"):  # even if a whole conversation is marked as one answer
        found = ledger.attribute(sequence([1, 2, 9, 4, 5], masked)).sequence
        assert bits(found.generated_T) == "01011"
        np.testing.assert_array_equal(found.logprobs_T[[1, 3, 4]], [-0.5, -0.25, -0.125])
        assert found.policy_step_T[[1, 3, 4]].tolist() == [3, 4, 4]


def test_the_ledger_wins_over_what_the_environment_sent() -> None:
    ledger = Ledger()
    record(ledger, [1], [3, 4], [-0.5, -0.25])
    found = ledger.attribute(sequence([1, 3, 4], "011", [NAN, 0.0, NAN])).sequence
    assert found.logprobs_T[1:].tolist() == [-0.5, -0.25]


def test_tokens_only_the_environment_knows_have_its_logprobs_and_no_policy_step() -> None:
    found = Ledger().attribute(sequence([1, 3, 4, 9, 5], "01101", [NAN, -0.5, -0.25, NAN, -1.0]))
    assert bits(found.sequence.generated_T) == "01101"
    assert found.sequence.policy_step_T.tolist() == [UNKNOWN_STEP] * 5
    assert not found.missing


def test_a_gap_in_the_environments_logprobs_was_not_sampled() -> None:
    found = Ledger().attribute(sequence([1, 3, EOS, EOS], "0111", [NAN, -0.5, -0.25, NAN]))
    assert bits(found.sequence.generated_T) == "0110"
    assert not found.missing


def test_a_span_without_known_tokens_is_missing_as_a_whole() -> None:
    ledger = Ledger()
    record(ledger, [1], [2], [-0.5])
    found = ledger.attribute(sequence([1, 2, 9, 4, 5], "01011"))
    assert found.missing == ((3, 5),)
    assert bits(found.sequence.generated_T) == "01011"


def test_an_output_sampled_twice_is_identified_by_its_logprobs_else_the_newest_counts() -> None:
    ledger = Ledger()
    for step, logprob in ((1, -0.5), (2, -1.0), (3, -1.5)):
        record(ledger, [1], [3, 4], [logprob, logprob], step)

    def step_of(logprobs: list[float] | None) -> int:
        return int(ledger.attribute(sequence([1, 3, 4], "011", logprobs)).sequence.policy_step_T[1])

    assert step_of([NAN, -1.01, -0.99]) == 2
    assert step_of(None) == 3


def test_later_samples_are_not_in_a_group_so_that_a_replay_finds_the_same() -> None:
    ledger = Ledger()
    came_at = 100.0
    for step, sampled_at, output in ((1, 90.0, [3]), (2, 99.0, [3]), (3, 101.0, [3]), (4, 102.0, [3, 4])):
        logprobs = np.full(len(output), -float(step))
        ledger.record(np.array([1]), np.array(output), logprobs, step, sampled_at=sampled_at)

    def steps_of(tokens: list[int], generated: str, received_at: float) -> list[int]:
        return ledger.attribute(sequence(tokens, generated), received_at).sequence.policy_step_T[1:].tolist()

    assert steps_of([1, 3], "01", came_at) == [2]
    assert steps_of([1, 3, 4], "011", came_at) == [2, UNKNOWN_STEP], "the longer one had not been sampled then"
    assert steps_of([1, 3, 4], "011", came_at + 2) == [4, 4]
    assert steps_of([1, 3], "01", 50.0) == [4], "clocks that disagree cost nothing"


def test_a_file_in_an_older_format_is_started_over(tmp_path) -> None:
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite")) as connection, connection:
        connection.execute("CREATE TABLE generations (number INTEGER PRIMARY KEY, output BLOB)")
    ledger = Ledger(tmp_path)
    record(ledger, [1], [3], [-0.5])
    ledger.close()
    (found,) = attributed(tmp_path, sequence([1, 3], "01"))
    assert not found.missing


def test_the_longest_explanation_wins() -> None:
    ledger = Ledger()
    record(ledger, [1], [3, 4], [-0.5, -0.5], step=1)
    record(ledger, [1], [3], [-9.0], step=2)
    record(ledger, [1], [3, 4, 5], [-0.25, -0.25, -0.25], step=3)
    assert ledger.attribute(sequence([1, 3, 4, 9], "0111")).sequence.policy_step_T.tolist() == [-1, 1, 1, -1]
    assert ledger.attribute(sequence([1, 3, 4, 5, 9], "01111")).sequence.policy_step_T.tolist() == [-1, 3, 3, 3, -1]


def test_memory_is_bounded_and_the_oldest_entries_are_dropped_first() -> None:
    ledger = Ledger(capacity_bytes=3 * (OVERHEAD_BYTES + 8))
    for token in range(5):
        record(ledger, [1], [token], [-1.0], step=token)
    assert len(ledger) == 3
    missing = [bool(ledger.attribute(sequence([1, token], "01")).missing) for token in range(5)]
    assert missing == [True, True, False, False, False]


def test_the_sampling_settings_are_included() -> None:
    ledger = Ledger()
    ledger.record(np.array([1]), np.array([3]), np.array([-0.5]), 7, temperature=0.5, top_p=0.9, top_k=4)
    (generation,) = ledger.attribute(sequence([1, 3], "01")).generations
    assert (generation.temperature, generation.top_p, generation.top_k) == (0.5, 0.9, 4)


def attributed(folder, *sequences: TokenSequence) -> list[Attribution]:
    ledger = Ledger(folder)
    try:
        return [ledger.attribute(one) for one in sequences]
    finally:
        ledger.close()


def test_a_restart_keeps_versions_and_does_not_restore_forgotten_ones(tmp_path) -> None:
    first = Ledger(tmp_path, capacity_bytes=2 * (OVERHEAD_BYTES + 8))
    for token in (3, 4, 5):
        record(first, [1], [token], [-token / 8], step=token)
    assert not first.attribute(sequence([1, 5], "01")).missing  # seen at once, on disk or not
    first.close()
    assert not first._file._writer.is_alive(), "it ends once all is written"
    gone, *kept = attributed(tmp_path, *(sequence([1, token], "01") for token in (3, 4, 5)))
    assert gone.missing
    assert [one.sequence.policy_step_T[1] for one in kept] == [4, 5]
    assert [one.sequence.logprobs_T[1] for one in kept] == [-0.5, -0.625]

    again = Ledger(tmp_path)
    record(again, [1], [6], [-1.0], step=6)  # numbering continues from the file
    again.close()
    assert [one.sequence.policy_step_T[1] for one in attributed(tmp_path, sequence([1, 5], "01"))] == [5]


def test_an_unreadable_file_is_started_over(tmp_path, caplog) -> None:
    (tmp_path / "ledger.sqlite").write_bytes(b"not SQLite" * 1000)
    ledger = Ledger(tmp_path)
    record(ledger, [1], [3], [-0.5])
    ledger.close()
    assert "starts over" in caplog.text
    (found,) = attributed(tmp_path, sequence([1, 3], "01"))
    assert not found.missing


def test_a_ledger_that_cannot_be_written_continues_in_memory(tmp_path, caplog) -> None:
    ledger = Ledger(tmp_path)
    record(ledger, [1], [3], [-0.5])
    with contextlib.closing(sqlite3.connect(tmp_path / "ledger.sqlite", timeout=60)) as connection:
        deadline = time.monotonic() + 20
        while not connection.execute("SELECT count(*) FROM generations").fetchone()[0]:
            assert time.monotonic() < deadline, "the record is not written within 20 s"
        connection.execute("DROP TABLE generations")
    record(ledger, [1], [4], [-0.5])
    ledger.close()
    assert "is not written anymore" in caplog.text
    record(ledger, [1], [5], [-0.5])
    assert [ledger.attribute(sequence([1, token], "01")).missing for token in (3, 4, 5)] == [()] * 3


def test_a_read_only_disk_is_waited_for(process: None, tmp_path, caplog) -> None:
    with mounted(tmp_path / "disk", "1m") as disk:
        first = Ledger(disk)
        record(first, [1], [3], [-0.5])
        first.close()
        with read_only(disk):
            second = Ledger(disk)
            record(second, [1], [4], [-0.5])
            deadline = time.monotonic() + 60
            while "is read-only" not in caplog.text:
                assert time.monotonic() < deadline, "the ledger does not wait after 60 s"
                time.sleep(0.01)
        with contextlib.closing(sqlite3.connect(disk / "ledger.sqlite", timeout=60)) as connection:
            while connection.execute("SELECT output FROM generations").fetchall() != [(np.int32(4).tobytes(),)]:
                assert time.monotonic() < deadline, "the ledger does not go on after 60 s"
                time.sleep(0.01)
        second.close()
    assert "is not written anymore" not in caplog.text


def test_a_full_disk_is_waited_for(process: None, tmp_path, caplog) -> None:
    with mounted(tmp_path / "disk", "1m") as disk:
        ledger = Ledger(disk)
        with filled(disk):
            for token in range(3, 23):
                record(ledger, [1], [token] * 2000, [-0.5] * 2000)
            deadline = time.monotonic() + 60
            while "no room is left in" not in caplog.text:
                assert time.monotonic() < deadline, "the ledger does not wait after 60 s"
                time.sleep(0.01)
        with contextlib.closing(sqlite3.connect(disk / "ledger.sqlite", timeout=60)) as connection:
            while connection.execute("SELECT count(*) FROM generations").fetchone()[0] < 20:
                assert time.monotonic() < deadline, "the ledger does not go on after 60 s"
                time.sleep(0.01)
        ledger.close()
    assert "is not written anymore" not in caplog.text


@given(st.lists(st.integers(0, 3), max_size=6), st.lists(st.integers(0, 3), max_size=6))
def test_prefixes_have_the_same_key_only_if_they_are_equal(first: list[int], second: list[int]) -> None:
    keys, others = (prefix_keys(np.array(tokens, np.int64)) for tokens in (first, second))
    for length, key in enumerate(keys):
        for other_length, other in enumerate(others):
            assert (key == other) == (first[:length] == second[:other_length])


def test_spans() -> None:
    table = {"": [], "0": [], "1": [(0, 1)], "0110": [(1, 3)], "10111": [(0, 1), (2, 5)]}
    for mask, spans in table.items():
        assert list(generated_spans(np.array([bit == "1" for bit in mask], bool))) == spans


@pytest.mark.parametrize(
    ("case", "tokens", "masked", "truncated"),
    [
        ("cut off by length", [1, 30, 31], "011", True),
        ("answered after it was cut off", [1, 30, 31, 9, 40, EOS], "011011", False),
        ("cut off in its second turn", [1, 30, 31, 8, 41, 42], "011011", True),
        ("followed by what nobody sampled", [1, 30, 31, 9, 50], "01101", False),
        ("not sampled here", [5, 30, 31], "011", False),
    ],
)
def test_whether_the_last_generation_ended_by_length(case, tokens, masked, truncated, tmp_path) -> None:
    """Also after a restart."""
    sampled = [([1], [30, 31], True), ([1, 30, 31, 9], [40, EOS], False), ([1, 30, 31, 8], [41, 42], True)]
    ledger = Ledger(tmp_path)
    for prompt, output, by_length in sampled:
        ledger.record(np.array(prompt), np.array(output), np.full(len(output), -0.5), 7, truncated=by_length)
    assert ledger.attribute(sequence(tokens, masked[: len(tokens)])).sequence.truncated is truncated, case
    ledger.close()
    again = Ledger(tmp_path)
    assert again.attribute(sequence(tokens, masked[: len(tokens)])).sequence.truncated is truncated
    again.close()
