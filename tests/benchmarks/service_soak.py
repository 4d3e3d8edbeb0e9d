"""Does the Tinker service keep what it should have dropped? `python -m tests.benchmarks.service_soak [MINUTES]`.

For 30 minutes real clients in processes of their own come, sample with mixed lengths, train, and are ended at random:
most by SIGKILL, some are frozen first, some close their session. Each minute prints the service's memory and work; the
end compares the middle third with the last. Goal: memory is flat. The seed decides what clients do and how long they
live; their speed is the machine's.
"""

import argparse
import os
import random
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType

from tests.benchmarks.made_models import longer_bundled
from tests.benchmarks.meter import Stopwatch, forget_peak, peak_mib, resident_mib
from tests.benchmarks.tinker_process import TinkerProcess, tinker_service

POSITIONS = 2_048
LIFE_SECONDS = 30.0
"""Of a client, on average; it imports the SDK in the first of them."""
FROZEN_SECONDS = 40.0
CLOSE_SECONDS = 120.0
DEATHS = {"killed": 0.7, "frozen": 0.1, "closed": 0.2}
GAUGES = ("sessions", "models", "samplers", "queue_jobs")
CLIENT = (
    "import sys; sys.modules['torch'] = None; from tests.benchmarks.soak_client import live; live({model!r}, {seed})"
)
"""Without torch, which the SDK would import: 2 s and 180 MB."""
FLAT = 1.1
"""Times the memory of the middle third: what the last third may have. In the first one, silent sessions fill the memory
that they may keep together."""
THIRDS = ("first", "middle", "last")


@dataclass
class Guest:
    """One client and what is going to end it."""

    process: subprocess.Popen[bytes]
    death: str
    dies_at: float
    dead_at: float | None = None
    """When a client that has been told to end, or is frozen, is killed."""

    @property
    def fate(self) -> str:
        """How it ended: as was meant, or by an error, or it did not close its session in time."""
        if self.process.returncode == -signal.SIGKILL:
            return "stuck" if self.death == "closed" else self.death
        closed = (0, -signal.SIGTERM)  # the latter while it still imported
        return "closed" if self.process.returncode in closed else "failed"


@dataclass
class Guests:
    """As many clients as there are places, one after the other."""

    service: TinkerProcess
    model: str
    log: Path
    places: int
    chance: random.Random
    present: list[Guest] = field(default_factory=list)
    ends: Counter[str] = field(default_factory=Counter)

    def look(self, now: float) -> None:
        """End those whose time has come, and let others take their places."""
        for guest in list(self.present):
            if guest.process.poll() is not None:
                self.present.remove(guest)
                self.ends[guest.fate] += 1
            elif guest.dead_at is not None and now >= guest.dead_at:
                guest.process.kill()
            elif guest.dead_at is None and now >= guest.dies_at:
                self._end(guest, now)
        while len(self.present) < self.places:
            self.present.append(self._arrived(now))

    def leave(self) -> None:
        for guest in self.present:
            guest.process.kill()
            guest.process.wait()

    def _arrived(self, now: float) -> Guest:
        command = [sys.executable, "-c", CLIENT.format(model=self.model, seed=self.chance.randrange(2**31))]
        with self.log.open("ab") as log:
            env_vars = {**os.environ, **self.service.env_vars()}
            process = subprocess.Popen(command, env=env_vars, stdout=log, stderr=log)
        death = self.chance.choices(list(DEATHS), list(DEATHS.values()))[0]
        return Guest(process, death, now + self.chance.expovariate(1 / LIFE_SECONDS))

    def _end(self, guest: Guest, now: float) -> None:
        number, seconds = {
            "killed": (signal.SIGKILL, 0.0),
            "frozen": (signal.SIGSTOP, FROZEN_SECONDS),
            "closed": (signal.SIGTERM, CLOSE_SECONDS),
        }[guest.death]
        guest.process.send_signal(number)
        guest.dead_at = now + seconds


def metric(text: str, name: str) -> float:
    found = re.search(rf"^tinker_service_{re.escape(name)} ([0-9.e+]+)$", text, re.MULTILINE)
    return float(found[1]) if found else 0.0


def scrape(url: str) -> str:
    with urllib.request.urlopen(f"{url}/metrics", timeout=60) as answer:
        text: str = answer.read().decode()
        return text


def slope(points: list[tuple[float, float]]) -> float:
    """MiB per minute, by least squares."""
    return statistics.linear_regression(*zip(*points, strict=True)).slope if len(points) > 1 else 0.0


def soak(service: TinkerProcess, guests: Guests, minutes: float) -> list[tuple[float, float]]:
    """Memory each second: minutes since the begin, and MiB."""
    began, memory, tokens = time.monotonic(), list[tuple[float, float]](), 0.0
    watch, row_at = Stopwatch(service.pid), 1.0
    while (passed := (time.monotonic() - began) / 60) < minutes or row_at <= minutes:
        guests.look(time.monotonic())
        memory.append((passed, resident_mib(service.pid)))
        if passed >= row_at:
            row_at += 1
            text, used = scrape(service.url), watch.read()
            sampled = metric(text, 'tokens_total{kind="sampled"}')
            work = f"{peak_mib(service.pid):9.0f}{used.cpu:8.1f}{(sampled - tokens) / used.seconds:10.0f}"
            kept = "".join(f"{metric(text, name):10.0f}" for name in GAUGES)
            ends = ", ".join(f"{count} {how}" for how, count in sorted(guests.ends.items()))
            print(f"{passed:6.1f}{memory[-1][1]:9.0f}{work}{kept}  {ends}", flush=True)
            tokens, watch = sampled, Stopwatch(service.pid)
            forget_peak(service.pid)
        time.sleep(1)
    return memory


def conclude(memory: list[tuple[float, float]], minutes: float) -> None:
    thirds = [
        [point for point in memory if begin <= point[0] * 3 / minutes < begin + 1] for begin in range(len(THIRDS))
    ]
    means = [statistics.mean(mib for _, mib in third) for third in thirds]
    for name, third, mean in zip(THIRDS, thirds, means, strict=True):
        print(f"{name:>6} third: mean {mean:6.0f} MiB, slope {slope(third):+8.2f} MiB per minute")
    print(f"last to middle: {means[2] / means[1]:.2f} x   <= {FLAT} x")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("minutes", nargs="?", type=float, default=30)
    arguments.add_argument("--clients", type=int, default=4)
    arguments.add_argument("--seed", type=int, default=0)
    options = arguments.parse_args()
    signal.signal(signal.SIGTERM, leave)
    with tempfile.TemporaryDirectory() as folder:
        model = str(longer_bundled(Path(folder), POSITIONS))
        log = Path(folder, "clients.log")
        with tinker_service("--model", model) as service:
            guests = Guests(service, model, log, options.clients, random.Random(options.seed))
            print(f"soak of {options.minutes:g} minutes, {options.clients} clients at once, seed {options.seed}, "
                  f"load {os.getloadavg()[0]:.1f}; {service.idle_mib:.0f} MiB idle")  # fmt: skip
            print("minute  RSS MiB     peak   CPU s  tokens/s  sessions    models  samplers     queue  clients ended")
            try:
                memory = soak(service, guests, options.minutes)
            finally:
                guests.leave()
            conclude(memory, options.minutes)
        if guests.ends["failed"]:
            print(f"clients failed; the end of their log:\n{log.read_text()[-3000:]}")


def leave(_number: int, _frame: FrameType | None) -> None:
    """SIGTERM ends the clients and the service, too."""
    sys.exit(143)


if __name__ == "__main__":
    main()
