"""Check a run's file against a back end, without starting anything."""

from typing import TYPE_CHECKING

from rl_operator.api.premises import Premises, choose_environment
from rl_operator.check import check_run, runtime_not_found
from rl_operator.cli.backend import BackEnd

if TYPE_CHECKING:
    from rl_operator.api.refusal import Refusal
    from rl_operator.api.run import TrainingRun


def refusals_of(run: "TrainingRun", backend: BackEnd) -> "tuple[Refusal, ...]":
    """Every reason why the run would not start there."""
    runtimes = backend.runtimes()
    runtime = runtimes.get(run.spec.runtime)
    if runtime is None:
        return (runtime_not_found(run, sorted(runtimes)),)
    environment = choose_environment(run.spec.environment, runtime, backend.catalogue(), None)
    return check_run(run, Premises(runtime, environment))
