from rl_operator.check.name_lists import MOST_NAMES, listed, most_alike, outlined, unknown_environment

NAMES = [f"env_{number:03}" for number in range(250)]


def test_a_short_list_of_names_is_complete_and_a_long_one_is_cut() -> None:
    assert (listed([]), listed(["a", "b"])) == ("", "a, b")
    assert listed(NAMES) == ", ".join(NAMES[:MOST_NAMES]) + " and 230 more"


def test_the_nearest_comes_first() -> None:
    assert most_alike("tony", ["default", "tiny"]) == ["tiny", "default"]
    assert len(most_alike("x" * 100_000, NAMES)) == MOST_NAMES


def test_names_that_begin_alike_are_told_apart_by_the_rest() -> None:
    begin = "acme-mathematical-reasoning-problem-set-"
    known = [f"{begin}{level}" for level in ("medium", "hard", "easy")]
    assert set(most_alike(f"{begin}esay", known)) == set(known)
    assert most_alike(f"{begin}esay", known)[0] == f"{begin}easy"


def test_many_names_of_a_library_are_one() -> None:
    names = ["maze", "gym/a", "gym/b", "gym/c", "gym/d", "few/x", "few/y", *(f"own/{n}" for n in range(9))]
    assert outlined(names) == ["maze", "gym/NAME", "few/x", "few/y", *(f"own/{n}" for n in range(9))]


def test_of_a_library_its_nearest_members_are_named() -> None:
    available = ["maze", *(f"gym/{name}" for name in ("chess", "poker", "go", "checkers"))]
    said, names = unknown_environment("gym/pokr", available)
    assert said.startswith("; did you mean 'gym/poker'? (gym has 4, such as gym/poker, ")
    assert (names[0], set(names)) == ("gym/poker", set(available[1:]))
    alone = "; did you mean 'maze'? (available: maze, gym/NAME)"
    assert unknown_environment("mize", available) == (alone, ["maze", "gym/NAME"])
    assert unknown_environment("mize", []) == (" (available: none)", [])
