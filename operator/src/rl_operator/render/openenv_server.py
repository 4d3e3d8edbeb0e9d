"""The OpenEnv server of an environment pod, which is not ours, and what our environment is told about it.

It gets no variable but its port and where it may write, no key, no token, no config, no name resolution, and a limit
on everything that it could fill. The containers of a pod share their network: it reaches what the environment reaches.
"""

import json
import re
from typing import Any, Final

from rl_operator.api.names import OPENENV_CONTAINER
from rl_operator.api.spec_parts.openenv import OpenEnv
from rl_operator.render.container_template import EPHEMERAL, folder, literal, scratch_volume
from rl_operator.render.env_vars import SCRATCH, EnvVar, literals

PORT_VARIABLE: Final = "PORT"
"""For the server: where to listen. Also in its command, as `$PORT`."""

SETTINGS_VARIABLE: Final = "RL_OPENENV"
SERVER_PORT_VARIABLE: Final = "RL_OPENENV_PORT"
"""For the environment: the kubelet puts it into the settings, since local mode chooses another port."""

START_PERIOD_SECONDS: Final = 2
START_FAILURES: Final = 300
"""Ten minutes: servers load data sets and models before they answer."""

DEFAULT_LIMITS: Final = {"cpu": "2", "memory": "2Gi", EPHEMERAL: "1Gi"}
DEFAULT_REQUESTS: Final = {"cpu": "250m", "memory": "512Mi", EPHEMERAL: "64Mi"}

_PORT_WORD: Final = re.compile(rf"\$\${PORT_VARIABLE}\b")


def settings_env_vars(openenv: OpenEnv) -> list[EnvVar]:
    """For our environment."""
    settings = {
        "url": openenv.url or f"http://127.0.0.1:$({SERVER_PORT_VARIABLE})",
        "maxSessions": openenv.max_sessions,
        "timeoutSeconds": openenv.timeout_seconds,
        "trainingSeeds": openenv.training_seeds,
        "heldOutSeeds": openenv.held_out_seeds,
    }
    port = literals({SERVER_PORT_VARIABLE: str(openenv.port)}) if openenv.runs_beside else []
    return [*port, {"name": SETTINGS_VARIABLE, "value": json.dumps(settings)}]


def server_container(openenv: OpenEnv) -> dict[str, Any]:
    """A native sidecar: it is started again whenever it ends, and ended after the environment. The environment starts
    after the server answered for the first time.

    The only probe is that one, of a route that every OpenEnv server has: a server that is busy with a step answers no
    probe, and to restart it then would cost all of its sessions.
    """
    command = {"command": _with_port(openenv.command)} if openenv.command else {}
    policy = {"imagePullPolicy": openenv.pull_policy} if openenv.pull_policy else {}
    rendered = {
        "name": OPENENV_CONTAINER,
        "image": openenv.image or "",
        **command,
        "env": literals({"HOME": SCRATCH, "TMPDIR": SCRATCH, PORT_VARIABLE: str(openenv.port)}),
        "ports": [{"name": OPENENV_CONTAINER, "containerPort": openenv.port}],
        "restartPolicy": "Always",
        "startupProbe": _start_probe(openenv.port),
        "resources": _resources(openenv),
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
            "readOnlyRootFilesystem": openenv.read_only_root_filesystem,
        },
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "volumeMounts": [{"name": scratch_volume(OPENENV_CONTAINER), "mountPath": SCRATCH}],
    }
    return rendered | policy


def server_volume(openenv: OpenEnv) -> dict[str, Any]:
    return folder(scratch_volume(OPENENV_CONTAINER), _resources(openenv))


def _with_port(command: tuple[str, ...]) -> list[str]:
    """The words as they are, but for the port: that is the only variable that the kubelet expands in them."""
    return [_PORT_WORD.sub(f"$({PORT_VARIABLE})", word) for word in literal(command)]


def _start_probe(port: int) -> dict[str, Any]:
    return {
        "httpGet": {"path": "/health", "port": port},
        "periodSeconds": START_PERIOD_SECONDS,
        "timeoutSeconds": 3,
        "failureThreshold": START_FAILURES,
    }


def _resources(openenv: OpenEnv) -> dict[str, Any]:
    """What the author asks for; never without a limit. Where a limit alone is given, it is the request, too."""
    chosen = openenv.resources.to_wire()
    requests, limits = dict(chosen["requests"]), dict(chosen["limits"])
    for name, request in DEFAULT_REQUESTS.items():
        if name not in limits:
            limits[name] = requests.get(name, DEFAULT_LIMITS[name])
            requests.setdefault(name, request)
    return {"requests": requests, "limits": limits}
