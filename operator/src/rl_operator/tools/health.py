"""rl_health_check: whether runs can start, and what is missing."""

from importlib.metadata import version
from typing import Final

from rl_operator.api.names import VERSION
from rl_operator.api.runtime import Runtime
from rl_operator.backends.backend import Missing
from rl_operator.backends.missing import missing_keys
from rl_operator.errors import ForbiddenError
from rl_operator.tools.desk import Desk
from rl_operator.tools.tool import Answer, Arguments, Tool

NO_RUNTIME: Final = Missing(
    "runtime", "default", "there is no RLRuntime", "an administrator applies one: docs/install.md", needed=True
)


class HealthCheck(Arguments):
    """Nothing."""


def health_check(desk: Desk, _: HealthCheck) -> Answer:
    health = desk.backend.health()
    runtimes, trouble = _runtimes(desk)
    versions = {"rl_operator": version("rl-operator"), "api": VERSION, **health.versions}
    missing = [*health.missing, *trouble, *_keys(desk, runtimes)]
    found = {"versions": versions, "operator": health.operator, "runtimes": sorted(runtimes)}
    return desk.where() | found | {"missing": [each.to_wire() for each in missing]}


def _runtimes(desk: Desk) -> tuple[dict[str, Runtime], list[Missing]]:
    """And what is missing where there is none to use: to whoever may not look at them, just that right."""
    try:
        runtimes = desk.backend.runtimes()
    except ForbiddenError as error:
        return {}, [Missing("right", "rlruntimes", str(error), "an administrator grants it", needed=True)]
    return runtimes, [] if runtimes else [NO_RUNTIME]


def _keys(desk: Desk, runtimes: dict[str, Runtime]) -> list[Missing]:
    """Of every runtime, each key once."""
    found = (
        missing for runtime in runtimes.values() for missing in missing_keys(desk.backend, desk.namespace, runtime)
    )
    return list({missing.name: missing for missing in found}.values())


TOOLS: Final = (
    Tool(
        name="rl_health_check",
        title="Check the back end",
        description="Which back end answers, versions, whether the operator is there, the runtimes, and what is "
        "missing with how to supply it. Call it when something cannot be started.",
        arguments=HealthCheck,
        call=health_check,
        effect="reads",
    ),
)
