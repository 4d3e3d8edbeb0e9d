"""Where nodes find their credentials, which no environment may reach."""

from typing import Final

METADATA: Final = ("169.254.0.0/16", "fe80::/10", "fd00:ec2::254/128", "fd20:ce::254/128")
"""Link-local addresses and what clouds serve there and nearby: credentials of the node."""
