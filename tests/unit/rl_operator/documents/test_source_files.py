import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rl_operator.documents.source_files import chosen_entry, source_hash, source_problem


def test_the_hash_covers_names_and_contents_in_any_order() -> None:
    assert source_hash({"a.py": "1", "b.py": "2"}) == source_hash({"b.py": "2", "a.py": "1"})
    others: list[dict[str, str]] = [{}, {"a.py": "12"}, {"a.py": "2", "b.py": "1"}, {"a.py": "1", "b.py": "2", "c": ""}]
    hashes = {source_hash(files) for files in [{"a.py": "1", "b.py": "2"}, *others]}
    assert len(hashes) == len(others) + 1
    assert all(re.fullmatch("[0-9a-f]{12}", each) for each in hashes)


@given(st.dictionaries(st.text(), st.text()))
def test_any_files_have_a_hash(files: dict[str, str]) -> None:
    assert source_hash(files) == source_hash(dict(reversed(files.items())))


RIGHT: list[tuple[dict[str, str], str | None, str]] = [
    ({"env.py": ""}, None, "env.py"),
    ({"env.py": "", "words.txt": ""}, None, "env.py"),
    ({"a.py": "", "b.py": ""}, "b.py", "b.py"),
    ({"_a-1.v2.py": ""}, None, "_a-1.v2.py"),
]


@pytest.mark.parametrize(("files", "entry", "chosen"), RIGHT)
def test_the_entry_is_the_named_one_or_the_only_one(files: dict[str, str], entry: str | None, chosen: str) -> None:
    assert source_problem(files, entry) is None
    assert chosen_entry(files, entry) == chosen


WRONG: dict[str, tuple[dict[str, str], str | None, str, str, str]] = {
    "nothing": ({}, None, "NoEnvironment", "", "there are no files at all"),
    "no Python": ({"a.txt": ""}, None, "NoEnvironment", "", "there is no Python file (files: a.txt)"),
    "several": ({"b.py": "", "a.py": ""}, None, "SeveralEnvironments", "a.py", "(files: a.py, b.py): name one of them"),
    "no such file": ({"a.py": ""}, "b.py", "NoEnvironment", "b.py", "there is no such file (files: a.py)"),
    "an entry that is no Python": ({"a.txt": ""}, "a.txt", "NoEnvironment", "a.txt", "ends with .py"),
    "a folder": ({"a/b.py": ""}, None, "Unreadable", "a/b.py", "no folders"),
    "the folder above": ({"../a.py": ""}, None, "Unreadable", "../a.py", "no folders"),
    "the folder itself": ({"..": ""}, None, "Unreadable", "..", "this is not a valid name"),
    "a hidden file": ({".a.py": ""}, None, "Unreadable", ".a.py", "this is not a valid name"),
    "an option": ({"--help.py": ""}, None, "Unreadable", "--help.py", "this is not a valid name"),
    "a line end": ({"a.py\n": ""}, None, "Unreadable", r"a.py\n", "this is not a valid name"),
    "no letters": ({"é\0\ud800.py": ""}, None, "Unreadable", r"\xe9\x00\ud800.py", "this is not a valid name"),
    "a long name": ({"a" * 254: ""}, None, "Unreadable", "a" * 80, "at most 253 characters"),
    "an empty name": ({"": ""}, None, "Unreadable", "", "this is not a valid name"),
}


@pytest.mark.parametrize(("files", "entry", "reason", "file", "message"), WRONG.values(), ids=WRONG)
def test_unreadable_files(files: dict[str, str], entry: str | None, reason: str, file: str, message: str) -> None:
    problem = source_problem(files, entry)
    assert problem is not None
    assert (problem.reason, problem.file) == (reason, file)
    assert message in problem.message


def test_a_long_list_of_files_is_cut() -> None:
    problem = source_problem({f"f{number:02}.py": "" for number in range(30)}, None)
    assert problem is not None
    assert problem.message.endswith("f09.py and 20 more): name one of them as the entry")


@given(
    st.dictionaries(st.text(max_size=5) | st.just("a.py"), st.just("")),
    st.none() | st.text(max_size=5) | st.just("a.py"),
)
def test_any_names_give_an_entry_or_a_printable_problem(files: dict[str, str], entry: Any) -> None:
    problem = source_problem(files, entry)
    if problem is None:
        assert chosen_entry(files, entry) in files
    else:
        assert problem.file.isprintable()
