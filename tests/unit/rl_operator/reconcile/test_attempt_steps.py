"""The operator's log has one line for each change of a run, and nothing else about it."""

import logging

import pytest
from tests.unit.rl_operator.reconcile.life import Life
from tests.unit.rl_operator.status.builders import ready, result, running, terminated


@pytest.fixture(autouse=True)
def info_log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO)
    return caplog


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records]


async def test_a_run_that_succeeds(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start()
    await life.report("Pending", ready(), running(), running())
    await life.report("Running", ready(), ready(), ready())
    await life.succeed()
    pod, message = life.status.pod_name, life.status.message
    assert lines(caplog) == [
        ("INFO", f"run default/sorting attempt 1 starts: sort_digits, pod {pod}"),
        ("INFO", f"run default/sorting is over: Succeeded: {message}"),
    ]


async def test_a_lost_attempt_is_followed_by_the_next(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start()
    lost = terminated(4, result(outcome="running", stepsTrained=7))
    await life.report("Failed", ready(), lost, terminated(0))
    await life.later(400)
    first, ended, second = lines(caplog)
    assert "attempt 1 starts" in first[1]
    assert ended[1].startswith("run default/sorting attempt 1 has ended after step 7: BackendUnreachable in trainer")
    assert "attempt 2 starts" in second[1]


async def test_a_failure_is_a_warning_in_one_line(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start(backoffLimit=0)
    await life.fail()
    level, line = lines(caplog)[-1]
    assert level == "WARNING"
    assert line.startswith(f"run default/sorting is over: Failed: {life.status.failure.reason}")
    assert "\n" not in line
    assert len(lines(caplog)) == 2


async def test_a_refusal_is_told_once(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start(config={f"group_sise_{number}": 8 for number in range(9)})
    await life.settle()
    [(level, line)] = lines(caplog)
    assert (level, line.startswith("run default/sorting is refused: UnknownField: spec.config.")) == ("WARNING", True)
    assert line.endswith("(and 8 more)")


async def test_an_edit_of_a_started_run_is_named(life: Life, caplog: pytest.LogCaptureFixture) -> None:
    await life.start()
    await life.change(config={"group_size": 9})
    sentence = "spec.config: it is frozen since the run started: make a new run for other settings"
    assert lines(caplog)[-1] == ("WARNING", f"run default/sorting is refused: FrozenField: {sentence}")
