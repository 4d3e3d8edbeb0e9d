from tinker_atropos.environments.trial.trial_report import Agent, Response, Step, summary


def test_correct_means_a_score_above_zero() -> None:
    step = Step(1, [1.0, 0.25, 0.0, -1.0], 0.5)
    assert step.correct == 2
    assert step.to_wire() == {
        "event": "step",
        "step": 1,
        "completions": 4,
        "correct": 2,
        "scores": [1.0, 0.25, 0.0, -1.0],
        "seconds": 0.5,
    }


def test_a_steps_line_has_everything_that_is_known() -> None:
    wire = Step(2, [], 0.1, error="gone", unscored=4, prompt="2 1", responses=[Response("12", 1.0)]).to_wire()
    assert wire["error"] == "gone"
    assert wire["unscored"] == 4
    assert (wire["prompt"], wire["responses"]) == ("2 1", [{"text": "12", "score": 1.0}])


def test_an_empty_summary_divides_by_nothing() -> None:
    assert summary("m", 3, [], 1.0)["accuracy"] == 0.0
    assert summary("m", 3, [Step(1, [], 1.0, "gone")], 1.0)["step_success_rate"] == 0.0


def test_a_summary_counts_completions_and_steps_separately() -> None:
    told = summary("m", 3, [Step(1, [1.0, 0.0, 0.0], 1.0), Step(2, [0.0], 1.0)], 2.0)
    assert (told["accuracy"], told["step_success_rate"], told["steps_with_correct"]) == (0.25, 0.5, 1)


def test_a_summary_says_what_agents_did() -> None:
    steps = [
        Step(1, [1.0], 1.0, agent=Agent(4, 2, 1, 4)),
        Step(2, [], 1.0, "gone"),
        Step(3, [0.0], 1.0, agent=Agent(2, 1)),
    ]
    told = summary("m", 3, steps, 2.0)
    assert told["agent"] == {"turns": 6, "tool_calls": 3, "tool_errors": 1}
    assert "note" not in told


def test_a_summary_notes_tools_that_nobody_called() -> None:
    told = summary("m", 1, [Step(1, [1.0], 1.0, agent=Agent(2, 0, 0, offers=2))], 2.0)
    assert told["note"].startswith("the model had tools and called none of them")
    assert "note" not in summary("m", 1, [Step(1, [], 1.0, agent=Agent(0, 0, offers=2))], 2.0), "it answered nothing"
    assert "note" not in summary("m", 1, [Step(1, [1.0], 1.0, agent=Agent(2, 0))], 2.0), "it had no tools"
