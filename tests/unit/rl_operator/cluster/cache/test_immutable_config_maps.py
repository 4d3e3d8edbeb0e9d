"""Bounded by what it holds, not by how many."""

from typing import Any

from rl_operator.cluster.cache.immutable_config_maps import ImmutableConfigMaps


def config_map(uid: str, characters: int, **more: Any) -> dict[str, Any]:
    return {"metadata": {"uid": uid}, "immutable": True, "data": {"config.yaml": "x" * characters}, **more}


def test_those_that_were_not_asked_for_longest_make_room() -> None:
    held = ImmutableConfigMaps(most_characters=100)
    for uid in ("a", "b"):
        held.hold(config_map(uid, 40))
    assert held.get("a") is not None
    held.hold(config_map("c", 40))
    assert [uid for uid in "abc" if held.get(uid)] == ["a", "c"]
    held.hold(config_map("huge", 101))
    assert not [uid for uid in ("a", "c", "huge") if held.get(uid)]
    held.hold(config_map("d", 100))
    assert held.get("d") is not None


def test_what_may_change_is_not_held() -> None:
    held = ImmutableConfigMaps()
    held.hold(config_map("a", 1, immutable=False))
    assert held.get("a") is None
    assert held.get(None) is None
