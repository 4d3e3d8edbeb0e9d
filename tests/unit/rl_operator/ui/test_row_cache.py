"""What is read again: what changed, by those who may."""

from typing import Any

from tests.unit.rl_operator.targets.fakes import MemoryTarget, run_manifest

from rl_operator.errors import ForbiddenError
from rl_operator.ui.row_cache import MOST_READ_SINGLY, RowCache


class CountingTarget(MemoryTarget):
    lists = 0
    may_get = True

    def runs(self, namespace: str | None, selector: str) -> list[dict[str, Any]]:
        self.lists += 1
        return super().runs(namespace, selector)

    def run_versions(self, namespace: str | None) -> dict[tuple[str, str], str]:
        self.lists -= 1  # of the fake, not of a target
        return super().run_versions(namespace)

    def run(self, namespace: str, name: str) -> dict[str, Any] | None:
        if not self.may_get:
            raise ForbiddenError("no")
        return super().run(namespace, name)

    def change(self, name: str, message: str) -> None:
        run = self.objects["default", name]
        version = str(int(run["metadata"]["resourceVersion"]) + 1)
        metadata = run["metadata"] | {"resourceVersion": version}
        self.objects["default", name] = run | {"metadata": metadata, "status": {"message": message}}


def target_with(runs: int) -> CountingTarget:
    manifests = [run_manifest(f"run-{number}") for number in range(runs)]
    for run in manifests:
        run["metadata"] |= {"uid": f"uid-{run['metadata']['name']}"}
    return CountingTarget(*manifests)


def sentences(cache: RowCache, target: CountingTarget) -> dict[str, str]:
    return {row.name: row.sentence for row in cache.of(target, None)}  # type: ignore[arg-type]  # of the protocol, what is used


def test_only_what_changed_is_read_again() -> None:
    cache, target = RowCache(), target_with(100)
    assert len(sentences(cache, target)) == 100
    assert (target.lists, target.reads) == (1, 0)
    target.change("run-7", "changed")
    assert sentences(cache, target)["run-7"] == "changed"
    assert (target.lists, target.reads) == (1, 1)
    target.delete("default", "run-7")
    assert "run-7" not in sentences(cache, target)
    assert (target.lists, target.reads) == (1, 1)


def test_many_changes_are_one_list() -> None:
    cache, target = RowCache(), target_with(100)
    sentences(cache, target)
    for number in range(MOST_READ_SINGLY + 1):
        target.change(f"run-{number}", "changed")
    assert list(sentences(cache, target).values()).count("changed") == MOST_READ_SINGLY + 1
    assert (target.lists, target.reads) == (2, 0)


def test_whoever_may_only_list_sees_changes_too() -> None:
    cache, target = RowCache(), target_with(3)
    target.may_get = False
    target.change("run-1", "changed")
    assert sentences(cache, target)["run-1"] == "changed"


def test_rows_of_one_caller_are_not_shown_to_another() -> None:
    cache, everything, nothing = RowCache(), target_with(3), target_with(0)
    assert len(sentences(cache, everything)) == 3
    assert sentences(cache, nothing) == {}


def test_the_rows_that_were_not_asked_for_are_dropped() -> None:
    cache, target = RowCache(most=5), target_with(10)
    assert len(sentences(cache, target)) == 10
    assert len(cache._rows) == 5
