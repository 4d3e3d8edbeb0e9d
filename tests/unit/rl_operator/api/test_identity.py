from functools import lru_cache

from tests.unit.rl_operator.samples import make_runtime

from rl_operator.api.identity import Same
from rl_operator.api.runtime import Runtime


def test_only_the_very_same_object_is_the_same() -> None:
    first, second = make_runtime(), make_runtime()
    assert first == second
    assert Same(first) == Same(first)
    assert Same(first) != Same(second)


def test_work_is_done_once_for_each_object() -> None:
    asked = []

    @lru_cache
    def name_of(runtime: Same[Runtime]) -> str:
        asked.append(runtime.model)
        return runtime.model.metadata.name

    first, second = make_runtime(), make_runtime()
    assert [name_of(Same(each)) for each in (first, first, second, first)] == ["lab"] * 4
    assert len(asked) == 2
