import pytest

from rl_operator.operator_settings import OperatorSettings


def test_flags_win_over_variables_and_variables_over_defaults() -> None:
    variables = {"RL_OPERATOR_WORKERS": "3", "RL_OPERATOR_NAMESPACE": "team-a", "WORKERS": "9"}
    settings = OperatorSettings.from_command_line(["--workers", "5"], variables)
    assert (settings.workers, settings.namespace, settings.poll_seconds) == (5, "team-a", 30.0)


REFUSED = {
    "a flag that is not a number": (["--workers", "many"], {}, "--workers: invalid int value: 'many'"),
    "a variable that is not a number": ([], {"RL_OPERATOR_PROBE_PORT": "x"}, "--probe-port: invalid int value: 'x'"),
    "a word that is not allowed": ([], {"RL_OPERATOR_LOG_FORMAT": "xml"}, "choose from 'json', 'text'"),
    "nothing to wait": (["--request-seconds", "0"], {}, "--request-seconds is 0.0: it must be greater than 0"),
    "an unknown flag": (["--wrokers", "5"], {}, "--wrokers"),
}


@pytest.mark.parametrize(("flags", "variables", "said"), REFUSED.values(), ids=REFUSED)
def test_bad_input_is_named(
    flags: list[str], variables: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        OperatorSettings.from_command_line(flags, variables)
    assert end.value.code == 2
    assert said in capsys.readouterr().err
