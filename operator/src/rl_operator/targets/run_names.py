"""From a name that was typed to a run."""

from rl_operator.errors import RefusedError
from rl_operator.targets.target import Manifest, Target


def existing_run(target: Target, namespace: str, name: str) -> Manifest:
    """Raises RefusedError naming the runs that there are."""
    run = target.run(namespace, name)
    if run is not None:
        return run
    names = [each["metadata"]["name"] for each in target.runs(namespace, "")]
    known = f"there are: {', '.join(sorted(names)[:10])}" if names else "there are none"
    raise RefusedError(f"there is no run {name!r} in namespace {namespace} of {target.label}; {known}")
