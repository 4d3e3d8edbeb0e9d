import json
import os
import socket
import sys
from pathlib import Path
from typing import Any

import pytest

from rl_operator.local.interpreters.interpreters import Interpreters
from rl_operator.local.programs import launch
from rl_operator.local.programs.launch import (
    Launch,
    NotLaunchableError,
    PodPorts,
    Surroundings,
    choose_ports,
    free_ports,
    make_room,
    map_paths,
    plan_launch,
)
from rl_operator.local.state.layout import Layout, PodFolder

PORTS = PodPorts({8000: 1000, 8001: 1001, 8002: 1002, 8003: 1003, 8004: 1004}, openenv=1005)
FOLDER = PodFolder(Path("/state/pod"))
OURS = Interpreters(Layout(Path("/state")), {})
MOUNTS = {"/etc/rl": "/state/config", "/tmp": "/state/tmp", "/etc/rl/deep": "/state/deep"}


def plan(caller: dict[str, str] | None = None, folder: PodFolder = FOLDER, **fields: Any) -> Any:
    container = {"name": "trainer", "command": [sys.executable], **fields}
    return plan_launch(container, Surroundings(folder, PORTS, caller or {}, OURS), {})


@pytest.mark.parametrize(
    ("text", "mapped"),
    [
        ("/etc/rl", "/state/config"),
        ("/etc/rl/config.yaml", "/state/config/config.yaml"),
        ("/etc/rl/deep/x", "/state/deep/x"),
        ("--config=/etc/rl/config.yaml", "--config=/state/config/config.yaml"),
        ("/etc/rlx", "/etc/rlx"),
        ("a/etc/rl", "a/etc/rl"),
        ("key=/tmp", "key=/tmp"),
        ("", ""),
    ],
)
def test_paths_inside_the_pod_become_paths_of_this_machine(text: str, mapped: str) -> None:
    assert map_paths(text, MOUNTS) == mapped


def test_addresses_use_the_chosen_ports_whatever_the_manifest_says() -> None:
    env = [{"name": "RL_API_URL", "value": "http://127.0.0.1:8000"}, {"name": "RL_OPS_PORT", "value": "8002"}]
    variables = plan(env=env).env_vars
    assert variables["RL_API_URL"] == "http://127.0.0.1:1000"
    assert variables["RL_INFERENCE_URL"] == "http://127.0.0.1:1001"
    assert (variables["RL_OPS_HOST"], variables["RL_OPS_PORT"]) == ("127.0.0.1", "1002")


def test_the_callers_keys_only_reach_containers_that_name_them() -> None:
    caller = {
        "PATH": "/bin",
        "TINKER_API_KEY": "tml-1",
        "WANDB_API_KEY": "w",
        "AWS_SECRET_ACCESS_KEY": "a",
        "HOME": "/h",
        "RL_LOG_FORMAT": "json",
    }
    variables = plan(caller).env_vars
    assert (variables["PATH"], variables["RL_LOG_FORMAT"]) == ("/bin", "json")
    assert not {"TINKER_API_KEY", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY"} & set(variables)


def test_named_secrets_come_from_the_caller() -> None:
    env = [
        {"name": "TINKER_API_KEY", "valueFrom": {"secretKeyRef": {"name": "tinker", "key": "api-key"}}},
        {"name": "WANDB_API_KEY", "valueFrom": {"secretKeyRef": {"name": "wandb", "key": "k", "optional": True}}},
    ]
    variables = plan({"TINKER_API_KEY": "tml-1"}, env=env).env_vars
    assert variables["TINKER_API_KEY"] == "tml-1"
    assert "WANDB_API_KEY" not in variables


def test_a_missing_secret_names_the_variable_and_the_secret() -> None:
    env = [{"name": "TINKER_API_KEY", "valueFrom": {"secretKeyRef": {"name": "tinker", "key": "api-key"}}}]
    with pytest.raises(
        NotLaunchableError, match=r"TINKER_API_KEY is not set.*Secret 'tinker', key 'api-key'"
    ) as caught:
        plan(env=env)
    assert caught.value.reason == "CreateContainerConfigError"


def test_values_are_unescaped_and_mapped() -> None:
    mounts = [{"name": "scratch", "mountPath": "/tmp"}]
    env = [{"name": "COST", "value": "5$$"}, {"name": "HOME", "value": "/tmp"}]
    launch = plan({"HOME": "/home/me"}, env=env, volumeMounts=mounts)
    assert launch.env_vars["COST"] == "5$"
    assert launch.env_vars["HOME"] == launch.env_vars["TMPDIR"] == "/state/pod/volumes/scratch"
    assert launch.env_vars["HF_HOME"] == "/home/me/.cache/huggingface"


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("a$(PORT)b", "a1005b"),
        ("$$(PORT)", "$(PORT)"),
        ("$$$(PORT)", "$1005"),
        ("$(NOBODY)", "$(NOBODY)"),
        ("$PORT", "$PORT"),
        ("$", "$"),
    ],
)
def test_values_and_words_are_expanded_as_by_a_kubelet(text: str, value: str) -> None:
    env = [{"name": "PORT", "value": "8000"}, {"name": "GIVEN", "value": text}]
    command = [sys.executable, text]
    launch = plan(name="openenv", env=env, command=command)
    assert (launch.env_vars["GIVEN"], launch.argv[1]) == (value, value)
    assert launch.env_vars["PORT"] == "1005", "where it listens is decided here"


