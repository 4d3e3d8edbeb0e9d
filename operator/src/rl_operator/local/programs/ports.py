"""Free ports for one pod. A pod has its own network on a cluster; here every run shares the machine's."""

import errno
import itertools
import random
import socket
from collections.abc import Mapping
from dataclasses import dataclass

from rl_contract.env_vars import RL_API_URL, RL_INFERENCE_URL, RL_OPENENV_PORT, RL_OPS_HOST, RL_OPS_PORT
from rl_contract.processes import API_PORT, INFERENCE_PORT, OPS_PORTS
from rl_operator.api.names import OPENENV_CONTAINER

LISTENING_PORTS = range(20_000, 32_768)
"""Below those that the kernel gives to outgoing connections (from 32,768 on Linux, from 49,152 on macOS): a process
that listens seconds later, or again after a crash, would find one of those taken.
"""
DRAWN = 100
"""How many ports are tried for each that is wanted."""


@dataclass(frozen=True, slots=True)
class PodPorts:
    """From the ports of the contract to the ports of this machine."""

    actual: Mapping[int, int]
    openenv: int = 0
    """Where the OpenEnv server of an environment's pod listens; 0: the pod has none."""

    def of(self, container: str, port: int) -> int:
        """Where the container serves what its manifest names that port."""
        return self.openenv if container == OPENENV_CONTAINER else self.actual[port]

    def ops_url(self, container: str) -> str:
        return f"http://127.0.0.1:{self.actual[OPS_PORTS[container]]}"

    def env_vars(self, container: str) -> dict[str, str]:
        """Where a container serves and finds the others; all on loopback. Empty for one that is not part of a run."""
        if container == OPENENV_CONTAINER:
            return {"PORT": str(self.openenv)}
        if container not in OPS_PORTS:
            return {}
        server = {RL_OPENENV_PORT: str(self.openenv)} if self.openenv else {}
        return server | {
            RL_API_URL: f"http://127.0.0.1:{self.actual[API_PORT]}",
            RL_INFERENCE_URL: f"http://127.0.0.1:{self.actual[INFERENCE_PORT]}",
            RL_OPS_HOST: "127.0.0.1",
            RL_OPS_PORT: str(self.actual[OPS_PORTS[container]]),
        }


def choose_ports(run: PodPorts | None = None, *, openenv: bool = False) -> PodPorts:
    """Free ports, one for each port of the contract.

    `run`: the ports of the run's own pod, for an environment in a separate pod. The data ports are there. `openenv`:
    the pod has an OpenEnv server, whose own port may be any.
    """
    wanted = (API_PORT, INFERENCE_PORT, *OPS_PORTS.values())
    shared = {port: run.actual[port] for port in (API_PORT, INFERENCE_PORT)} if run else {}
    *free, server = free_ports(len(wanted) + 1)
    return PodPorts(dict(zip(wanted, free, strict=True)) | shared, openenv=server if openenv else 0)


def free_ports(count: int) -> tuple[int, ...]:
    """Different ones, drawn at random: other runs draw, too. Raises OSError if nearly all are taken."""
    drawn = random.SystemRandom().sample(LISTENING_PORTS, min(DRAWN * count, len(LISTENING_PORTS)))
    free = tuple(itertools.islice(filter(_is_free, drawn), count))
    if len(free) < count:
        raise OSError(
            errno.EADDRINUSE, f"nearly all ports from {LISTENING_PORTS[0]} to {LISTENING_PORTS[-1]} are taken"
        )
    return free


def _is_free(port: int) -> bool:
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as listener:
        try:
            listener.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
