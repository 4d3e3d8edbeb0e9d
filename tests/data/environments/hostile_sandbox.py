"""An agent that tries to get out of its sandbox, and to take others down with it. For tests of a real cluster.

Each item is one attempt, made in the sandbox of its rollout. The environment writes a line for it:
`WALL <name> <held|OPEN> <detail>`. What costs the sandbox is an attempt, too: `lost` is how it ends.
"""

import os
import socket

from tinker_atropos.environments.bundled import digits
from tinker_atropos.environments.agent_environment import AgentConfig, AgentEnvironment
from tinker_atropos.sandboxes.sandbox import SandboxLostError

CONNECT = """
import socket, sys
for place in sys.argv[1:]:
    host, port = place.rsplit(":", 1)
    try:
        socket.create_connection((host, int(port)), timeout=2).close()
        print("OPEN", place)
    except OSError as error:
        print("held", place, error)
"""


def resolved(host):
    try:
        return sorted({each[4][0] for each in socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)})
    except OSError:
        return []


def live_sandboxes(own):
    """Addresses near to this one at which a sandbox answers its run's environment: one that asks for nothing."""
    first, _, last = own.rpartition(".")
    found = []
    for number in range(max(1, int(last) - 12), min(255, int(last) + 13)):
        try:
            socket.create_connection((f"{first}.{number}", 8090), timeout=0.3).close()
        except OSError:
            continue
        found.append(f"{first}.{number}:8090")
    return [each for each in found if each != f"{own}:8090"]


def places():
    """What there is to reach, as an attacker would learn it who knows everything: only names do not help it."""
    api = os.environ["RL_API_URL"].removeprefix("http://").split(":")[0]
    trainer = [f"{ip}:{port}" for ip in resolved(api) for port in (8000, 8001, 8002, 8003)]
    service = [f"{ip}:8005" for ip in resolved(f"tinker-service.{os.environ['RL_RUN_NAMESPACE']}.svc")]
    own = f"{socket.gethostbyname(socket.gethostname())}:8004"
    server = f"{os.environ['KUBERNETES_SERVICE_HOST']}:{os.environ['KUBERNETES_SERVICE_PORT']}"
    return [*trainer, *service, own, server, "169.254.169.254:80", "1.1.1.1:443"]


PYTHON = "/rl-tools/bin/python3"
SCRIPTS = {
    "variables": "env | grep -Eqi 'KEY=|TOKEN|SECRET|KUBERNETES|tml-' && echo OPEN || echo held",
    "token": "cat /var/run/secrets/kubernetes.io/serviceaccount/token && echo OPEN || echo held",
    "server-memory": "cat /proc/1/environ /proc/1/maps >/dev/null && echo OPEN || echo held",
    "server-signals": "kill -9 1; kill -STOP 1; kill -TERM $PPID; sleep 0.2; echo held, it still answers",
    "server-port": f"{PYTHON} -c \"import socket; socket.create_server(('', 8090))\" && echo OPEN || echo held",
    "root-file-system": "echo x > /etc/x || echo x > /rl-tools/bin/python3 && echo OPEN || echo held",
    "privileges": "grep -E '^(CapBnd|CapEff):.*[1-9a-f]' /proc/self/status && echo OPEN || echo held",
    "names": f"{PYTHON} -c \"import socket; socket.gethostbyname('kubernetes.default.svc')\" && echo OPEN || echo held",
    "processes": "i=0; while [ $i -lt 600 ]; do sleep 60 & i=$((i+1)); done; sleep 5; echo OPEN",
    "memory": f"{PYTHON} -c \"b = bytearray(3 * 2**30); b[:] = b'x' * len(b)\"; echo $? held",
    "output": "head -c 1000000000 /dev/zero | tr '\\0' x",
    "sleep": "sleep 600; echo OPEN",
    "disk": "i=0; while [ $i -lt 40 ]; do head -c 100000000 /dev/zero > /tmp/$i || break; i=$((i+1)); sleep 0.5; done; sleep 40; echo held",
}
NAMES = [*SCRIPTS, "network", "others"]


class HostileSandbox(AgentEnvironment[str]):
    """Sort four digits, while the sandbox is misused."""

    name = "hostile_sandbox"

    @classmethod
    def config_init(cls):
        return AgentConfig(
            tokenizer_name="bundled", enabled_toolsets=[], max_agent_turns=1, group_size=2, max_token_length=64
        ), []

    def training_items(self):
        return NAMES

    def held_out_items(self):
        return ["nothing"]

    def format_prompt(self, item):
        return digits.prompt(digits.split().training[[*NAMES, "nothing"].index(item)])

    async def compute_reward(self, item, result, ctx):
        if item == "nothing":
            return 0.0
        try:
            said = self.attempt(item, ctx)
        except SandboxLostError as error:
            said = f"held lost: {error}"
        print(f"WALL {item} {said}"[:500].replace("\n", " "), flush=True)
        return float(len(item) % 2)

    def attempt(self, item, ctx):
        if item in SCRIPTS:
            ended = ctx.terminal(SCRIPTS[item], timeout=60 if item == "disk" else 15)
            word = "OPEN" if "OPEN" in ended["output"] else "held"
            return f"{word} {ended['exit_code']} {len(ended['output'])} {ended['error']} {ended['output'][-150:]}"
        ctx.write_file("connect.py", CONNECT)
        own = ctx.terminal("hostname -i")["output"].strip()
        wanted = places() if item == "network" else live_sandboxes(own)
        said = ctx.terminal(f"{PYTHON} connect.py {' '.join(wanted)}", timeout=60)["output"]
        open_ones = [line for line in said.splitlines() if line.startswith("OPEN")]
        return f"{'OPEN' if open_ones else 'held'} {open_ones} of {len(wanted)} {said[-200:]}"
