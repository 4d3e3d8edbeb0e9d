"""All runs of a sweep are checked, and what they share is told once."""

from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.experiments.grid import parse_axis, points_of, runs_of
from rl_operator.targets.inputs.grid_check import RefusedRuns, check_runs
from rl_operator.targets.inputs.run_file import RunFile


def checked(*settings: str, target: MemoryTarget | None = None) -> tuple[RefusedRuns, ...]:
    file = RunFile(parsed(run_manifest()))
    runs = runs_of(file.run, "trial", points_of([parse_axis(each) for each in settings]))
    return check_runs(file, runs, target or MemoryTarget())


def test_a_grid_without_faults() -> None:
    assert checked("tinker.learning_rate=1e-4,1e-3", "tinker.seed=0,1") == ()


def test_a_fault_is_told_once_with_the_runs_that_have_it() -> None:
    (found,) = checked("tinker.learning_rate=1e-4,30", "tinker.seed=0,1,2")
    assert found.names == ("trial-lr30-seed0", "trial-lr30-seed1", "trial-lr30-seed2")
    assert found.sentence == "spec.tinker.learning_rate is 30: it must be at most 1 (trial-lr30-seed0 and 2 more)"


def test_a_field_of_the_trainer_in_the_config_is_pointed_out() -> None:
    (found,) = checked("config.learning_rate=1e-4")
    assert "learning_rate is the trainer's: --set tinker.learning_rate=… (trial-1)" in found.sentence


def test_runtimes_and_environments_are_swept_like_any_field() -> None:
    assert checked("environment=sort_digits,gsm_synthetic") == ()
    found = checked("runtime=tiny,tony", "environment=sort_digits,sort_digit")
    assert sorted(each.refusal.code for each in found) == ["RuntimeNotFound", "UnknownEnvironment"]


def test_what_runs_are_checked_against_is_read_once() -> None:
    class Counting(MemoryTarget):
        catalogs = 0

        def catalog(self, runtime):  # type: ignore[no-untyped-def]
            self.catalogs += 1
            return super().catalog(runtime)

    target = Counting()
    assert checked("tinker.seed=0,1,2,3", target=target) == ()
    assert target.catalogs == 1
