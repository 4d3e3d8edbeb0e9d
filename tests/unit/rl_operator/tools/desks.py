"""The local back end without processes, and what tests put into it."""

from pathlib import Path
from typing import Any

from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND
from rl_operator.api.run import TrainingRun
from rl_operator.api.runtime import Runtime
from rl_operator.backends.local import LocalBackEnd
from rl_operator.local.layout import Layout
from rl_operator.tools.desk import Desk
from rl_operator.tools.dispatch import Outcome, dispatch
from rl_operator.tools.runs import named_run
from rl_operator.tools.toolset import BY_NAME

OWN_CODE = '''
from tinker_atropos.environments.base import Environment, EnvironmentConfig


class ShoutConfig(EnvironmentConfig):
    loudness: int = 11
    priority: float = 0.5


class Shout(Environment[str]):
    """Words in capitals."""

    name = "shout"
    env_config_cls = ShoutConfig

    @classmethod
    def config_init(cls):
        return ShoutConfig(group_size=4), []
'''


class Unattended(LocalBackEnd):
    """Nobody reconciles: what is written is what the caller wrote. `more` are runtimes beside the bundled ones."""

    more: tuple[Runtime, ...] = ()

    def look_after(self, namespace: str, name: str) -> None:
        pass

    def runtimes(self) -> dict[str, Runtime]:
        return super().runtimes() | {runtime.metadata.name: runtime for runtime in self.more}


class SomebodyElse(Unattended):
    caller = "somebody-else"


def call_at(desk: Desk, tool: str, **arguments: Any) -> Outcome:
    return dispatch(BY_NAME[tool], desk, arguments)


def drafted(desk: Desk, name: str = "sort_digits", **arguments: Any) -> str:
    outcome = call_at(desk, "rl_select_environment", name=name, **arguments)
    assert outcome.code is None, outcome
    run_id: str = outcome.answer["run_id"]
    return run_id


def spec_of(desk: Desk, run_id: str) -> dict[str, Any]:
    return named_run(desk, run_id).spec.to_wire()


def write_status(desk: Desk, run_id: str, **status: Any) -> TrainingRun:
    """As an operator would; `status` in camelCase."""
    assert isinstance(desk.backend, LocalBackEnd)
    store = desk.backend._store
    store.update("RLTrainingRun", desk.namespace, run_id, lambda run: run.update(status=status))
    return named_run(desk, run_id)


def add_own(desk: Desk, name: str = "shout", code: str = OWN_CODE) -> None:
    """An RLEnvironment and its code."""
    metadata = {"name": name, "namespace": desk.namespace}
    desk.backend.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {f"{name}.py": code}})
    spec = {"source": {"configMap": {"name": name}}}
    desk.backend.apply({"apiVersion": API_VERSION, "kind": ENVIRONMENT_KIND, "metadata": metadata, "spec": spec})


def other_user(folder: Path) -> Desk:
    return Desk(SomebodyElse(Layout(folder), "", print), "default")
