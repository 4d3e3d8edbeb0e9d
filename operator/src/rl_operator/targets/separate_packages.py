"""Installs what the requirements.txt beside a run's environment lists, before the run is told to anybody."""

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager

from rl_operator.api.environment import is_own
from rl_operator.api.run import TrainingRun
from rl_operator.local.own_environments import requirements_of
from rl_operator.targets.inputs.file_inputs import FileInputs
from rl_operator.targets.local_target import LocalTarget
from rl_operator.targets.target import Manifest, Target

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
