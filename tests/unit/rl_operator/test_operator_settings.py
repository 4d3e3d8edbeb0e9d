import json

import pytest

from rl_operator.operator_settings import OperatorSettings


def test_flags_win_over_variables_and_variables_over_defaults() -> None:
    variables = {"RL_OPERATOR_WORKERS": "3", "RL_OPERATOR_NAMESPACE": "team-a", "WORKERS": "9"}
    settings = OperatorSettings.from_command_line(["--workers", "5"], variables)
    assert (settings.workers, settings.namespace, settings.poll_seconds) == (5, "team-a", 30.0)


def test_who_reaches_ops_ports_besides_the_operator() -> None:
    """The namespace of the API server's tunnels, unless the platform says otherwise: without it nobody could read."""
    kube_system = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "kube-system"}}}
    assert OperatorSettings().named_peers() == [kube_system]
    named = '[{"ipBlock": {"cidr": "10.0.0.0/24"}}]'
    assert OperatorSettings.from_command_line(["--ops-peers", named], {}).named_peers() == json.loads(named)
    assert OperatorSettings.from_command_line(["--ops-peers", "[]"], {}).named_peers() == []


REFUSED = {
    "a flag that is not a number": (["--workers", "many"], {}, "--workers: invalid int value: 'many'"),
    "a variable that is not a number": ([], {"RL_OPERATOR_PROBE_PORT": "x"}, "--probe-port: invalid int value: 'x'"),
    "a word that is not allowed": ([], {"RL_OPERATOR_LOG_FORMAT": "xml"}, "choose from 'json', 'text'"),
    "nothing to wait": (["--request-seconds", "0"], {}, "--request-seconds is 0.0: it must be greater than 0"),
    "peers that are not JSON": (["--ops-peers", "monitoring"], {}, "it must be a list in JSON: Expecting value"),
    "a peer without a list": (
        ["--ops-peers", '{"ipBlock": "10.0.0.0/8"}'],
        {},
        "is no NetworkPolicyPeer: a mapping with",
    ),
    "a peer that is everybody": (["--ops-peers", "[{}]"], {}, "{} is no NetworkPolicyPeer: a mapping with podSelector"),
    "a peer of another kind": (
        [],
        {"RL_OPERATOR_OPS_PEERS": '[{"pods": {}}]'},
        "'pods' is no field of a NetworkPolicyPeer",
    ),
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
