"""From typed names to a runtime and an environment."""

from pathlib import Path

import pytest
from tests.unit.rl_operator.samples import TINY
from tests.unit.rl_operator.targets.fakes import MemoryTarget

from rl_operator.api.runtime import Runtime
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.inputs.environment_choice import choose_runtime, known_environment


class OneRuntime(MemoryTarget):
    usual_runtime = "default"

    def runtimes(self) -> dict[str, Runtime]:
        return {"tiny": TINY}


def test_the_runtime() -> None:
    assert choose_runtime(MemoryTarget(), "").metadata.name == "tiny"
    assert choose_runtime(MemoryTarget(), "default").metadata.name == "default"
    assert choose_runtime(OneRuntime(), "").metadata.name == "tiny"
    for target in (MemoryTarget(), OneRuntime()):
        with pytest.raises(RefusedError, match=r"there is no such RLRuntime; did you mean 'tiny'\?"):
            choose_runtime(target, "tony")


def test_a_bundled_environment() -> None:
    assert known_environment(MemoryTarget(), "sort_digits", TINY, "default").class_name == "SortDigits"


@pytest.mark.parametrize(
    ("name", "runs_files", "said"),
    [
        (
            "sort_digit",
            True,
            r"no environment 'sort_digit' in memory; did you mean 'sort_digits' or 'harness/sort_digits'\?",
        ),
        ("own/mine", True, "no environment 'own/mine'"),
        (
            "reasoning-gym/chain_sun",
            True,
            r"did you mean 'reasoning-gym/chain_sum'.*\(reasoning-gym has \d+, such as",
        ),
        ("verifiers", True, "the image of runtime 'tiny' has no verifiers: set spec.environmentImage"),
        ("./nobody.py", True, "There is no file .*nobody.py"),
        ("./mine.py", False, "memory trains no files: .* rlctl init --from ./mine.py"),
    ],
)
def test_a_missing_one(name: str, runs_files: bool, said: str) -> None:
    with pytest.raises(RefusedError, match=said):
        known_environment(MemoryTarget(runs_files=runs_files), name, TINY, "default")


def test_a_catalog_that_is_not_ready() -> None:
    target = MemoryTarget()
    target.catalog_is_read = False
    with pytest.raises(RefusedError, match="Waiting for the catalog"):
        known_environment(target, "sort_digits", TINY, "default")


@pytest.mark.process
def test_a_file_path_starts_at_the_current_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine.py").write_text("x = 1\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RefusedError, match=r"environment ./mine.py: mine.py"):
        known_environment(MemoryTarget(), "./mine.py", TINY, "default")
