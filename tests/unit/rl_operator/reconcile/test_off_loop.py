import asyncio
import threading
from typing import Any

import pytest
from tests.unit.rl_operator.samples import DEFAULT, TINY, inputs_of, make_run, make_runtime, own_inputs

from rl_operator.api.settings.size_limits import SMALL_CHARACTERS, SMALL_VALUES
from rl_operator.reconcile.off_loop import is_quick, off_loop


async def test_the_loop_goes_on_while_it_works() -> None:
    asked = threading.Event()

    def work(answer: str) -> tuple[str, str]:
        assert asked.wait(60), "the loop stood still"
        return answer, threading.current_thread().name

    working = asyncio.create_task(off_loop(work, "done"))
    await asyncio.sleep(0)
    asked.set()
    answer, thread = await working
    assert (answer, thread.startswith("documents")) == ("done", True)


async def test_errors_come_back() -> None:
    with pytest.raises(ZeroDivisionError):
        await off_loop(divmod, 1, 0)


QUICK = {
    "a usual run": ({"config": {"total_steps": 40, "group_size": 8}}, {}),
    "the default recipe": ({"runtime": "default"}, {}),
}
SLOW = {
    "a name that must be looked for": ({"config": {"group_sise": 8}}, {}),
    "a name that the trainer does not know": ({"trainer": {"lerning_rate": 1}}, {}),
    "a large value": ({"config": {"total_steps": "x" * SMALL_CHARACTERS}}, {}),
    "a large runtime": ({}, {"locked": {"env": {"choices": list(range(SMALL_VALUES))}}}),
    "an environment that is not there": ({"environment": "sort_digit"}, {}),
}


@pytest.mark.parametrize(
    ("spec", "runtime", "quick"),
    [*((*case, True) for case in QUICK.values()), *((*case, False) for case in SLOW.values())],
    ids=[*QUICK, *SLOW],
)
def test_small_documents_without_misspelled_names_are_quick(
    spec: dict[str, Any], runtime: dict[str, Any], quick: bool
) -> None:
    run = make_run(**spec)
    of_runtime = make_runtime(**runtime) if runtime else DEFAULT if run.spec.runtime == "default" else TINY
    assert is_quick(run, inputs_of(run, of_runtime)) is quick


def test_code_of_ones_own_is_not_quick() -> None:
    run = make_run(environment="own/digits")
    assert not is_quick(run, own_inputs(run))
