"""Copies rollout files to a store that may be slow or away, without anyone waiting for it."""

import logging
import threading
from collections.abc import Mapping
from typing import Final

from tinker_atropos.rollout_files.rollout_store import RolloutStore, WritableStore
from tinker_atropos.rollout_files.store_errors import StoreError

PAUSE_SECONDS: Final = 30.0
"""After a failure: the store gets time, and the log has a line for each change of what is wrong."""

_LISTING: Final = ""
"""No file's name: to ask the store which files it has. It waits with the files, and begins."""

logger = logging.getLogger(__name__)


class BackgroundMirror:
    """Implements `RolloutMirror`. A thread does what `put` and `delete` ask for, the oldest first, until it is
    done. Of a file that changes meanwhile, the newest content is put: it is read from `folder` when its turn comes, so
    that nothing is held in memory.

    `put` and `delete` raise StoreError while the store fails, with why; they are done later all the same. `names` and
    `read` are of the whole run: of `folder`, and of what earlier attempts left in the store.
    """

    def __init__(self, store: WritableStore, folder: RolloutStore, pause_seconds: float = PAUSE_SECONDS) -> None:
        self._store, self._folder = store, folder
        self._pause_seconds = pause_seconds
        self._pending: dict[str, bool] = {_LISTING: False}  # name -> whether it is to be deleted
        self._earlier: dict[str, int] | None = None
        self._copying = False
        self._state = threading.Condition()
        self._closing = self._gave_up = False
        self._trouble: str | None = None
        self._thread = threading.Thread(target=self._copy_all, name="rollout mirror", daemon=True)
        self._thread.start()

    @property
    def earlier(self) -> Mapping[str, int] | None:
        """The store is asked once: only this trainer changes the run's files."""
        with self._state:
            return None if self._earlier is None else dict(self._earlier)

    def names(self) -> Mapping[str, int]:
        return {**(self.earlier or {}), **self._folder.names()}

    def read(self, name: str) -> bytes:
        try:
            return self._folder.read(name)
        except FileNotFoundError:
            if name not in (self.earlier or {}):
                raise
        return self._store.read(name)

    def put(self, name: str, content: bytes) -> None:
        del content
        self._ask(name, gone=False)

    def delete(self, name: str) -> None:
        self._ask(name, gone=True)

    def close(self, seconds: float) -> None:
        """Copy what is left, for at most so long. Blocks. Raises StoreError if something could not be copied."""
        with self._state:
            self._closing = True
            self._state.notify()
        self._thread.join(seconds)
        with self._state:
            if left := len(self._pending) + self._copying:
                why = self._trouble or f"{seconds:.0f} s were not enough"
                raise StoreError(f"the last changes of {left} rollout files are not in the store: {why}")

    def _ask(self, name: str, *, gone: bool) -> None:
        with self._state:
            if gone and self._earlier is not None:
                self._earlier.pop(name, None)
            self._pending.pop(name, None)
            self._pending[name] = gone
            self._state.notify()
            if self._trouble:
                raise StoreError(self._trouble)

    def _copy_all(self) -> None:
        while (work := self._next()) is not None:
            name, gone = work
            try:
                self._copy(name, gone=gone)
            except Exception as error:  # noqa: BLE001 -- the edge of the thread: no rollout is worth a run
                why = str(error) if isinstance(error, OSError) else f"{type(error).__name__}: {error}"
                self._failed(name, why, gone=gone)
            else:
                with self._state:
                    self._trouble, self._copying = None, False

    def _next(self) -> tuple[str, bool] | None:
        """Take the oldest, after a failure once there was a pause; None when there is nothing more to do."""
        with self._state:
            if self._trouble:
                self._state.wait_for(lambda: self._closing, self._pause_seconds)
            self._state.wait_for(lambda: self._pending or self._closing)
            if self._closing:
                self._pending.pop(_LISTING, None)  # nobody will read any more
            name = next(iter(self._pending), None) if not self._gave_up else None
            self._copying = name not in (None, _LISTING)
            return (name, self._pending.pop(name)) if name is not None else None

    def _copy(self, name: str, *, gone: bool) -> None:
        if name == _LISTING:
            self._list()
            return
        if gone:
            self._store.delete(name)
            return
        try:
            content = self._folder.read(name)
        except FileNotFoundError:  # it was removed to make room: that is asked for next
            return
        self._store.put(name, content)

    def _list(self) -> None:
        own = self._folder.names()
        earlier = {name: size for name, size in self._store.names().items() if name not in own}
        with self._state:
            self._earlier = earlier

    def _failed(self, name: str, why: str, *, gone: bool) -> None:
        """To be done again, unless something newer is asked of the file."""
        with self._state:
            if why != self._trouble:
                logger.warning("%s", why)
            self._trouble, self._copying = why, False
            self._gave_up = self._closing and name != _LISTING
            if name == _LISTING:  # last: a key that may not list may put
                self._pending[name] = gone
            elif name not in self._pending:
                self._pending = {name: gone, **self._pending}
