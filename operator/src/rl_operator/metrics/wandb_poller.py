"""What W&B knows about training runs, polled by one paced task: one query for many runs, with back-off per server.

The key is the operator's own, from its WANDB_API_KEY. It is sent only to servers that RLRuntimes name.
"""

import asyncio
import base64
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Final

import aiohttp
from pydantic import ValidationError

from rl_operator.api.training_run import TrainingRun
from rl_operator.backoff import backoff
from rl_operator.metrics.trainer_poller import UnreadableAnswerError, read_json
from rl_operator.metrics.wandb_query import MOST_RUNS, WandbProject, WandbRefusedError, question, read_answer
from rl_operator.status.observed.observation import PodObservation
from rl_operator.status.observed.wandb_run import WandbRun
from rl_operator.telemetry import WANDB_CALLS

log = logging.getLogger(__name__)

ANSWER_SECONDS: Final = 20.0
ANSWER_BYTES: Final = 32 * 2**20
"""Summaries also hold what environments log: 100 of them may be long."""

LONGEST_SECONDS: Final = 900.0
LONGEST_ASKED_FOR_SECONDS: Final = 3600.0
"""Whatever Retry-After says: metrics are worth a request an hour."""

KEY_REFUSED: Final = (401, 403)
BUSY: Final = 429
GONE_WRONG: Final = 500


class OutageError(Exception):
    """The server did not respond. `outcome` is the label of the metric; `pause_seconds` is what it asked for."""

    def __init__(self, outcome: str, why: str, pause_seconds: float | None = None) -> None:
        super().__init__(why)
        self.outcome = outcome
        self.pause_seconds = pause_seconds


class Outage:
    """A server's outage, or none. `over_at` is when it may be polled again, by time.monotonic()."""

    def __init__(self, base_url: str, first_seconds: float) -> None:
        self._base_url = base_url
        self._first = first_seconds
        self._failures = 0
        self.over_at = float("-inf")

    def failed(self, error: OutageError, now: float) -> None:
        pause = backoff(self._failures + 1, self._first, max(LONGEST_SECONDS, self._first))
        if error.pause_seconds is not None:
            pause = max(self._first, min(error.pause_seconds, LONGEST_ASKED_FOR_SECONDS))
        if self._failures == 0:
            log.warning("W&B at %s returns no metrics (%.300s): it is polled less often", self._base_url, error)
        self._failures += 1
        self.over_at = now + pause

    def answered(self) -> None:
        if self._failures:
            log.info("W&B at %s answers again", self._base_url)
        self._failures = 0


def check_status(response: aiohttp.ClientResponse) -> None:
    """Raises OutageError for an error of the server or the key, RefusedError for one of the request."""
    code = response.status
    if code == BUSY:
        raise OutageError("limited", "HTTP 429: too many requests", retry_after(response.headers.get("Retry-After")))
    if code in KEY_REFUSED:
        raise OutageError("key refused", f"HTTP {code}: it refuses the operator's WANDB_API_KEY", LONGEST_SECONDS)
    if code >= GONE_WRONG:
        raise OutageError("silent", f"HTTP {code}", retry_after(response.headers.get("Retry-After")))
    if code != 200:
        raise WandbRefusedError(f"HTTP {code}")


def retry_after(value: str | None, now: datetime | None = None) -> float | None:
    """The seconds of a Retry-After header (RFC 9110, 10.2.3): a number of seconds, or a date."""
    if not value:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        moment = parsedate_to_datetime(value)
    except ValueError:
        return None
    moment = moment if moment.tzinfo else moment.replace(tzinfo=UTC)
    return max(0.0, (moment - (now or datetime.now(UTC))).total_seconds())


@dataclass(frozen=True, slots=True)
class AskedRun:
    """A run that trains in `pod`. Its id at W&B is its uid. `metrics_wanted`: no other source reports its metrics."""

    pod: PodObservation
    uid: str
    project: WandbProject
    metrics_wanted: bool


