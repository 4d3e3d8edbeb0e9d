"""An OpenEnv server in one file: it speaks the protocol of OpenEnv 0.10 and sorts digits, or misbehaves as asked.

It needs nothing but `websockets`, which the image tinker-atropos has, so that `python -c THIS_TEXT MODE` is a server
there, too. It listens at the variable PORT. The modes:

    plain     sorts: `sort 4 1 3 2` is answered with {"answer": "1234"}
    walls     tries to get out of its pod when it is reset first, prints `WALL <name> <held|OPEN> <detail>` for each
              attempt, then sorts
    mixed     every other seed plays one of the faults below, the others sort
    silent    accepts a reset and never answers it
    garbage   answers what is no frame of the protocol
    huge      answers with a frame of 10 MB
    flood     sends frames without being asked
    refuses   has no session free, ever
    dies      ends with its third reset, once: whoever runs it must start it again
    killed    ends by SIGKILL when it is asked for its 40th step
    crashes   ends before it serves, each time
    greedy    takes 300 MB before it serves
    unhealthy never answers GET /health
"""

import asyncio
import json
import os
import random
import re
import signal
import socket
import sys
import urllib.request
from http import HTTPStatus
from pathlib import Path

from websockets.asyncio.server import serve
from websockets.exceptions import ConnectionClosed

FAULTS = ("silent", "garbage", "huge", "flood")
SECONDS = 3
ACTION = {
    "title": "SortAction",
    "type": "object",
    "properties": {"answer": {"type": "string"}, "metadata": {"type": "object"}},
    "required": ["answer"],
    "additionalProperties": False,
}
OBSERVATION = {"title": "SortObservation", "type": "object", "properties": {"text": {"type": "string"}}}
SCHEMAS = {"action": ACTION, "observation": OBSERVATION, "state": {"type": "object"}}
DIED = Path(os.environ.get("TMPDIR", "/tmp")) / "died"
resets = steps = 0
tried = asyncio.Event()
"""Whether all attempts at the walls are made. A network plugin may need a moment until a policy holds for a new pod:
they are made when training has begun, not when the server starts.
"""


def connects(host, port):
    with socket.create_connection((host, port), timeout=SECONDS):
        return f"connected to {host}:{port}"


def writes(path):
    Path(path).write_text("x")
    return f"wrote {path}"


def reads(path):
    return f"read {Path(path).read_text()[:5]!r} from {path}"


def resolves(name):
    return f"{name} is {socket.getaddrinfo(name, 443)[0][4][0]}"


def variables():
    """The API server's address is given to every container by the kubelet; it is no secret."""
    private = [
        name
        for name, value in os.environ.items()
        if re.search("KEY|TOKEN|SECRET|^RL_|^TINKER_|^WANDB_", name) or value.startswith("tml-")
    ]
    if not private:
        raise PermissionError("nothing of the run among the variables")
    return f"variables {private}"


def processes():
    others = [pid for pid in os.listdir("/proc") if pid.isdecimal() and int(pid) not in (1, os.getpid())]
    named = [pid for pid in others if b"tinker-atropos" in Path(f"/proc/{pid}/cmdline").read_bytes()]
    if not named:
        raise PermissionError("no environment among the processes")
    return f"processes {named}"


def data_port(path):
    """Of the run's pod, whose address the pod's hosts file has: the port is open, and must not serve this server."""
    [address] = [line.split()[0] for line in Path("/etc/hosts").read_text().splitlines() if line.endswith(".svc")]
    with urllib.request.urlopen(f"http://{address}{path}", timeout=SECONDS) as answer:
        return f"{address}{path} answered {answer.status}"


def privileges():
    status = dict(line.split(":\t", 1) for line in Path("/proc/self/status").read_text().splitlines() if ":\t" in line)
    uids, capabilities = status["Uid"].split(), status["CapBnd"]
    if "0" not in uids and int(capabilities, 16) == 0 and status["NoNewPrivs"] == "1" and status["Seccomp"] == "2":
        raise PermissionError(f"uid {uids[0]}, no capabilities, no new privileges, seccomp")
    return f"uid {uids} capabilities {capabilities} {status['NoNewPrivs']} {status['Seccomp']}"


def limited(file, unlimited):
    found = Path(f"/sys/fs/cgroup/{file}").read_text().strip()
    if not found.startswith(unlimited):
        raise PermissionError(f"{file} is {found}")
    return f"{file} is {found}"


