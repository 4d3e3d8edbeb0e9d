"""rl_health_check: whether runs can start, and what is missing."""

from importlib.metadata import version
from typing import Final

from rl_operator.api.names import VERSION
from rl_operator.api.runtime import Runtime
from rl_operator.operator_errors import ForbiddenError
from rl_operator.targets.inputs.missing_keys import missing_in
from rl_operator.targets.target import Missing
from rl_operator.tools.agent_tool import AgentTool, Answer, Arguments
from rl_operator.tools.call_context import CallContext

NO_RUNTIME: Final = Missing(
    "runtime", "default", "there is no RLRuntime", "an administrator applies one: docs/how-to/install.md", needed=True
)


class HealthCheck(Arguments):
    """Nothing."""


def health_check(context: CallContext, _: HealthCheck) -> Answer:
    health = context.target.health()
    runtimes, trouble = _runtimes(context)
    versions = {"rl_operator": version("rl-operator"), "api": VERSION, **health.versions}
    missing = [*health.missing, *trouble, *_wanted(context, runtimes)]
    found = {"versions": versions, "operator": health.operator, "runtimes": sorted(runtimes)}
    return context.where() | found | {"missing": [each.to_wire() for each in missing]}


def _runtimes(context: CallContext) -> tuple[dict[str, Runtime], list[Missing]]:
    """With what is missing if none is usable: for a caller without permission to read them, just that permission."""
    try:
        runtimes = context.target.runtimes()
    except ForbiddenError as error:
        return {}, [Missing("right", "rlruntimes", str(error), "an administrator grants it", needed=True)]
    return runtimes, [] if runtimes else [NO_RUNTIME]


def _wanted(context: CallContext, runtimes: dict[str, Runtime]) -> list[Missing]:
    """For every runtime, each program and key once."""
    found = (
        missing for runtime in runtimes.values() for missing in missing_in(context.target, context.namespace, runtime)
    )
    return list({missing.name: missing for missing in found}.values())


TOOLS: Final = (
    AgentTool(
        name="rl_health_check",
        title="Check the target",
        description="Target, versions, operator, runtimes, and what is missing with how to supply it.",
        arguments=HealthCheck,
        call=health_check,
        effect="reads",
    ),
)
