"""Every run of a sweep is checked before one is started."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from rl_operator.api.refusal import Refusal
from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.training_run import TrainingRun
from rl_operator.check import check_run, runtime_not_found
from rl_operator.experiments.grid import belongs_to_trainer
from rl_operator.targets.inputs.file_inputs import FileInputs, inputs_of
from rl_operator.targets.inputs.run_file import RunFile, as_it_runs
from rl_operator.targets.target import Target


@dataclass(frozen=True)
class RefusedRuns:
    """One refusal, and the names of the runs that it is about."""

    refusal: Refusal
    names: tuple[str, ...]

    @property
    def sentence(self) -> str:
        first, *rest = self.names
        trainer = belongs_to_trainer([self.refusal.field]) if self.refusal.code == "UnknownField" else ""
        return f"{self.refusal.sentence}{trainer} ({first}{f' and {len(rest)} more' if rest else ''})"


def check_runs(file: RunFile, runs: Sequence[TrainingRun], target: Target) -> tuple[RefusedRuns, ...]:
    """What would be refused; runs that share a fault share an entry. What a run is checked against is read once."""
    found: dict[str, tuple[Refusal, list[str]]] = {}
    for run, refusals in _checked(file, runs, target):
        for refusal in refusals:
            found.setdefault(refusal.sentence, (refusal, []))[1].append(run.metadata.name)
    return tuple(RefusedRuns(refusal, tuple(names)) for refusal, names in found.values())


def _checked(
    file: RunFile, runs: Sequence[TrainingRun], target: Target
) -> Iterator[tuple[TrainingRun, tuple[Refusal, ...]]]:
    source = FileInputs(target, file.beside)
    known: dict[tuple[str, str, str], RunInputs | None] = {}
    for each in runs:
        run = as_it_runs(replace(file, run=each), target).run
        key = run.spec.runtime, run.spec.environment, repr(run.spec.start_from)
        if key not in known:
            known[key] = inputs_of(run, source)
        inputs = known[key]
        if inputs is None:
            yield run, (runtime_not_found(run, source.runtime_names()),)
        else:
            yield run, tuple(check_run(run, inputs))
