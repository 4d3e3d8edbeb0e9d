"""What docs/reference/rollout-files.md says of the files, against the files."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.unit.tinker_atropos.trainer.rollouts.kept_steps import GROUP, keeping, report, trained

from rl_contract.rollout_records import read_record
from tinker_atropos.chat.request_handling import MAX_BODY_BYTES
from tinker_atropos.trainer.rollouts.report_route import (
    AT_ONCE_BYTES,
    BRACKET_BYTES,
    MAX_BRACKETS,
    MEGABYTE,
    PER_SECOND_BYTES,
)

PAGE = (Path(__file__).parents[5] / "docs" / "reference" / "rollout-files.md").read_text()
LOGPROBS = [[1.0, 1.0, -0.123456789], [1.0, 1.0, -2.5]]


@pytest.fixture
def kept_records(tmp_path: Path) -> list[dict[str, Any]]:
    """A file with all kinds of records, read by the page's own program."""
    group = GROUP | {"inference_logprobs": LOGPROBS, "group_overrides": {"item": 3, "components": [{"a": 1.0}] * 2}}
    group |= {"messages": [[{"role": "user", "content": "hi"}]] * 2}
    dropped = {"fate": "dropped", "reason": "equal", "why": "all the same", "group": GROUP}
    lost = {"what": "group", "reason": "overdue", "why": "60 s", "item": 1, "tokens": 9}
    with keeping(tmp_path) as keeper:
        keeper.reported(report(groups=[dropped], lost=[lost]), collecting=4)
        keeper.step_trained(4, trained(group), {"reward/mean": 0.5})
        keeper.reported(report(groups=[{"fate": "evaluated", "step": 4, "group": GROUP}]), collecting=5)
        keeper.evaluated(4, {"eval/percent_correct": 0.5})
    program = PAGE.partition("```python\n")[2].partition("```")[0]
    names: dict[str, Any] = {}
    exec(program, names)
    return list(names["lines"](tmp_path / "000004-2.jsonl.zst"))


def test_its_program_reads_all_frames(kept_records: list[dict[str, Any]]) -> None:
    assert [line["record"] for line in kept_records] == ["group", "lost", "step", "group", "group", "evaluation"]


def test_what_is_written_is_read_whole(kept_records: list[dict[str, Any]]) -> None:
    """No field that readers skip: the page's tables are the records' own."""
    for line in kept_records:
        read = read_record(json.dumps(line).encode())
        assert read.model_dump(mode="json", exclude_unset=True) == line


def test_logprobs_have_5_decimals(kept_records: list[dict[str, Any]]) -> None:
    [step] = [line for line in kept_records if line.get("fate") in ("trained", "no_advantage")]
    logprobs = [rollout["sequences"][0]["logprobs"] for rollout in step["rollouts"]]
    assert logprobs == [[-0.12346], [-2.5]]
    assert np.isfinite(logprobs).all()


def test_the_bounds_of_reports() -> None:
    said = " ".join(PAGE.split())
    assert f"{AT_ONCE_BYTES // MEGABYTE} MB at once and {PER_SECOND_BYTES // MEGABYTE} MB a second" in said
    assert f"counting for {BRACKET_BYTES} bytes more" in said
    assert f"more than {MAX_BODY_BYTES // MEGABYTE} MiB, or of more than {MAX_BRACKETS:,} lists" in said
