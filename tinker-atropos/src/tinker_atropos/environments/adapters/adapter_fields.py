"""What the catalog tells of our fields in environments of libraries: read from the source of our config classes."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from tinker_atropos.environments.discovery import BUNDLED_FOLDER
from tinker_atropos.environments.discovery.config_fields import ConfigField, fields_of
from tinker_atropos.environments.discovery.modules import SourceClass
from tinker_atropos.environments.discovery.sources import Sources

VALUES: Final[Mapping[str, Any]] = {
    "tokenizer_name": "bundled",
    "group_size": 8,
    "batch_size": 64,
    "total_steps": 100,
    "max_token_length": 2048,
}
"""What differs from the defaults of the config classes."""


def our_fields(file: str, config_class: str) -> list[ConfigField]:
    """Those of a class in a file of this package, with VALUES for defaults."""
    sources = Sources(BUNDLED_FOLDER)
    module = sources.module_of_file(file)
    assert module is not None, "our own file can be read"
    found = fields_of(sources, SourceClass(module, module.classes[config_class])).values()
    return [replace(each, default=VALUES[each.name]) if each.name in VALUES else each for each in found]
