"""Memory is bounded: samplers by number, sessions by silence."""

import time

import pytest
import torch

from tinker_service.model.lora import LoraAdapter, LoraSpec
from tinker_service.model.registry import (
    BRIEF_SILENCE_SECONDS,
    SAMPLERS_PER_SESSION,
    SILENT_BYTES,
    SILENT_SESSION_SECONDS,
    UNHEARD_CLIENT_SECONDS,
    Registry,
    ServedSampler,
)
from tinker_service.model.training import Trainee
from tinker_service.service_errors import MissingError


def test_a_session_keeps_its_most_recently_used_samplers() -> None:
    registry = Registry()
    registry.add_sampler(ServedSampler("other", "b", None))
    for number in range(SAMPLERS_PER_SESSION):
        registry.add_sampler(ServedSampler(f"s{number}", "a", None))
    registry.sampler("s0")  # used: s1 is the oldest now
    registry.add_sampler(ServedSampler("new", "a", None))
    assert registry.sampler("s0").sampler_id == "s0"
    assert registry.sampler("other").session_id == "b"
    with pytest.raises(MissingError, match="create a new sampling client"):
        registry.sampler("s1")


def test_a_silent_session_ends_with_its_models_and_samplers() -> None:
    registry = Registry()
    for session in ("silent", "live"):
        registry.touch(session)
        registry.add_model(f"{session}:train:0", Trainee(LoraAdapter(LoraSpec(rank=1), {})))
        registry.add_sampler(ServedSampler(f"{session}:sample:0", session, None))
    now = time.monotonic()
    registry.tidy(now + SILENT_SESSION_SECONDS / 2)
    registry.model("silent:train:0")
    registry.end_session("silent")
    registry.model("live:train:0")
    with pytest.raises(MissingError, match="last saved state"):
        registry.model("silent:train:0")
    with pytest.raises(MissingError):
        registry.sampler("silent:sample:0")
    registry.tidy(now + SILENT_SESSION_SECONDS + 1)
    with pytest.raises(MissingError):
        registry.model("live:train:0")


def lone_adapter(size: int) -> LoraAdapter:
    """Of so many bytes, which are never touched."""
    weights = torch.empty(size // 2, dtype=torch.uint8)
    return LoraAdapter(LoraSpec(rank=1), {"layer": (weights, weights)})


def sessions_after(silence: float, sizes: dict[str, int]) -> list[str]:
    """What is left of sessions with a sampler of that size each, which fell silent in this order."""
    registry = Registry()
    for session, size in sizes.items():
        registry.touch(session)
        registry.add_sampler(ServedSampler(f"{session}:sample:0", session, lone_adapter(size)))
    registry.tidy(time.monotonic() + silence)
    return registry.sessions


def test_silent_sessions_share_a_bound_and_the_longest_silent_ends_first() -> None:
    half = SILENT_BYTES // 2
    sizes = {"first": half, "small": 2, "last": half}
    assert sessions_after(BRIEF_SILENCE_SECONDS - 1, sizes) == ["first", "small", "last"]
    assert sessions_after(BRIEF_SILENCE_SECONDS + 1, sizes) == ["small", "last"]
    assert sessions_after(BRIEF_SILENCE_SECONDS + 1, {"first": 2, "huge": 4 * half}) == ["huge"]


def test_a_silent_session_keeps_the_samplers_that_it_used_last() -> None:
    registry = Registry()
    registry.touch("a")
    for number in range(SAMPLERS_PER_SESSION):
        registry.add_sampler(ServedSampler(f"s{number}", "a", None))
    registry.sampler("s0")
    registry.tidy(time.monotonic() + BRIEF_SILENCE_SECONDS - 1)
    assert len(registry.sampler_ids) == SAMPLERS_PER_SESSION
    registry.tidy(time.monotonic() + BRIEF_SILENCE_SECONDS + 1)
    assert registry.sampler_ids == ["s29", "s30", "s31", "s0"]


def test_a_client_is_there_while_it_is_heard() -> None:
    registry = Registry()
    registry.touch("a")
    now = time.monotonic()
    assert registry.has_client("a", now + UNHEARD_CLIENT_SECONDS - 1)
    assert not registry.has_client("a", now + UNHEARD_CLIENT_SECONDS + 1)
    registry.end_session("a")
    assert not registry.has_client("a", now)
    registry.touch_living("a")  # a late poll does not bring the session back
    assert not registry.has_client("a", now)
    assert registry.sessions == []
