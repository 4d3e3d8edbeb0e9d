"""An environment that tries to get out of its pod, and says how far it came. For the tests of a real cluster.

It writes one line per attempt, `WALL <name> <held|OPEN> <detail>`, and then trains like any other.
"""

import os
import re
import socket
import urllib.error
import urllib.request
from pathlib import Path

from tinker_atropos.environments.bundled import digits
from tinker_atropos.environments.base import Environment, EnvironmentConfig

SERVICE = os.environ["RL_API_URL"].removeprefix("http://").rsplit(":", 1)[0]
NAMESPACE = SERVICE.split(".")[1]
SECONDS = 3


def connects(host, port):
    with socket.create_connection((host, port), timeout=SECONDS):
        return f"connected to {host}:{port}"


def writes(path):
    Path(path).write_text("x")
    return f"wrote {path}"


def trainer_route(path, method="GET"):
    """The trainer's routes of the data port, which an environment can reach but must not use."""
    request = urllib.request.Request(os.environ["RL_API_URL"] + path, method=method, data=b"{}" if method == "POST" else None)
    with urllib.request.urlopen(request, timeout=SECONDS) as answer:
        return f"{method} {path} answered {answer.status}"


def keys():
    found = [name for name, value in os.environ.items() if re.search("KEY|TOKEN|SECRET", name) or value.startswith("tml-")]
    if not found:
        raise PermissionError("no key among the variables")
    return f"variables {found}"


def token():
    return Path("/var/run/secrets/kubernetes.io/serviceaccount/token").read_text()[:5]


def other_processes():
    others = [pid for pid in os.listdir("/proc") if pid.isdecimal() and int(pid) not in (1, os.getpid())]
    named = [pid for pid in others if b"trainer" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    if not named:
        raise PermissionError("no trainer among the processes")
    return f"processes {named}"


def privileges():
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    uids, capabilities = status["Uid"].split(), status["CapBnd"]
    if "0" not in uids and "65532" not in uids and int(capabilities, 16) == 0 and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2":
        raise PermissionError(f"uid {uids[0]}, no capabilities, no new privileges, seccomp")
    return f"uid {uids} capabilities {capabilities} {status['NoNewPrivs']} {status['Seccomp']}"


def limits():
    memory = Path("/sys/fs/cgroup/memory.max").read_text().strip()
    if memory != "max":
        raise PermissionError(f"memory is limited to {memory} bytes")
    return "memory is not limited"


WALLS = {
    "service-account-token": token,
    "keys": keys,
    "root-file-system": lambda: writes("/opt/venv/x"),
    "config": lambda: writes("/etc/rl/config.yaml"),
    "source": lambda: writes("/etc/rl/source/walls.py"),
    "processes": other_processes,
    "privileges": privileges,
    "memory": limits,
    "api-server": lambda: connects("kubernetes.default.svc", 443),
    "trainer-ops": lambda: connects(SERVICE, 8002),
    "api-ops": lambda: connects(SERVICE, 8003),
    "backend": lambda: connects(f"tinker-service.{NAMESPACE}.svc", 8005),
    "metadata-address": lambda: connects("169.254.169.254", 80),
    "batches": lambda: trainer_route("/batch"),
    "progress": lambda: trainer_route("/rl/progress", "POST"),
    "registration": lambda: trainer_route("/register", "POST"),
}


def tried(attempt):
    try:
        return f"OPEN {attempt()}"
    except (OSError, urllib.error.URLError) as error:
        return f"held {error!r}"


class Walls(Environment[digits.Item]):
    """Sort four digits, after a look around."""

    name = "walls"

    @classmethod
    def config_init(cls):
        return EnvironmentConfig(
            tokenizer_name="bundled", group_size=8, batch_size=32, total_steps=3, max_token_length=32
        ), []

    async def setup(self):
        for name, attempt in WALLS.items():
            print(f"WALL {name} {tried(attempt)}", flush=True)
        await super().setup()

    def training_items(self):
        return digits.split().training

    def held_out_items(self):
        return digits.split().held_out

    def prompt(self, item):
        return [{"role": "user", "content": digits.prompt(item)}]

    def score(self, item, completion):
        return float(completion == digits.answer(item))
