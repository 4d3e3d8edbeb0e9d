"""From a name that was typed to a run."""

from rl_operator.backends.backend import BackEnd, Manifest
from rl_operator.errors import RefusedError


def existing_run(backend: BackEnd, namespace: str, name: str) -> Manifest:
    """Raises RefusedError naming the runs that there are."""
    run = backend.run(namespace, name)
    if run is not None:
        return run
    names = [each["metadata"]["name"] for each in backend.runs(namespace, "")]
    known = f"there are: {', '.join(sorted(names)[:10])}" if names else "there are none"
    raise RefusedError(f"there is no run {name!r} in namespace {namespace} of {backend.label}; {known}")
