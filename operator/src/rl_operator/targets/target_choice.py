"""Which target is meant: a cluster, or this machine."""

import os
import sys
from collections.abc import Mapping
from pathlib import Path

from rl_operator.targets.target import Note, Target

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
