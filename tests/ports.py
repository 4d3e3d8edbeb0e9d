"""Where the processes that tests start listen."""

from rl_operator.local.programs.launch import free_ports


def free_port() -> int:
    """One that stays free until its process listens there, and while it is started again."""
    (port,) = free_ports(1)
    return port
