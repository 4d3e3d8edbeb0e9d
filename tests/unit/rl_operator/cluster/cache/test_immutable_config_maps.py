"""Bounded by what it holds, not by how many."""

from typing import Any

from rl_operator.cluster.cache.immutable_config_maps import ImmutableConfigMaps


def config_map(name: str, characters: int, **more: Any) -> dict[str, Any]:
    metadata = {"namespace": "lab", "name": name, "uid": f"uid-{name}"}
    return {"metadata": metadata, "immutable": True, "data": {"config.yaml": "x" * characters}, **more}


def names_in(held: ImmutableConfigMaps, names: str) -> str:
    return "".join(name for name in names if held.get(("lab", name)))


def test_those_that_were_not_asked_for_longest_make_room() -> None:
    held = ImmutableConfigMaps(most_characters=1000)
    for name in "ab":
        held.hold(config_map(name, 400))
    assert names_in(held, "a") == "a"
    held.hold(config_map("c", 400))
    assert names_in(held, "abc") == "ac"
    held.hold(config_map("h", 1001))
    assert names_in(held, "ach") == ""
    held.hold(config_map("d", 900))
    assert names_in(held, "d") == "d"


def test_what_may_change_is_not_held() -> None:
    held = ImmutableConfigMaps()
    held.hold(config_map("a", 1, immutable=False))
    assert held.get(("lab", "a")) is None


def test_only_what_is_read_later_is_held_and_all_of_it_is_counted() -> None:
    held = ImmutableConfigMaps(most_characters=1000)
    large = config_map("a", 1, binaryData={"x": "x" * 2000})
    large["metadata"] |= {"annotations": {"x": "x" * 2000}, "managedFields": ["x" * 2000]}
    held.hold(large)
    assert held.get(("lab", "a")) == config_map("a", 1)
    large["metadata"]["ownerReferences"] = [{"uid": "x" * 2000}]
    held.hold(large)
    assert held.get(("lab", "a")) is None
    held.hold(config_map("b", 1, data={"x" * 2000: ""}))
    assert held.get(("lab", "b")) is None


def test_what_is_forgotten_leaves_its_room() -> None:
    held = ImmutableConfigMaps(most_characters=1000)
    for _ in range(3):
        held.hold(config_map("a", 400))
        held.hold(config_map("a", 400))
        held.hold(config_map("b", 400))
        assert names_in(held, "ab") == "ab"
        held.forget(("lab", "a"))
        held.forget(("lab", "a"))
        assert names_in(held, "ab") == "b"
