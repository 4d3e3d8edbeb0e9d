"""`rlctl rollouts` over a state folder, in this process."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests.unit.rl_operator.rollouts.made_rollouts import frame, group, lost, rollout, step
from tests.unit.rl_operator.targets.fakes import run_manifest

from rl_operator.local.state.state_store import StateStore

Call = Callable[..., tuple[int, str, str]]

STALE = {"fate": "dropped", "reason": "stale", "why": "it was sampled 5 policy steps ago, trainer.max_staleness is 2"}
FILES: dict[str, list[dict[str, Any]]] = {
    "000000-1": [group(0, rollout(0.25, "no", "evaluated"), fate="evaluated", step=0)],
    "000001-1": [step(1, {"trained": 3}, **{"reward/mean": 0.0}), group(0, rollout(0.0, "old", policy=0))],
    "000002-1": [
        lost("timeout", count=2, tokens=40),
        step(2, {"trained": 7, "dropped": 2}, **{"reward/mean": 0.5}),
        group(0, rollout(0.0, "wrong"), rollout(1.0, "ok", gap=0.25, components={"format": 1}), item="a b"),
        group(0, rollout(0.5, "zz", "dropped"), **STALE),
    ],
}


@pytest.fixture
def kept_folder(store_of_rlctl: StateStore) -> Path:
    """The folder of rollouts of a run `sorting`."""
    run = store_of_rlctl.create(
        run_manifest("sorting", phase="Succeeded", startTime="2026-01-01T00:00:00Z", podName="x")
    )
    folder = store_of_rlctl.layout.rollouts("default", "sorting", run["metadata"]["uid"])
    folder.mkdir(parents=True)
    for name, records in FILES.items():
        (folder / f"{name}.jsonl.zst").write_bytes(frame(*records))
    return folder


@pytest.fixture
def call_rollouts(kept_folder: Path, call_rlctl: Call) -> Call:
    return lambda *arguments: call_rlctl("rollouts", *arguments, "--local")


def test_the_newest_step(call_rollouts: Call) -> None:
    code, printed, errors = call_rollouts("sorting")
    assert (code, errors) == (0, "")
    assert (
        printed
        == """\
sorting, step 2, batch reward 0.500: 2 groups, 1 trained, 1 dropped
  9 tokens arrived: 7 trained (78 %), 2 dropped (22 %)
  dropped: 1 group, 2 tokens, stale: it was sampled 5 policy steps ago, trainer.max_staleness is 2
  lost: 2 rollouts, 40 tokens, timeout: it was timeout

group 0, trained, item a b
  prompt  sort
    REWARD    ADV   LEN STALE     GAP
     1.000      -     2     1    0.25  ok
      format 1
     0.000      -     5     1       0  wrong

group 0, dropped, stale
  prompt  sort
    REWARD    ADV   LEN STALE     GAP
     0.500      -     2     1       0  zz
"""
    )


def test_the_steps(call_rollouts: Call) -> None:
    _, printed, _ = call_rollouts("sorting", "--steps")
    assert [re.split(r"\s\s+", line.strip())[:7] for line in printed.splitlines()] == [
        ["STEP", "BATCH REWARD", "TRAINED", "NO-ADV", "DROP", "EVAL", "LOST"],
        ["0", "-", "-", "-", "-", "1", "-"],
        ["1", "0.000", "1", "-", "-", "-", "-"],
        ["2", "0.500", "1", "-", "1", "-", "2"],
    ]
    _, printed, _ = call_rollouts("sorting", "--steps", "-o", "json")
    assert [(row["step"], row["batchReward"]) for row in json.loads(printed)["steps"]] == [
        (0, None),
        (1, 0.0),
        (2, 0.5),
    ]
    _, printed, _ = call_rollouts("sorting", "--steps", "-o", "jsonl")
    assert json.loads(printed.splitlines()[0])["counts"] == {"evaluated": 1}


def test_lines_are_those_of_the_file(call_rollouts: Call) -> None:
    _, printed, _ = call_rollouts("sorting", "-o", "jsonl")
    assert [json.loads(line) for line in printed.splitlines()] == FILES["000002-1"]
    _, printed, _ = call_rollouts("sorting", "-o", "jsonl", "--grep", "wrong|old|no")
    assert [json.loads(line)["fate"] for line in printed.splitlines()] == ["trained", "trained", "evaluated"]
    _, printed, _ = call_rollouts("sorting", "-o", "jsonl", "--sort", "reward", "--limit", "1")
    assert [json.loads(line) for line in printed.splitlines()] == [FILES["000002-1"][i] for i in (1, 2, 0)]


def test_json_has_the_ledger_and_the_rollouts_in_order(call_rollouts: Call) -> None:
    _, printed, _ = call_rollouts("sorting", "--step", "2", "-o", "json")
    [answer] = json.loads(printed)["steps"]
    assert (answer["balances"], answer["batchReward"], answer["found"]) == (True, 0.5, 2)
    assert answer["lost"] == [
        {"what": "rollout", "reason": "timeout", "why": "it was timeout", "count": 2, "tokens": 40}
    ]
    assert [each["reward"] for each in answer["groups"][0]["rollouts"]] == [1.0, 0.0]


def test_nothing_matches(call_rollouts: Call) -> None:
    for arguments in (("--grep", "nowhere"), ("--fate", "no_advantage")):
        code, printed, errors = call_rollouts("sorting", *arguments)
        assert (code, printed) == (0, "")
        assert errors.startswith("no rollouts of run sorting (the run's folder) match")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--step", "9"), "there are no rollouts of step 9; the nearest steps that have some: 1, 2"),
        (("--grep", "("), "--grep is '(', which is not a regular expression"),
        (("--sort", "taste"), "not one of 'reward', 'advantage', 'length', 'gap', 'staleness'"),
        (("--steps", "--step", "0"), "--steps lists all steps, and --step chooses rollouts"),
        (("--steps", "--grep", "x"), "--steps lists all steps, and --grep chooses rollouts"),
        (("--ascending",), "--ascending is about --sort"),
        (("--fate", "eaten"), "not one of 'trained', 'no_advantage', 'dropped', 'evaluated', 'lost'"),
    ],
)
def test_refused(call_rollouts: Call, arguments: tuple[str, ...], said: str) -> None:
    code, printed, errors = call_rollouts("sorting", *arguments)
    assert (code, printed) == (2, "")
    assert said in " ".join(errors.split())


def test_a_run_without_any(call_rollouts: Call, kept_folder: Path) -> None:
    for file in kept_folder.iterdir():
        file.unlink()
    code, _, errors = call_rollouts("sorting")
    assert code == 2
    assert (
        "it kept none (trainer.keep_rollouts_mb is 0, or the disk was full), or an older version trained it" in errors
    )
