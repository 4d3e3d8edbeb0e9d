"""HTTP probes of a pod's manifest."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

import aiohttp

from rl_operator.local.programs.ports import PodPorts

IMPATIENT_SECONDS = 0.2
"""Until a container first responds, it is probed this often: on one machine that costs nothing."""

Answers = Callable[["Probe"], Awaitable[bool]]


@dataclass(frozen=True, slots=True)
class Probe:
    """`period` and `timeout` in seconds; after this many failures in a row the container has failed the probe."""

    url: str
    period: float
    timeout: float
    failure_threshold: int

    @property
    def patience(self) -> float:
        """Seconds that a container may take to pass for the first time."""
        return self.period * self.failure_threshold


def read_probe(container: Mapping[str, Any], kind: str, ports: PodPorts) -> Probe | None:
    """The `startupProbe` or `readinessProbe` of a container; None: it has none."""
    probe = container.get(kind)
    if probe is None:
        return None
    get, period = probe["httpGet"], float(probe.get("periodSeconds", 10))
    named = {port["name"]: port["containerPort"] for port in container.get("ports", []) if "name" in port}
    port = ports.of(container["name"], named.get(get["port"], get["port"]))
    return Probe(
        url=f"http://127.0.0.1:{port}{get.get('path', '/')}",
        period=period,
        timeout=float(probe.get("timeoutSeconds", 1)),
        failure_threshold=probe.get("failureThreshold", 3),
    )


def read_readiness(container: Mapping[str, Any], ports: PodPorts) -> Probe | None:
    """What makes a container ready: without a probe of its own, that it has started."""
    return read_probe(container, "readinessProbe", ports) or read_probe(container, "startupProbe", ports)


async def passes(session: aiohttp.ClientSession, probe: Probe) -> bool:
    """One request; 2xx and 3xx pass."""
    try:
        async with session.get(probe.url, timeout=aiohttp.ClientTimeout(total=probe.timeout)) as response:
            return response.status < 400
    except (aiohttp.ClientError, TimeoutError, OSError):
        return False


async def wait_started(answers: Answers, probe: Probe, stopping: asyncio.Event) -> bool:
    """Wait until a startup probe passes; False once it has failed for good or the pod is stopping."""
    deadline = time.monotonic() + probe.patience
    while time.monotonic() < deadline and not stopping.is_set():
        if await answers(probe):
            return True
        await asyncio.sleep(IMPATIENT_SECONDS)
    return False


async def watch_readiness(answers: Answers, probe: Probe, report: Callable[[bool], None]) -> None:
    """Report every change, forever; its owner cancels it when the container ends. As in a kubelet, one success makes a
    container ready, and only as many failures in a row as the probe says make it unready: a busy machine is slow.
    """
    was_ready, failures = False, 0
    while True:
        passed = await answers(probe)
        failures = 0 if passed else failures + 1
        ready = passed or (was_ready and failures < probe.failure_threshold)
        if ready != was_ready:
            was_ready = ready
            report(ready)
        await asyncio.sleep(probe.period if ready else min(probe.period, IMPATIENT_SECONDS))
