"""What local mode says of libraries whose packages conflict with ours: each has an interpreter of its own there."""

from typing import Final

FAMILIES: Final = ("verifiers",)
INSTALL: Final = "rlctl environments install"


def not_installed(family: str) -> str:
    """For a run that names an environment of the library."""
    return (
        f"{family} is not installed: {INSTALL} {family} [PACKAGE…] makes an interpreter for it, because its packages "
        "conflict with ours"
    )


def outdated(family: str, was: str, now: str) -> str:
    """The interpreter was made for another tinker-atropos than the one that starts the run."""
    return (
        f"the interpreter of {family} was made for tinker-atropos {was}, and now there is {now}: "
        f"{INSTALL} {family} makes it again"
    )


def requirements_missing(environment: str) -> str:
    """For a run of a file with a requirements.txt that nothing was installed from."""
    return f"its requirements.txt is not installed in an interpreter of its own: {INSTALL} {environment}"
