"""Discovery: reading environments from their source, without running it.

parsing -> modules -> sources (what a name means) -> values, annotations -> config_fields, config_init; kinship says
which classes are environments, judging whether a file can be served, and discover puts it together.
"""

from tinker_atropos.environments.discovery.discover import (
    BUNDLED_FOLDER,
    Discovery,
    discover,
    discover_bundled,
    discover_entry,
)

__all__ = ["BUNDLED_FOLDER", "Discovery", "discover", "discover_bundled", "discover_entry"]
