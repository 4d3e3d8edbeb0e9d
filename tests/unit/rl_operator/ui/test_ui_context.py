"""Which runs somebody sees, and those of which namespaces they may not."""

from contextlib import nullcontext
from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.operator_errors import ForbiddenError
from rl_operator.ui.live_runs import LiveRuns
from rl_operator.ui.ui_context import VisibleVersions, Visitor

ACCOUNT = "system:serviceaccount:team:viewer"


class Restricted(MemoryTarget):
    """Its caller may list the runs of some namespaces, and not those of all."""

    def __init__(self, *allowed: str, caller: str = "me") -> None:
        super().__init__(in_namespace("default"), in_namespace("team"))
        self.caller = caller
        self.allowed = allowed
        self.refused = 0

    def runs(self, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        if namespace not in self.allowed:
            self.refused += 1
            raise ForbiddenError(f"you may not list the runs of {namespace}")
        return super().runs(namespace, selector)


def in_namespace(namespace: str) -> dict[str, Any]:
    run = run_manifest()
    metadata = {"uid": f"uid-{namespace}", "resourceVersion": "1"} | run["metadata"] | {"namespace": namespace}
    return {**run, "metadata": metadata}


def visitor(target: MemoryTarget, pinned: str | None = None) -> Visitor:
    return Visitor(target, lambda _: LiveRuns(dict), pinned)  # type: ignore[arg-type]  # of the protocol, what is used


def shown(found: Visitor, namespace: str | None) -> tuple[list[str], str]:
    runs, only = found.visible(lambda asked: found.target.runs(asked, ""), namespace)
    return [run["metadata"]["namespace"] for run in runs], only


@pytest.mark.parametrize(
    ("target", "pinned", "asked", "seen", "only"),
    [
        pytest.param(
            MemoryTarget(in_namespace("default"), in_namespace("team")), None, None, ["default", "team"], "", id="all"
        ),
        pytest.param(Restricted("default"), None, None, ["default"], "default", id="the usual one"),
        pytest.param(Restricted("team", caller=ACCOUNT), None, None, ["team"], "team", id="that of their account"),
        pytest.param(
            Restricted("default", caller=ACCOUNT), None, None, ["default"], "default", id="the usual one first"
        ),
        pytest.param(Restricted("team"), None, "team", ["team"], "", id="the one that they name"),
        pytest.param(Restricted("team"), "team", None, ["team"], "", id="the pinned one"),
        pytest.param(Restricted("team"), "team", "team", ["team"], "", id="the pinned one, named"),
    ],
)
def test_what_may_be_seen_is(
    target: MemoryTarget, pinned: str | None, asked: str | None, seen: list[str], only: str
) -> None:
    assert shown(visitor(target, pinned), asked) == (seen, only)


@pytest.mark.parametrize(
    ("target", "pinned", "asked", "sentence"),
    [
        pytest.param(
            Restricted("team"), None, None, "you may not list the runs of default", id="not even the usual one"
        ),
        pytest.param(Restricted(caller=ACCOUNT), None, None, "the runs of team", id="not even that of their account"),
        pytest.param(Restricted("default"), None, "team", "you may not list the runs of team", id="the one they name"),
        pytest.param(MemoryTarget(), "default", "team", "shows the namespace default alone, not team", id="pinned"),
    ],
)
def test_what_may_not_be_seen_is_refused(
    target: MemoryTarget, pinned: str | None, asked: str | None, sentence: str
) -> None:
    with pytest.raises(ForbiddenError, match=sentence):
        shown(visitor(target, pinned), asked)


def test_what_is_pinned_is_followed_alone() -> None:
    with pytest.raises(ForbiddenError, match="default alone"):
        visitor(MemoryTarget(), "default").live("team")


def test_many_callers_have_the_names_and_versions_in_memory_once() -> None:
    target = MemoryTarget(in_namespace("default"))
    first, second = (VisibleVersions(lambda: nullcontext(target), None)() for _ in range(2))  # type: ignore[arg-type]  # as above
    assert first == second == {("default", "sorting"): "uid-default/1"}
    assert next(iter(first.values())) is next(iter(second.values()))


def test_a_poll_is_refused_once() -> None:
    target = Restricted("default")
    read = VisibleVersions(lambda: nullcontext(target), None)  # type: ignore[arg-type]  # of the protocol, what is used
    assert [set(read()) for _ in range(3)] == [{("default", "sorting")}] * 3
    assert target.refused == 1
