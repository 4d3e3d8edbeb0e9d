"""From a container's state and its log to a model's part in a trial."""

import pytest

from rl_operator.targets.job_pods import JobContainer
from rl_operator.tools.trials.trial_results import Printed, Step
from rl_operator.tools.trials.trial_snapshot import model_result

ONE = (Step(1, 2, 1, {}),)

CASES = {
    "no pod yet": (JobContainer("waiting", "Unschedulable: no room"), Printed(), ("waiting", "Unschedulable: no room")),
    "at work": (JobContainer("running"), Printed(ONE), ("running", "")),
    "done": (JobContainer("ended"), Printed(ONE, over=True), ("completed", "")),
    "done, with an error": (JobContainer("ended", "exited (3)"), Printed((), True, "no key"), ("failed", "no key")),
    "done, while what it left behind goes on": (JobContainer("running"), Printed(ONE, over=True), ("completed", "")),
    "killed": (
        JobContainer("ended", "exited (137) OOMKilled"),
        Printed(ONE),
        ("failed", "it ended before its summary: exited (137) OOMKilled"),
    ),
}


@pytest.mark.parametrize(("container", "printed", "expected"), CASES.values(), ids=CASES)
def test_the_part_of_one_model(container: JobContainer, printed: Printed, expected: tuple[str, str]) -> None:
    found = model_result("m", container, printed)
    assert (found.state, found.error) == expected
    assert found.steps == printed.steps
