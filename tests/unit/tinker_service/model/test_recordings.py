import numpy as np
import pytest

from tinker_service.model.recordings import KEPT_SECONDS, Recordings
from tinker_service.model.sampling.sample_jobs import Continuation, SamplingRequest
from tinker_service.service_errors import MissingError


def continuation(*tokens: int) -> Continuation:
    request = SamplingRequest(prompt=(1, 2), num_samples=1, max_tokens=8)
    return Continuation(request, np.random.default_rng(0), list(tokens), [-0.5] * len(tokens))


def recordings(**tokens: tuple[int, ...]) -> Recordings:
    """Room for eight tokens, with a request of session `s` and two tokens of prompt for each name."""
    kept = Recordings(max_tokens=8)
    for name, sequence in tokens.items():
        kept.record([name], "s", (1, 2), [continuation(*sequence)])
    return kept


def known(kept: Recordings, *names: str) -> list[str]:
    found = []
    for name in names:
        try:
            kept.use(name, "s")
        except MissingError:
            continue
        found.append(name)
    return found


def test_a_sequence_is_kept_as_it_was_sampled() -> None:
    sequence = recordings(a=(7, 8)).use("a", "s")
    assert sequence.prompt.tolist() == [1, 2]
    assert sequence.tokens.tolist() == [7, 8]
    assert sequence.logprobs.tolist() == [-0.5, -0.5]


@pytest.mark.parametrize(("name", "session"), [("b", "s"), ("a", "another")])
def test_an_unknown_sequence_and_one_of_another_session_are_refused(name: str, session: str) -> None:
    kept = recordings(a=(7, 8))
    with pytest.raises(
        MissingError, match=f"sequence '{name}' is not recorded in this session .*record_stability_info"
    ):
        kept.use(name, session)
    assert known(kept, "a") == ["a"]


def test_the_least_recently_used_ones_go_when_there_is_no_room() -> None:
    kept = recordings(a=(7, 8), b=(9,))
    kept.use("a", "s")
    kept.record(["c", "d"], "s", (1,), [continuation(3), continuation(4, 5)])
    assert known(kept, "a", "b", "c", "d") == ["a", "c", "d"]


def test_a_prompt_counts_once_as_long_as_one_of_its_sequences_is_kept() -> None:
    kept = Recordings(max_tokens=8)
    kept.record(["a", "b"], "s", (1, 2, 3, 4, 5), [continuation(7), continuation(8)])
    kept.record(["c"], "s", (), [continuation(9)])
    assert known(kept, "a", "b", "c") == ["a", "b", "c"], "just fits"
    kept.record(["d"], "s", (), [continuation(3)])
    assert known(kept, "b", "c", "d", "a") == ["b", "c", "d"]
    kept.record(["e"], "s", (1,), [continuation(4)])
    assert known(kept, "b", "c", "d", "e") == ["c", "d", "e"], "the prompt goes with the last of its sequences"
    kept.record(["f"], "s", (1, 2), [continuation(5, 6)])
    assert known(kept, "c", "d", "e", "f") == ["c", "d", "e", "f"]


def test_a_session_takes_its_sequences_along() -> None:
    kept = recordings(a=(7, 8))
    kept.record(["b"], "t", (1,), [continuation(3)])
    kept.end_session("s")
    assert known(kept, "a") == []
    assert kept.use("b", "t").tokens.tolist() == [3]


def test_a_sequence_is_kept_for_a_day_after_its_last_use(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    kept = recordings(a=(7,), b=(8,))
    now = KEPT_SECONDS - 1
    kept.use("a", "s")
    kept.forget_expired(KEPT_SECONDS)
    assert known(kept, "a", "b") == ["a"]
