"""What is in a rendered pod."""

from typing import Any


def containers_of(pod: dict[str, Any]) -> dict[str, dict[str, Any]]:
    spec = pod["spec"]
    return {each["name"]: each for each in (*spec.get("initContainers", ()), *spec["containers"])}


def env_vars_of(container: dict[str, Any]) -> dict[str, Any]:
    return values_of(container["env"])


def values_of(env_vars: list[dict[str, Any]]) -> dict[str, Any]:
    """By name, each once: the value, or where it comes from."""
    assert len({each["name"] for each in env_vars}) == len(env_vars)
    return {each["name"]: each.get("value", each.get("valueFrom")) for each in env_vars}
