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


def without_version(name: str) -> str:
    """`verifiers/ID` of `verifiers/ID@VERSION`. Whether that version is installed is checked where the environment
    starts. Any other name stays as it is: nothing else has a version.
    """
    known, _, version = name.rpartition("@")
    return known if is_taskset(known) and version else name
