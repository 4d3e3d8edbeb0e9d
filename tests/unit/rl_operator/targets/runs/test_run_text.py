"""What follows the commands that a page shows."""

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget

from rl_operator.targets.runs.run_text import flags_for


@pytest.mark.parametrize(
    ("runs_files", "flags", "namespace", "found"),
    [
        (True, " --local", "default", " --local"),
        (True, " --local", "team", " --local -n team"),
        (False, "", "default", " -n default"),
        (False, " --context c", "team", " --context c -n team"),
        (False, " -n team", "team", " -n team"),
    ],
)
def test_a_command_names_the_namespace_of_its_run(runs_files: bool, flags: str, namespace: str, found: str) -> None:
    """On a cluster whoever copies it may have another usual one than the server of the page."""
    target = MemoryTarget(runs_files=runs_files)
    target.flags = flags
    assert flags_for(target, namespace) == found
