"""Programs with a mistake: the same everywhere, broken as they are, and right when they are fixed."""

import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

from tinker_atropos.environments.bundled import broken_programs
from tinker_atropos.environments.bundled.broken_programs import TEMPLATES

ALL = [*broken_programs.split().training, *broken_programs.split().held_out]


def test_no_program_is_in_both_parts() -> None:
    split = broken_programs.split()
    assert {each.broken for each in split.training}.isdisjoint(each.broken for each in split.held_out)
    kinds = Counter(each.name for each in split.held_out)
    assert kinds.keys() == {template.name for template in TEMPLATES}
    assert min(kinds.values()) >= 5


def test_an_item_never_changes() -> None:
    item = broken_programs.item(3)
    assert item == broken_programs.item(3)
    assert item.name == "word_counts"
    assert "            counts[word] = 1\n" in item.broken


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_mistakes_are_in_the_source(template) -> None:
    for old, new in template.mistakes:
        assert old in template.source
        assert old != new


def test_every_program_is_fixable_and_at_most_three_of_four_tests_pass() -> None:
    for item in ALL:
        assert "<" not in item.right.replace("<=", "").replace(" < ", "")
        assert item.broken != item.right
        assert returned(item, item.right) == [expected for _, expected in item.cases]
        wrong = sum(
            each != expected for each, (_, expected) in zip(returned(item, item.broken), item.cases, strict=True)
        )
        assert len(item.cases) in (3, 4)
        assert 4 * wrong >= len(item.cases)


@pytest.mark.process
def test_tests_print_the_mark_when_they_pass(tmp_path: Path) -> None:
    item = broken_programs.item(0)
    for source, share in ((item.right, 1.0), (item.broken, 0.5), ("import os\nos._exit(0)\n", 0.0), ("", 0.0)):
        (tmp_path / f"{item.name}.py").write_text(source)
        (tmp_path / f"test_{item.name}.py").write_text(broken_programs.unit_tests(item, "a1b2"))
        command = [sys.executable, "-B", "-m", "unittest"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert broken_programs.passed(item, done.stdout + done.stderr, "a1b2") == share


def returned(item: broken_programs.BrokenProgram, source: str) -> list[object]:
    return broken_programs._outcomes(item.name, source, [arguments for arguments, _ in item.cases])
