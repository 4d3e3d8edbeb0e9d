"""Free ports for one pod. A pod has its own network on a cluster; here every run shares the machine's."""

import socket
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

API_PORT, INFERENCE_PORT = 8000, 8001
OPS_PORTS: Mapping[str, int] = {"trainer": 8002, "api": 8003, "environment": 8004}
"""The ports of the contract, as a pod's manifest names them."""


@dataclass(frozen=True, slots=True)
class PodPorts:
    """From the ports of the contract to the ports of this machine."""

    actual: Mapping[int, int]

    def ops_url(self, container: str) -> str:
        return f"http://127.0.0.1:{self.actual[OPS_PORTS[container]]}"

    def env_vars(self, container: str) -> dict[str, str]:
        """Where a container serves and finds the others; all on loopback. Empty for one that is not part of a run."""
        if container not in OPS_PORTS:
            return {}
        return {
            "RL_API_URL": f"http://127.0.0.1:{self.actual[API_PORT]}",
            "RL_INFERENCE_URL": f"http://127.0.0.1:{self.actual[INFERENCE_PORT]}",
            "RL_OPS_HOST": "127.0.0.1",
            "RL_OPS_PORT": str(self.actual[OPS_PORTS[container]]),
        }


def choose_ports(run: PodPorts | None = None) -> PodPorts:
    """Ports that the kernel reports as free, one for each port of the contract.

    `run`: the ports of the run's own pod, for an environment in a separate pod. The data ports are there.
    """
    wanted = (API_PORT, INFERENCE_PORT, *OPS_PORTS.values())
    shared = {port: run.actual[port] for port in (API_PORT, INFERENCE_PORT)} if run else {}
    return PodPorts(dict(zip(wanted, free_ports(len(wanted)), strict=True)) | shared)


def free_ports(count: int) -> tuple[int, ...]:
    """All sockets are kept open until all ports are known, so that they differ."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_STREAM) for _ in range(count)]
    try:
        for listener in sockets:
            listener.bind(("127.0.0.1", 0))
        return tuple(listener.getsockname()[1] for listener in sockets)
    finally:
        _close(sockets)


def _close(sockets: Iterable[socket.socket]) -> None:
    for listener in sockets:
        listener.close()
