"""Which target is meant: a cluster, or this machine."""

import os
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

from rl_operator.api.environment import is_own
from rl_operator.api.run import TrainingRun
from rl_operator.local.own_environments import requirements_of
from rl_operator.targets.inputs.file_inputs import FileInputs
from rl_operator.targets.local_target import LocalTarget
from rl_operator.targets.target import Manifest, Note, Target

SERVICE_ACCOUNT_VARIABLE = "KUBERNETES_SERVICE_HOST"


def say(sentence: str) -> None:
    """A note for users: on stderr."""
    sys.stderr.write(f"note: {sentence}\n")


def choose_target(*, local: bool, context: str, state_dir: Path | None, note: Note = say) -> Target:
    """The cluster of the kubeconfig; `--local`, or no kubeconfig at all: this machine."""
    if local or not (context or cluster_is_configured(os.environ)):
        from rl_operator.targets.local_target import LocalTarget

        return LocalTarget.open(state_dir, note, asked=local)
    from rl_operator.targets.cluster_target import ClusterTarget

    return ClusterTarget.open(context, note)


def cluster_is_configured(environ: Mapping[str, str]) -> bool:
    """Whether a kubeconfig exists or a pod's service account is available."""
    if environ.get("KUBECONFIG") or environ.get(SERVICE_ACCOUNT_VARIABLE):
        return True
    return (Path(environ.get("HOME", "/")) / ".kube" / "config").is_file()


Shown = Callable[[str], AbstractContextManager[Callable[[str], None]]]
"""Shows the progress of installing something."""


def install_requirements(target: Target, run: TrainingRun, beside: Sequence[Manifest], shown: Shown) -> bool:
    """Returns whether something was installed. Nothing is on a cluster: images are the way there.

    Raises RefusedError, with what went wrong.
    """
    if not (isinstance(target, LocalTarget) and is_own(run.spec.environment)):
        return False
    text = requirements_of(run, FileInputs(target, beside).read)
    if text is None or target.interpreters.of_requirements(text).marker is not None:
        return False
    with shown(f"the requirements.txt of {run.spec.environment}") as progress:
        return target.interpreters.install_requirements(text, progress)
