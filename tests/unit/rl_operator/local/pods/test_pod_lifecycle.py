"""When a container becomes ready and stops being ready, by the answers to its probe."""

import asyncio

import pytest

from rl_operator.local.pods.pod_lifecycle import TICK_SECONDS, Probe, run_for, watch_readiness

PROBE = Probe("http://127.0.0.1:1/healthz", period=0.0, timeout=1.0, failure_threshold=3)


async def reported(answers: str) -> list[bool]:
    """What is reported of a container that passes (+) or fails (-) its probes in turn."""
    left, seen, over = list(answers), list[bool](), asyncio.Event()

    async def answer(_: Probe) -> bool:
        if not left:
            over.set()
            await asyncio.Event().wait()
        return left.pop(0) == "+"

    watching = asyncio.create_task(watch_readiness(answer, PROBE, seen.append))
    await asyncio.wait_for(over.wait(), 10)
    watching.cancel()
    return seen


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        pytest.param("---", [], id="never ready"),
        pytest.param("--+++", [True], id="ready with its first answer"),
        pytest.param("+--+--+", [True], id="late now and then"),
        pytest.param("+---", [True, False], id="as many failures in a row as the probe says"),
        pytest.param("+----+", [True, False, True], id="ready again"),
    ],
)
async def test_readiness(answers: str, expected: list[bool]) -> None:
    assert await reported(answers) == expected


@pytest.mark.parametrize("frozen", [0.0, 600.0])
async def test_a_grace_period_does_not_run_while_the_supervisor_is_frozen(frozen: float) -> None:
    passed, slept, left = 0.0, list[float](), [frozen]

    async def sleep(seconds: float) -> None:
        nonlocal passed
        slept.append(seconds)
        passed += seconds + (left.pop() if left else 0.0)

    await run_for(30, lambda: passed, sleep)
    assert 30 - 2 * TICK_SECONDS <= sum(slept) <= 30
