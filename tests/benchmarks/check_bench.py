"""Checking and rendering one run: `python -m tests.benchmarks.check_bench`.

Pure functions over values, as a reconcile calls them; the CPU time of the best of five rounds.
"""

import time
from collections.abc import Callable, Mapping

from tests.unit.rl_operator.samples import (
    SOURCE_FILES,
    catalog_of,
    inputs_of,
    make_run,
    make_runtime,
    own_environment,
    own_inputs,
)

from rl_operator.api.run_inputs import RunInputs
from rl_operator.api.training_run import TrainingRun
from rl_operator.check.run_check import check_run
from rl_operator.render.manifests import render_run

GOAL_MILLISECONDS = 2
ROUNDS, REPEATS = 5, 100
LOCKS = 100
SOURCE_CHARACTERS = 100_000


def milliseconds(work: Callable[[], object]) -> float:
    """Mean time of one call in the best round."""
    best = float("inf")
    for _ in range(ROUNDS):
        began = time.process_time()
        for _ in range(REPEATS):
            work()
        best = min(best, time.process_time() - began)
    return best * 1000 / REPEATS


def check_and_render(run: TrainingRun, inputs: RunInputs, files: Mapping[str, str] | None = None) -> None:
    assert check_run(run, inputs) == ()
    render_run(run, inputs, files)


def with_many_locks() -> tuple[TrainingRun, RunInputs]:
    """A hundred locked fields, bounds for each of them, and a run that repeats all of them: the worst there is."""
    names = [f"field_{number}" for number in range(LOCKS)]
    fields = [{"name": name, "type": "int | Literal['a', 'b'] | None", "default": None} for name in names]
    locked = {name: number % 9 + 1 for number, name in enumerate(names)}
    runtime = make_runtime(locked={"env": locked}, bounds={"env": {name: {"min": 1, "max": 9} for name in names}})
    run = make_run(environment="toy", config=locked)
    return run, inputs_of(run, runtime, catalog_of(*fields))


def main() -> None:
    bundled = make_run(config={"total_steps": 40, "group_size": 8}, wandb={"tags": ["a", "b"]})
    own = make_run(environment="own/digits", environmentReplicas=2)
    files = {**SOURCE_FILES, "large.py": "x = 1  # a comment\n" * (SOURCE_CHARACTERS // 19)}
    locked, inputs = with_many_locks()
    cases: dict[str, Callable[[], object]] = {
        "bundled environment": lambda: check_and_render(bundled, inputs_of(bundled)),
        f"own environment, {SOURCE_CHARACTERS // 1000} kB of source": lambda: check_and_render(
            own, own_inputs(own, own=own_environment()), files
        ),
        f"runtime with {LOCKS} locked and bounded fields": lambda: check_and_render(locked, inputs),
    }
    print("| check and render of one run | measured | goal |\n|---|---|---|")
    for what, work in cases.items():
        print(f"| {what} | {milliseconds(work):.2f} ms | {GOAL_MILLISECONDS} ms |", flush=True)


if __name__ == "__main__":
    main()
