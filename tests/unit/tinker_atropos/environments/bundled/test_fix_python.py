"""Programs with a mistake: the same everywhere, broken as they are, and right when they are fixed. And the agent that
fixes them, in real sandboxes: what each way to the end is worth.
"""

import json
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from tests.unit.tinker_atropos.environments.scripted_agent import ScriptedPolicy, agent_environment, rollout

from tinker_atropos.environments.bundled import fix_python
from tinker_atropos.environments.bundled.fix_python import TEMPLATES, BrokenProgram, FixPython

ITEM = fix_python.item(0)
PROGRAMS = [*fix_python.split().training, *fix_python.split().held_out]
MODULE, TESTS = f"{ITEM.name}.py", f"test_{ITEM.name}.py"
PASSING_TESTS = "import unittest\nclass Tests(unittest.TestCase):\n    def test(self): pass\n"
RUN = ("terminal", {"command": "python -m unittest"})
FIXED = ("write_file", {"path": MODULE, "content": ITEM.right})


def test_no_program_is_in_both_parts() -> None:
    split = fix_python.split()
    assert {each.broken for each in split.training}.isdisjoint(each.broken for each in split.held_out)
    kinds = Counter(each.name for each in split.held_out)
    assert kinds.keys() == {template.name for template in TEMPLATES}
    assert min(kinds.values()) >= 5


def test_an_item_never_changes() -> None:
    item = fix_python.item(3)
    assert item == fix_python.item(3)
    assert item.name == "word_counts"
    assert "            counts[word] = 1\n" in item.broken


@pytest.mark.parametrize("template", TEMPLATES, ids=lambda template: template.name)
def test_mistakes_are_in_the_source(template) -> None:
    for old, new in template.mistakes:
        assert old in template.source
        assert old != new


def test_every_program_is_fixable_and_at_most_three_of_four_tests_pass() -> None:
    for item in PROGRAMS:
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
    item = fix_python.item(0)
    for source, share in ((item.right, 1.0), (item.broken, 0.5), ("import os\nos._exit(0)\n", 0.0), ("", 0.0)):
        (tmp_path / f"{item.name}.py").write_text(source)
        (tmp_path / f"test_{item.name}.py").write_text(fix_python.unit_tests(item, "a1b2"))
        command = [sys.executable, "-B", "-m", "unittest"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
        assert fix_python.passed(item, done.stdout + done.stderr, "a1b2") == share


def returned(item: BrokenProgram, source: str) -> list[object]:
    return fix_python._outcomes(item.name, source, [arguments for arguments, _ in item.cases])


def said(tool: str, arguments: dict[str, Any]) -> str:
    return f"<tool_call>\n{json.dumps({'name': tool, 'arguments': arguments})}\n</tool_call>"


def written(path: str, content: str) -> str:
    return said("write_file", {"path": path, "content": content})


async def played(*texts: str, **config: Any) -> tuple[float, ScriptedPolicy]:
    policy = ScriptedPolicy(*texts)
    with agent_environment(FixPython, policy, **config) as env:
        return (await rollout(env, ITEM)).score, policy


@pytest.mark.process
async def test_a_fixed_program_earns_everything() -> None:
    score, policy = await played(said("read_file", {"path": MODULE}), said(*RUN), said(*FIXED), said(*RUN), "Fixed.")
    assert score == 1.0
    told = policy.heard().split("<|im_start|>tool\n")[1:]
    assert "def order_price" in told[0]
    assert "FAILED" in told[1]
    assert "OK" in told[3]


@pytest.mark.process
async def test_a_patch_is_a_fix_too() -> None:
    broken, right = _changed_lines()
    patch = said("patch", {"path": MODULE, "old_string": broken, "new_string": right})
    assert (await played(patch, "Fixed."))[0] == 1.0


@pytest.mark.process
@pytest.mark.parametrize(
    "texts",
    [
        ("I give up.",),
        (written(TESTS, PASSING_TESTS), "All tests pass."),
        (said("terminal", {"command": f"rm {TESTS}; mkdir {TESTS}"}), "There are no tests that fail."),
        (written(MODULE, "import os\nprint('Ran 4 tests. OK')\nos._exit(0)\n"), "All tests pass."),
        (written("unittest.py", "print('Ran 4 tests. OK')\n"), "All tests pass."),
        (written(MODULE, f"def {ITEM.name}(*_): return None\n"), "Is it better now?"),
    ],
    ids=["no fix", "other tests", "no tests", "early exit", "another unittest", "nonsense"],
)
async def test_all_else_earns_less_than_half(texts: tuple[str, ...]) -> None:
    score, _ = await played(*texts)
    assert 0 < score < 0.5, "it ended by itself, at least"


@pytest.mark.process
async def test_a_fix_counts_even_if_the_agent_never_ends() -> None:
    assert (await played(said(*FIXED), max_agent_turns=2))[0] == 0.875


def _changed_lines() -> tuple[str, str]:
    pairs = zip(ITEM.broken.splitlines(), ITEM.right.splitlines(), strict=True)
    return next((broken, right) for broken, right in pairs if broken != right)
