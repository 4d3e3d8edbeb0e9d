from pathlib import Path

import pytest

from rl_operator.local.state.layout import default_state_folder


@pytest.mark.parametrize(
    ("environ", "folder"),
    [
        ({"RL_STATE_DIR": "/runs", "XDG_STATE_HOME": "/state"}, Path("/runs")),
        ({"XDG_STATE_HOME": "/state"}, Path("/state/rl-operator")),
        ({}, Path.home() / ".local/state/rl-operator"),
    ],
)
def test_the_state_folder_follows_the_usual_variables(environ: dict[str, str], folder: Path) -> None:
    assert default_state_folder(environ) == folder
