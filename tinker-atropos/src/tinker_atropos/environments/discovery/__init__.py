"""Discovery: reads environments from their source, without running it.

source_parser -> modules -> sources (resolves names) -> values, annotations -> config_fields; environment_classes finds
the classes that are environments and says whether a file can be served, and discovered_folder combines them.
"""

from tinker_atropos.environments.discovery.discovered_folder import (
    BUNDLED_FOLDER,
    Discovery,
    discover,
    discover_bundled,
    discover_entry,
)

__all__ = ["BUNDLED_FOLDER", "Discovery", "discover", "discover_bundled", "discover_entry"]
