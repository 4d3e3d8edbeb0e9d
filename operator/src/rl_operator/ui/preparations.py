"""What is installed before a run begins: in a thread, so that its page is answered at once and shows how far it is."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass

from rl_operator.operator_errors import OperatorError

Progress = Callable[[str], None]
"""Gets what is being done, again and again."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Preparation:
    """`began` in seconds of `time.monotonic`. `fault`: why it failed; empty: it goes on."""

    began: float
    step: str = ""
    fault: str = ""


class Preparations:
    """The preparations of one server, by the run's uid: those that go on, and the last one of each run if it failed."""

    def __init__(self) -> None:
        self._known: dict[str, Preparation] = {}
        self._lock = threading.Lock()

    def of(self, uid: str) -> Preparation | None:
        return self._known.get(uid)

    def begin(self, uid: str, work: Callable[[Progress], object], changed: Callable[[], None]) -> None:
        """Unless it goes on already. `changed` is called in the thread whenever there is something new to show."""
        with self._lock:
            known = self._known.get(uid)
            if known is not None and not known.fault:
                return
            self._known[uid] = Preparation(time.monotonic())
        # A daemon: the process does not wait for it at its end.
        threading.Thread(target=self._run, args=(uid, work, changed), name="prepares a run", daemon=True).start()

    def _run(self, uid: str, work: Callable[[Progress], object], changed: Callable[[], None]) -> None:
        began = self._known[uid].began

        def tell(preparation: Preparation) -> None:
            self._known[uid] = preparation
            with contextlib.suppress(RuntimeError):  # the server has ended: nobody is shown anything
                changed()

        try:
            work(lambda step: tell(Preparation(began, step)))
        except OperatorError as error:
            tell(Preparation(began, fault=str(error)))
        except Exception:  # the edge of a thread that nobody waits for
            logger.exception("a run could not be prepared")
            tell(Preparation(began, fault="the server failed; its log says more"))
        else:
            del self._known[uid]
            with contextlib.suppress(RuntimeError):
                changed()
