"""The Tinker services of a state folder, one for each model: started on demand, used by all runs of that model, and
ended by themselves when idle.
"""

import asyncio
import logging
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from rl_contract.env_vars import TINKER_API_KEY, TINKER_BASE_URL
from rl_operator.local.model_runtimes import BUNDLED, model_of, require_same_model
from rl_operator.local.programs.launch import free_ports, is_free, passed_on, start_detached
from rl_operator.local.state.locks import FileLock, is_held
from rl_operator.local.state.state_store import StateStore, unwritable
from rl_operator.operator_errors import TargetUnreachableError
from rl_operator.programs import TINKER_SERVICE, ProgramMissingError, find_program

START_DEADLINE_SECONDS = 180.0
"""The first import of torch may be slow."""

IDLE_EXIT_SECONDS = 600

LOOK_SECONDS = 2.0
"""How often a training run checks whether its service is still alive."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServiceAddress:
    port: int
    key: str

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def env_vars(self) -> dict[str, str]:
        return {TINKER_BASE_URL: self.url, TINKER_API_KEY: self.key}


class TinkerService:
    """The service of one folder and one model. Its lock is inherited by its process: held means that it is alive.

    `model` is `bundled`, or the folder of a Hugging Face model.
    """

    def __init__(self, folder: Path, caller: Mapping[str, str], session: aiohttp.ClientSession, model: str) -> None:
        self._folder = folder
        self._lock, self._log = folder / "running.lock", folder / "log"
        self._port_file, self._key_file = folder / "port", folder / "key"
        self._model = model
        self._caller = caller
        self._session = session

    @classmethod
    def of_runtime(
        cls, store: StateStore, runtime: str, caller: Mapping[str, str], session: aiohttp.ClientSession
    ) -> "TinkerService | None":
        """The service of a runtime's model; None: its backend is elsewhere. Raises RefusedError if the model is not
        there.
        """
        model = model_of(store, runtime)
        if model is None:
            return None
        require_same_model(store, runtime)
        folder = store.layout.service if model == BUNDLED else store.layout.service_of(runtime)
        return cls(folder, caller, session, model)

    async def until_it_can_start(self) -> None:
        """Wait while nothing can be written: a service that starts then ends, and its port and key would be lost."""
        while not is_held(self._lock) and (why := unwritable(self._folder)) is not None:
            logger.warning("%s: the Tinker service starts when there is room", why)
            await asyncio.sleep(LOOK_SECONDS)

    async def ensure(self, starts: Callable[[ServiceAddress], None] = lambda _: None) -> ServiceAddress:
        """The address of a service that responds; starts one if there is none. Raises TargetUnreachableError.

        `starts` gets the address of one that does not respond yet: what needs it can load meanwhile.
        """
        deadline = time.monotonic() + START_DEADLINE_SECONDS
        starting = FileLock(self._folder / "starting.lock")
        while not starting.take():
            _check_deadline(deadline, "another run to start the Tinker service", self._log)
            await asyncio.sleep(0.1)
        try:
            if not is_held(self._lock) and (address := self._start()) is not None:
                starts(address)
            return await self._answering(deadline)
        finally:
            starting.give_back()

    async def keep(self, wanted: Callable[[], bool]) -> None:
        """Restart a service that was killed, while it is needed; forever. Trainers find it at the same address."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if wanted() and not is_held(self._lock):
                await self.until_it_can_start()
                try:
                    await self.ensure()
                except (OSError, TargetUnreachableError) as error:
                    logger.warning("%s", error)

    async def _answering(self, deadline: float) -> ServiceAddress:
        while (address := self._address()) is None or not await self._answers(address):
            if not is_held(self._lock):
                raise TargetUnreachableError(f"the Tinker service ended while starting: {_last_line(self._log)}")
            _check_deadline(deadline, "the Tinker service to answer", self._log)
            await asyncio.sleep(0.1)
        return address

    def _start(self) -> ServiceAddress | None:
        """Where it will be; None: somebody else has started it in the meantime."""
        try:
            program = find_program(TINKER_SERVICE, self._caller.get("PATH"))
        except ProgramMissingError as error:
            raise TargetUnreachableError(str(error)) from None
        self._folder.mkdir(parents=True, exist_ok=True)
        before = self._address()
        key = before.key if before else f"tml-{secrets.token_hex(16)}"
        if before is None:
            self._key_file.touch(mode=0o600)
            self._key_file.write_text(f"{key}\n", encoding="ascii")
        port = before.port if before and is_free(before.port, again=True) else free_ports(1)[0]
        self._port_file.unlink(missing_ok=True)
        lock = FileLock(self._lock)
        if not lock.take():
            return None
        arguments = ("--model", self._model, "--data", self._folder / "data", "--port", port)
        files = ("--port-file", self._port_file, "--key-file", self._key_file, "--idle-exit", str(IDLE_EXIT_SECONDS))
        words = [program, *map(str, (*arguments, *files))]
        start_detached(words, self._folder, self._log, passed_on(self._caller), lock)
        return ServiceAddress(port, key)

    def _address(self) -> ServiceAddress | None:
        try:
            port, key = self._port_file.read_text().strip(), self._key_file.read_text().strip()
        except FileNotFoundError:
            return None
        return ServiceAddress(int(port), key) if port and key else None

    async def _answers(self, address: ServiceAddress) -> bool:
        try:
            timeout = aiohttp.ClientTimeout(total=5)
            headers = {"X-API-Key": address.key}
            async with self._session.get(f"{address.url}/api/v1/healthz", timeout=timeout, headers=headers) as response:
                return response.status == 200
        except (aiohttp.ClientError, TimeoutError, OSError):
            return False


def _check_deadline(deadline: float, awaited: str, log: Path) -> None:
    if time.monotonic() > deadline:
        raise TargetUnreachableError(f"waited {START_DEADLINE_SECONDS:.0f} s for {awaited}; see {log}")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return lines[-1] if lines else f"it wrote nothing to {log}"
