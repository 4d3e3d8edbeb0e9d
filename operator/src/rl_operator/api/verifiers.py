"""Tasksets of the library verifiers: `spec.environment: verifiers/ID`, or `verifiers/ID@VERSION`."""

from typing import Final

_LIBRARY: Final = "verifiers"


def needs_image(runtime: str) -> str:
    """On a cluster, where the image that the runtime takes environments from has no taskset."""
    return (
        f"the image of runtime {runtime!r} has no verifiers: set spec.environmentImage of the runtime "
        "(images/environment-verifiers)"
    )


def is_taskset(name: str) -> bool:
    """`verifiers/ID`, or the library's name alone, which lists them."""
    return name.partition("/")[0] == _LIBRARY


def listed_name(name: str) -> str:
    """The catalog's name of a taskset: `verifiers/word_game` for `verifiers/owner/word-game@VERSION`, which are the
    forms that its library takes. Whether that version is installed is checked where the environment starts. Any other
    name stays as it is.
    """
    if not is_taskset(name) or "/" not in name:
        return name
    taskset, at, version = name.rpartition("/")[2].partition("@")
    if (at and not version) or "@" in version:
        return name
    return f"{_LIBRARY}/{taskset.replace('-', '_').lower()}"
