"""The trainers' own `/status` (contract: Containers), asked by one paced task, never inside a reconcile."""

import asyncio
from collections.abc import Callable, Iterable

import aiohttp
import orjson
from pydantic import ValidationError

from rl_operator.api.names import TRAINING_COMPONENT
from rl_operator.status.observation import PodObservation, TrainerStatus
from rl_operator.telemetry import TRAINER_POLLS

TRAINER_OPS_PORT = 8002
ANSWER_SECONDS = 5.0
AT_ONCE = 16


def pod_ops_url(pod: PodObservation) -> str | None:
    """Where a trainer answers in its pod; None: the pod has no address yet."""
    host = f"[{pod.address}]" if ":" in (pod.address or "") else pod.address
    return f"http://{host}:{TRAINER_OPS_PORT}" if host else None


class TrainerPoller:
    """Asks each running trainer once per interval and keeps its latest answer by pod uid."""

    def __init__(
        self,
        pods: Callable[[], Iterable[PodObservation]],
        changed: Callable[[PodObservation], None],
        *,
        interval_seconds: float,
        ops_url: Callable[[PodObservation], str | None] = pod_ops_url,
    ) -> None:
        self._pods = pods
        self._changed = changed
        self._interval = interval_seconds
        self._ops_url = ops_url
        self._latest: dict[str, TrainerStatus] = {}

    def status_of(self, pod: PodObservation) -> TrainerStatus | None:
        """The latest answer, however old: the trainer says itself when it made its last step."""
        return self._latest.get(pod.uid)

    async def run(self) -> None:
        """Ask for ever; ends only by cancellation."""
        timeout = aiohttp.ClientTimeout(total=ANSWER_SECONDS)
        async with aiohttp.ClientSession(timeout=timeout) as session:
            while True:
                await self._round(session)

    async def _round(self, session: aiohttp.ClientSession) -> None:
        """Ask every running trainer, spread evenly over the interval."""
        running = (pod for pod in self._pods() if pod.address and not pod.over)
        pods = [pod for pod in running if pod.component == TRAINING_COMPONENT]
        alive = {pod.uid for pod in pods}
        self._latest = {uid: status for uid, status in self._latest.items() if uid in alive}
        slots = asyncio.Semaphore(AT_ONCE)
        async with asyncio.TaskGroup() as group:
            for pod in pods:
                await slots.acquire()
                question = group.create_task(self._ask(session, pod))
                question.add_done_callback(lambda _: slots.release())
                await asyncio.sleep(self._interval / len(pods))
        if not pods:
            await asyncio.sleep(min(self._interval, 1.0))

    async def _ask(self, session: aiohttp.ClientSession, pod: PodObservation) -> None:
        url = self._ops_url(pod)
        if url is None:
            return
        try:
            async with session.get(f"{url}/status") as response:
                response.raise_for_status()
                status = TrainerStatus.model_validate(orjson.loads(await response.read()))
        except (aiohttp.ClientError, TimeoutError, OSError):
            # Not up yet, or on its way out: the pod's own status says what matters.
            TRAINER_POLLS.labels("silent").inc()
        except (orjson.JSONDecodeError, ValidationError):
            TRAINER_POLLS.labels("unreadable").inc()
        else:
            TRAINER_POLLS.labels("answered").inc()
            if self._latest.get(pod.uid) != status:
                self._latest[pod.uid] = status
                self._changed(pod)
