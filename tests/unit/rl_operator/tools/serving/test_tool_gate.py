"""Which host names and tokens are let in, how often somebody may guess, and when an answer that goes on ends."""

import asyncio

import pytest
from tests.unit.rl_operator.tools.serving.page_callers import ANN, MadeSessions, target_of

from rl_operator.operator_errors import TargetUnreachableError, UnauthenticatedError
from rl_operator.tools.serving.call_pool import Calls
from rl_operator.tools.serving.tool_gate import (
    MAX_ADDRESSES,
    MOST_WRONG,
    WINDOW_SECONDS,
    TokenCheck,
    TurnedAwayError,
    WrongTokens,
    bearer_token,
    is_called_rightly,
)

END_SECONDS = 60  # only ends a hang


def made(recheck_seconds: float = 10.0) -> tuple[MadeSessions, TokenCheck]:
    sessions = MadeSessions(ann=target_of("ann"))
    return sessions, TokenCheck(sessions, Calls(), recheck_seconds)


async def test_a_known_token_is_not_asked_about() -> None:
    sessions, tokens = made()
    sessions.failure = TargetUnreachableError("no answer")
    await tokens.check(ANN, "address")
    sessions.trusts = False
    with pytest.raises(TargetUnreachableError):
        await tokens.check(ANN, "address")


async def test_an_address_that_guesses_waits_and_its_known_callers_do_not() -> None:
    sessions, tokens = made()
    for _ in range(MOST_WRONG):
        with pytest.raises(UnauthenticatedError):
            await tokens.check("wrong", "address")
    with pytest.raises(TurnedAwayError, match="too many wrong tokens came from address") as refused:
        await tokens.check("wrong", "address")
    assert refused.value.code == "busy"
    assert 0 < refused.value.again <= 60
    sessions.trusts = False  # met, and to be asked about again
    await tokens.check(ANN, "address")
    with pytest.raises(UnauthenticatedError):
        await tokens.check("wrong", "another address")


async def test_an_answer_goes_on_while_its_token_is_right_or_nobody_can_tell() -> None:
    sessions, tokens = made(0.001)
    sessions.trusts = False

    async def answer() -> None:
        await sessions.asked_again(3)
        sessions.failure = TargetUnreachableError("no answer")
        await sessions.asked_again(3)

    await asyncio.wait_for(tokens.while_right(ANN, "address", answer()), END_SECONDS)


async def test_an_answer_ends_with_its_token() -> None:
    sessions, tokens = made(0.001)
    ended = asyncio.Event()

    async def answer() -> None:
        sessions.targets.clear()
        try:
            await asyncio.sleep(END_SECONDS)
        finally:
            ended.set()

    await asyncio.wait_for(tokens.while_right(ANN, "address", answer()), END_SECONDS / 2)
    assert ended.is_set()


def test_an_address_waits_until_its_window_is_over() -> None:
    time = 100.0
    wrong = WrongTokens(lambda: time)
    for _ in range(MOST_WRONG):
        assert wrong.seconds_to_wait("a") == 0
        wrong.note("a")
    time += 20
    assert (wrong.seconds_to_wait("a"), wrong.seconds_to_wait("b")) == (WINDOW_SECONDS - 20, 0)
    time += WINDOW_SECONDS
    assert wrong.seconds_to_wait("a") == 0
    wrong.note("a")
    assert wrong.seconds_to_wait("a") == 0


def test_so_many_addresses_are_remembered() -> None:
    wrong = WrongTokens(lambda: 0.0)
    for number in range(MAX_ADDRESSES + 1):
        for _ in range(MOST_WRONG):
            wrong.note(str(number))
    assert (wrong.seconds_to_wait("0"), wrong.seconds_to_wait("1")) == (0, WINDOW_SECONDS)


@pytest.mark.parametrize(
    ("host", "rightly"),
    [
        ("127.0.0.1:8080", True),
        ("[::1]:8080", True),
        ("10.1.2.3", True),
        ("localhost", True),
        ("LOCALHOST:8080", True),
        ("rl-tools:8080", True),
        ("rl-tools.team.svc:8080", True),
        ("rl-tools.team.svc.cluster.local.", True),
        ("tools.example.com:443", True),
        ("attacker.com", False),
        ("127.0.0.1.attacker.com", False),
        ("localhost.attacker.com:8080", False),
        ("rl-tools.team.svc.attacker.com", False),
        ("svc.attacker.com", False),
        ("user@attacker.com", False),
        ("[::1", False),
        ("", False),
        (":8080", False),
    ],
)
def test_only_host_names_that_others_cannot_own(host: str, *, rightly: bool) -> None:
    assert is_called_rightly(host, {"tools.example.com"}) is rightly


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("Bearer eyJh.eyJp.c2ln_-", "eyJh.eyJp.c2ln_-"),
        ("bearer  abc== ", "abc=="),
        ("Bearer", None),
        ("Bearer ", None),
        ("Bearer a,b", None),
        ("Bearer a b", None),
        ("Bearer ä", None),
        ("Basic abc", None),
        ("", None),
    ],
)
def test_a_token_has_the_standard_syntax(header: str, token: str | None) -> None:
    assert bearer_token(header) == token
