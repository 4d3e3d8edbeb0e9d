"""The local target without processes, and what tests put into it."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from rl_operator.api.kubernetes_objects import ManifestMetadata
from rl_operator.api.names import API_VERSION, ENVIRONMENT_KIND
from rl_operator.api.runtime import Runtime
from rl_operator.api.training_run import TrainingRun
from rl_operator.local.state.layout import Layout
from rl_operator.targets.local_target import LocalTarget
from rl_operator.tools.call_context import CallContext
from rl_operator.tools.runs import named_run
from rl_operator.tools.toolset import BY_NAME, Outcome, dispatch

Call = Callable[..., Outcome]
"""`call("rl_edit_config", field=…, value=…)`."""

OWN_CODE = Path("tests/data/environments/shout.py").read_text(encoding="utf-8")


class Unattended(LocalTarget):
    """Nothing reconciles: only the caller writes. `more` are runtimes in addition to the bundled ones."""

    more: tuple[Runtime, ...] = ()

    def look_after(self, namespace: str, name: str) -> None:
        pass

    def runtimes(self) -> dict[str, Runtime]:
        return super().runtimes() | {runtime.metadata.name: runtime for runtime in self.more}


class SomebodyElse(Unattended):
    caller = "somebody-else"


def call_at(context: CallContext, tool: str, **arguments: Any) -> Outcome:
    return dispatch(BY_NAME[tool], context, arguments)


def refusal(outcome: Outcome) -> dict[str, Any]:
    assert outcome.code == "refused", outcome
    return outcome.answer


def drafted(context: CallContext, name: str = "sort_digits", **arguments: Any) -> str:
    outcome = call_at(context, "rl_select_environment", name=name, **arguments)
    assert outcome.code is None, outcome
    run_id: str = outcome.answer["run_id"]
    return run_id


def spec_of(context: CallContext, run_id: str) -> dict[str, Any]:
    return named_run(context, run_id).spec.to_wire()


def write_status(context: CallContext, run_id: str, **status: Any) -> TrainingRun:
    """As an operator would; `status` in camelCase."""
    assert isinstance(context.target, LocalTarget)
    store = context.target._store
    store.update("RLTrainingRun", context.namespace, run_id, lambda run: run.update(status=status))
    return named_run(context, run_id)


def add_own(context: CallContext, name: str = "shout", code: str = OWN_CODE) -> None:
    """An RLEnvironment and its code."""
    metadata: ManifestMetadata = {"name": name, "namespace": context.namespace}
    context.target.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {f"{name}.py": code}})
    spec = {"source": {"configMap": {"name": name}}}
    context.target.apply({"apiVersion": API_VERSION, "kind": ENVIRONMENT_KIND, "metadata": metadata, "spec": spec})


def other_user(folder: Path) -> CallContext:
    return CallContext(SomebodyElse(Layout(folder), "", print), "default")