def test_an_environment_is_told_where_its_server_listens() -> None:
    settings = {"name": "RL_OPENENV", "value": "http://127.0.0.1:$(RL_OPENENV_PORT)"}
    env = [{"name": "RL_OPENENV_PORT", "value": "8000"}, settings]
    assert plan(name="environment", env=env).env_vars["RL_OPENENV"] == "http://127.0.0.1:1005"


def test_chosen_ports_differ_from_each_other() -> None:
    chosen = choose_ports()
    assert set(chosen.actual) == {8000, 8001, 8002, 8003, 8004}
    assert len(set(chosen.actual.values())) == 5
    assert chosen.openenv == 0
    beside = choose_ports(chosen, openenv=True)
    assert beside.openenv not in {0, *beside.actual.values()}
    assert beside.of("openenv", 8000) == beside.openenv
    assert beside.of("environment", 8000) == chosen.actual[8000]


def test_a_port_where_something_listens_is_not_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    taken, free = free_ports(2)
    with socket.create_server(("127.0.0.1", taken)):
        monkeypatch.setattr(launch, "LISTENING_PORTS", [taken, free])
        assert free_ports(1) == (free,)
        with pytest.raises(OSError, match=f"nearly all ports from {taken} to {free} are taken"):
            free_ports(2)


def test_all_attempts_share_one_folder_for_unsent_wandb_data() -> None:
    launches = [plan(folder=PodFolder(Path(f"/state/run-0a1b2-{attempt}"))) for attempt in (1, 2)]
    assert {launch.env_vars["WANDB_DIR"] for launch in launches} == {"/state/run-0a1b2-wandb"}


def test_wandb_is_reached_with_the_callers_settings() -> None:
    caller = {"WANDB_MODE": "offline", "WANDB_BASE_URL": "http://w", "WANDB_API_KEY": "k"}
    variables = plan(caller).env_vars
    assert (variables["WANDB_MODE"], variables["WANDB_BASE_URL"]) == ("offline", "http://w")
    assert "WANDB_API_KEY" not in variables
    own = plan(caller, env=[{"name": "WANDB_BASE_URL", "value": "http://runtime"}]).env_vars
    assert own["WANDB_BASE_URL"] == "http://runtime"
    environment = plan(caller, name="environment")
    assert not [name for name in environment.env_vars if name.startswith("WANDB")]


@pytest.fixture
def state_for_verifiers(tmp_path: Path) -> Layout:
    """A state folder with an interpreter for verifiers, of the tinker-atropos that is installed."""
    stamp = Interpreters(Layout(tmp_path), os.environ).installed().stamp
    told = {"build": "build-1", "tinker_atropos": "1", "base_stamp": stamp, "stamp": "", "packages": {}}
    folder = Layout(tmp_path).interpreters / "verifiers"
    (folder / "build-1").mkdir(parents=True)
    (folder / "installed.json").write_text(json.dumps({**told, "seconds": 1.0, "size": 1}))
    return Layout(tmp_path)


def environment_of(state: Layout, entry: str, caller: dict[str, str], name: str = "environment") -> Launch:
    container = {"name": name, "command": ["tinker-atropos", name, entry, "serve", "--config", "/etc/rl/config.yaml"]}
    pod = state.pod("default", "run-0-1")
    return plan_launch(container, Surroundings(pod, PORTS, caller, Interpreters(state, caller)), {})


def test_a_library_with_an_interpreter_is_started_from_it(state_for_verifiers: Layout) -> None:
    caller = {"PATH": "/usr/bin", "PYTHONPATH": "/ours", "PYTHONHASHSEED": "0"}
    build = state_for_verifiers.interpreters / "verifiers" / "build-1"
    launch = environment_of(state_for_verifiers, "verifiers/echo@1.0", caller)
    assert launch.argv[:3] == (str(build / "bin" / "tinker-atropos"), "environment", "verifiers/echo@1.0")
    assert launch.env_vars["PATH"] == f"{build}/bin:/usr/bin"
    assert launch.env_vars["VIRTUAL_ENV"] == str(build)
    assert launch.env_vars["PYTHONHASHSEED"] == "0"
    assert "PYTHONPATH" not in launch.env_vars
    make_room(launch)
    assert launch.folder.interpreter(launch.name).read_text() == str(build)
    ours = [
        environment_of(state_for_verifiers, "sort_digits", caller),
        environment_of(state_for_verifiers, "verifiers/echo", caller, "trainer"),
    ]
    assert [(each.interpreter, each.env_vars["PATH"]) for each in ours] == [(None, "/usr/bin")] * 2


def test_without_its_interpreter_a_container_waits_with_the_command_that_makes_it(state_for_verifiers: Layout) -> None:
    (state_for_verifiers.interpreters / "verifiers" / "installed.json").unlink()
    with pytest.raises(NotLaunchableError, match="rlctl environments install verifiers"):
        environment_of(state_for_verifiers, "verifiers/echo", {})
    source = state_for_verifiers.root / "source"
    source.mkdir()
    (source / "mine.py").write_text("")
    assert environment_of(state_for_verifiers, str(source / "mine.py"), {}).interpreter is None
    (source / "requirements.txt").write_text("numpy\n")
    with pytest.raises(NotLaunchableError, match=r"its requirements.txt is not installed"):
        environment_of(state_for_verifiers, str(source / "mine.py"), {})