class WandbPoller:
    """Polls each run once per interval and keeps the latest response by uid."""

    def __init__(
        self,
        runs: Callable[[], Iterable[AskedRun]],
        changed: Callable[[PodObservation], None],
        *,
        key: str,
        interval_seconds: float,
    ) -> None:
        self._runs = runs
        self._changed = changed
        self._headers = {"Authorization": f"Basic {base64.b64encode(f'api:{key}'.encode()).decode()}"}
        self._interval = interval_seconds
        self._latest: dict[str, WandbRun] = {}
        self._outages: dict[str, Outage] = {}
        self._refused: set[WandbProject] = set()

    def run_of(self, run: TrainingRun) -> WandbRun | None:
        return self._latest.get(run.metadata.uid)

    async def run(self) -> None:
        """Poll forever; ends only by cancellation."""
        timeout, jar = aiohttp.ClientTimeout(total=ANSWER_SECONDS), aiohttp.DummyCookieJar()
        async with aiohttp.ClientSession(timeout=timeout, headers=self._headers, cookie_jar=jar) as session:
            while True:
                begun = time.monotonic()
                await self._round(session)
                await asyncio.sleep(max(0.0, begun + self._interval - time.monotonic()))

    async def _round(self, session: aiohttp.ClientSession) -> None:
        """Servers in parallel: a slow one does not hold up the others."""
        by_server: dict[str, dict[WandbProject, list[AskedRun]]] = defaultdict(lambda: defaultdict(list))
        alive = set()
        for asked in self._runs():
            alive.add(asked.uid)
            by_server[asked.project.base_url][asked.project].append(asked)
        self._latest = {uid: known for uid, known in self._latest.items() if uid in alive}
        async with asyncio.TaskGroup() as group:
            for base_url, projects in by_server.items():
                outage = self._outages.setdefault(base_url, Outage(base_url, self._interval))
                if outage.over_at <= time.monotonic():
                    group.create_task(self._ask_server(session, projects, outage))

    async def _ask_server(
        self, session: aiohttp.ClientSession, projects: Mapping[WandbProject, Sequence[AskedRun]], outage: Outage
    ) -> None:
        """One query after the other; the first failure ends the round."""
        for project, asked in projects.items():
            for start in range(0, len(asked), MOST_RUNS):
                try:
                    await self._ask(session, project, asked[start : start + MOST_RUNS])
                except OutageError as error:
                    WANDB_CALLS.labels(error.outcome).inc()
                    outage.failed(error, time.monotonic())
                    return
        outage.answered()

    async def _ask(self, session: aiohttp.ClientSession, project: WandbProject, asked: Sequence[AskedRun]) -> None:
        ids = [each.uid for each in asked]
        body = question(project.entity, project.project, ids)
        try:
            async with session.post(f"{project.base_url}/graphql", json=body, allow_redirects=False) as response:
                check_status(response)
                found = read_answer(await read_json(response, ANSWER_BYTES), ids)
        except WandbRefusedError as error:
            self._note_refusal(project, str(error))
            return
        except (UnreadableAnswerError, ValidationError) as error:
            raise OutageError("unreadable", "its answer is not one of W&B") from error
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError) as error:  # ValueError: an invalid base URL
            raise OutageError("silent", f"{type(error).__name__}: {error}".rstrip(": ")) from error
        WANDB_CALLS.labels("answered").inc()
        self._refused.discard(project)
        for each in asked:
            self._take(each, found.get(each.uid))

    def _note_refusal(self, project: WandbProject, why: str) -> None:
        """Notes the refusal of one project, e.g. one that the key may not see: the others are still polled."""
        WANDB_CALLS.labels("refused").inc()
        if project not in self._refused:
            self._refused.add(project)
            log.warning("W&B does not show %s/%s at %s: %.300s", project.entity, project.project, project.base_url, why)

    def _take(self, asked: AskedRun, found: WandbRun | None) -> None:
        before = self._latest.get(asked.uid)
        if found is None or found == before:
            return
        self._latest[asked.uid] = found
        if asked.metrics_wanted or before is None or before.state != found.state:
            self._changed(asked.pod)
