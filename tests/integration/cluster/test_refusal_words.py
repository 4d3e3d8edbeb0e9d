"""Without policies the operator refuses the same runs, in the same words."""

from typing import Any

import pytest
from tests.integration.cluster.admin import RUNTIMES
from tests.integration.cluster.control_plane import ControlPlane
from tests.integration.cluster.operator_process import OperatorProcess
from tests.integration.cluster.polling import wait_for
from tests.integration.cluster.runs import RunsNamespace
from tests.refusals import ROWS, runtimes

from rl_operator.api import hints
from rl_operator.api.refusal import Refusal


@pytest.fixture(scope="module")
def installed_runtimes(control_plane: ControlPlane, operator_process: OperatorProcess) -> None:
    """And known to the operator: no object that a run names is missing."""
    names = [control_plane.admin.post(RUNTIMES, document)["metadata"]["name"] for document in runtimes()]
    for name in names:
        wait_for(f"runtime {name} is looked at", lambda name=name: looked_at(control_plane, name))


def looked_at(plane: ControlPlane, runtime: str) -> bool:
    return bool(plane.admin.get(f"{RUNTIMES}/{runtime}").get("status"))


def refused(status: dict[str, Any]) -> dict[str, Any] | None:
    """One reconcile with all of it: other tests' runtimes come and go, and hints name them."""
    return status if status.get("refusals") else None


def is_begun(message: str, sentence: str) -> bool:
    """A long sentence is cut in a message, and one of a large status in its refusals, too."""
    shorter, longer = sorted((message.removesuffix("…"), sentence.removesuffix("…")), key=len)
    return longer.startswith(shorter)


PASSING = {title: row for title, row in ROWS.items() if row.first != "schema"}


@pytest.mark.usefixtures("installed_runtimes")
def test_the_operator_uses_every_sentence(runs: RunsNamespace) -> None:
    """All at once: the operator handles them concurrently."""
    for number, row in enumerate(PASSING.values()):
        runs.create(row.run(f"run-{number}"))
    for number, (title, row) in enumerate(PASSING.items()):
        name = f"run-{number}"
        # the first runs may be there before the operator has seen the runtimes, and are refused for that until then
        status = wait_for(
            f"{title}: it is refused as {row.code}",
            lambda name=name, row=row: (
                (found := refused(runs.status(name))) and found["refusals"][0]["code"] == row.code and found
            ),
        )
        first = Refusal.model_validate(status["refusals"][0])
        assert row.fits(first.sentence, runs.namespace), (title, first.sentence)
        accepted = next(condition for condition in status["conditions"] if condition["type"] == "Accepted")
        assert (accepted["status"], accepted["reason"]) == ("False", row.code)
        assert is_begun(accepted["message"], f"Refused: {first.sentence}")
    assert not runs.kubelet.pods()


@pytest.mark.parametrize("settings", ["config", "trainer"])
def test_settings_changed_after_the_start_are_refused_in_the_policys_words(runs: RunsNamespace, settings: str) -> None:
    runs.apply()
    runs.until_pod()
    runs.edit(**{settings: {"group_size" if settings == "config" else "seed": 4}})
    refused = wait_for("the change is refused", lambda: runs.status().get("refusals"))
    expected = Refusal(code="FrozenField", field=f"spec.{settings}", hint=hints.FROZEN)
    assert Refusal.model_validate(refused[0]) == expected


def test_a_row_for_every_code() -> None:
    elsewhere = {"FrozenField", "EnvironmentNotReady", "SecretNotAllowed"}
    """Tested where what they need is made."""
    codes = set(Refusal.model_fields["code"].annotation.__args__)  # type: ignore[union-attr]
    assert {row.code for row in ROWS.values()} | elsewhere == codes
