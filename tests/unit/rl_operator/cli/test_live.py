from rich.console import Console
from tests.unit.rl_operator.targets.fakes import parsed, run_manifest

from rl_operator.cli.views.progress import Curve, panel


def test_the_panel_shows_phase_steps_reward_and_time_left() -> None:
    run = parsed(
        run_manifest(
            phase="Running",
            message="Training: step 10 of 40.",
            progress={"step": 10, "totalSteps": 40, "percent": 25, "secondsPerStep": 0.6, "etaSeconds": 18},
            metrics={"rewardMean": 0.75, "evalAccuracy": 0.6},
            history=[{"step": 1, "rewardMean": 0.5}],
        )
    )
    curve = Curve()
    curve.add(run)
    shown = Console(width=100, force_terminal=False)
    with shown.capture() as captured:
        shown.print(panel(run, curve, "local:~/state"))
    text = captured.get()
    for part in ("sorting", "Running", "local:~/state", "10/40", "0.60 s per step", "18s left", "0.750", "▁█", "0.600"):
        assert part in text
