import asyncio
import threading

import pytest

from rl_operator.reconcile.off_loop import off_loop


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