WALLS = {
    "service-account-token": lambda: reads("/var/run/secrets/kubernetes.io/serviceaccount/token"),
    "variables": variables,
    "config": lambda: reads("/etc/rl/config.yaml"),
    "root-file-system": lambda: writes("/var/tmp/x"),
    "processes": processes,
    "privileges": privileges,
    "memory": lambda: limited("memory.max", "max"),
    "cpu": lambda: limited("cpu.max", "max"),
    "api-server": lambda: connects(os.environ["KUBERNETES_SERVICE_HOST"], int(os.environ["KUBERNETES_SERVICE_PORT"])),
    "metadata-address": lambda: connects("169.254.169.254", 80),
    "trajectory-api": lambda: data_port(":8000/status"),
    "inference": lambda: data_port(":8001/v1/models"),
    "internet": lambda: connects("1.1.1.1", 443),
    "resolver": lambda: connects("1.1.1.1", 53),
    "names-of-the-cluster": lambda: resolves("kubernetes.default.svc.cluster.local"),
    "names-of-the-internet": lambda: resolves("example.com"),
}


def try_the_walls():
    for name, attempt in WALLS.items():
        try:
            verdict = f"OPEN {attempt()}"
        except (OSError, KeyError, ValueError) as error:
            verdict = f"held {error!r}"
        print(f"WALL {name} {verdict}", flush=True)


async def walls_tried():
    """The first that asks makes the attempts, and the others wait for it."""
    if resets == 1:
        await asyncio.to_thread(try_the_walls)
        tried.set()
    await tried.wait()


def digits_of(seed):
    return random.Random(seed).sample(range(10), 4)


def observation(text, reward=None, done=False):
    data = {"observation": {"text": text}, "reward": reward, "done": done}
    return json.dumps({"type": "observation", "data": data})


def failure(message, code):
    return json.dumps({"type": "error", "data": {"message": message, "code": code, "errors": []}})


def step(digits, action):
    answer = action.get("answer")
    if not isinstance(answer, str):
        return failure("answer: Input should be a valid string", "VALIDATION_ERROR")
    right = "".join(map(str, sorted(digits)))
    return observation("right" if answer == right else f"it is {right}", float(answer == right), done=True)


async def misbehave(connection, fault):
    if fault == "silent":
        await connection.wait_closed()
    elif fault == "garbage":
        await connection.send('{"type": "observation", "data": [' + "\x00" * 8)
    elif fault == "huge":
        await connection.send(observation("9" * 10_000_000))
    while fault == "flood":
        await connection.send(observation("more"))


async def session(connection, mode):
    global resets, steps
    digits = None
    async for frame in connection:
        message = json.loads(frame)
        data = message.get("data") or {}
        if mode == "refuses":
            await connection.send(failure("no session is free", "CAPACITY_REACHED"))
        elif message["type"] == "reset":
            resets += 1
            if mode == "dies" and resets == 3 and not DIED.exists():
                DIED.touch()
                os._exit(3)
            seed = data.get("seed") or 0
            if mode == "walls":
                await walls_tried()
            fault = FAULTS[seed // 2 % len(FAULTS)] if mode == "mixed" and seed % 2 else mode
            if fault in FAULTS:
                await misbehave(connection, fault)
                continue
            digits = digits_of(seed)
            await connection.send(observation("sort " + " ".join(map(str, digits))))
        elif message["type"] == "step" and digits is not None:
            steps += 1
            if mode == "killed" and steps == 40:
                os.kill(os.getpid(), signal.SIGKILL)
            await connection.send(step(digits, data))
        elif message["type"] == "state":
            await connection.send(json.dumps({"type": "state", "data": {"episode_id": None, "step_count": 0}}))
        elif message["type"] == "close":
            return
        else:
            await connection.send(failure("reset comes first", "EXECUTION_ERROR"))


async def main(mode):
    async def answer(connection, request):
        """The routes; None: it is a session."""
        if request.path == "/ws":
            return None
        if request.path == "/health" and mode == "unhealthy":
            await asyncio.sleep(3600)
        bodies = {"/health": {"status": "healthy"}, "/schema": SCHEMAS, "/metadata": {"name": "sorting"}}
        found = request.path in bodies
        status = HTTPStatus.OK if found else HTTPStatus.NOT_FOUND
        return connection.respond(status, json.dumps(bodies.get(request.path, {})) + "\n")

    async def handle(connection):
        try:
            await session(connection, mode)
        except ConnectionClosed:
            return

    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    if mode == "crashes":
        raise RuntimeError("there is no board to play on")
    held = b"x" * 300_000_000 if mode == "greedy" else b""  # until the server ends
    host = os.environ.get("HOST", "0.0.0.0" if "KUBERNETES_SERVICE_HOST" in os.environ else "127.0.0.1")
    async with serve(handle, host, int(os.environ["PORT"]), process_request=answer, max_size=2**20):
        print(f"serving {mode} at port {os.environ['PORT']}", flush=True)
        await stop.wait()
    del held


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1] if len(sys.argv) > 1 else "plain"))
