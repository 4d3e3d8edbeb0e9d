"""`tinker-atropos check` as a process: what it prints, how it exits, and that nothing outlives it."""

import json
import math
import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from tests import forking
from tests.unit.tinker_atropos.environments.trial.provider import KEY, ScriptedProvider

from tinker_atropos.check.check_process import as_json, as_text
from tinker_atropos.check.checks import findings, worst
from tinker_atropos.check.observations import AnswerSeen, GroupSeen, Observations, SequenceSeen


def seen_group(*rewards: float, **values: object) -> GroupSeen:
    sequences = tuple(SequenceSeen(20, 4, sampled=4, trained_sampled=4) for _ in rewards)
    settled: dict[str, object] = {
        "sequences": sequences,
        "rollouts": tuple(range(len(rewards))),
        "answers": tuple(AnswerSeen("", reward, 20) for reward in rewards),
        **values,
    }
    return GroupSeen(rewards, **settled)  # type: ignore[arg-type]


def test_what_was_never_reached_is_null_and_unknown() -> None:
    seen = Observations("mine.py")
    found = findings(seen)
    assert {each.verdict for each in found} == {"unknown"}
    assert {each.said for each in found} == {"not reached"}
    wire = json.loads(as_json(seen, found))
    assert wire["verdict"] == "unknown"
    assert wire["rewards"] == {"min": None, "max": None, "mean": None}
    assert wire["tokens"]["mean"] is wire["tokens"]["sampled"] is wire["held_out"] is wire["item"] is None


def test_what_breaks_a_stage_is_the_finding_of_its_check() -> None:
    seen = Observations("mine.py", stage="setup")
    seen.break_off("not done within 6 s")
    found = {each.check: each for each in findings(seen)}
    assert (found["setup"].verdict, found["setup"].said) == ("failed", "not done within 6 s")
    assert found["items"].verdict == "unknown"
    seen.stage = "done"
    seen.break_off("too late")
    assert seen.broken == {"setup": "not done within 6 s"}


def test_rewards_that_are_not_numbers_are_still_json() -> None:
    seen = Observations("mine.py", groups=[GroupSeen((1.0, math.nan), refused="scores[1]: …"), seen_group(0.0, 0.5)])
    wire = json.loads(as_json(seen, findings(seen)))
    assert wire["rewards"] == {"min": 0.0, "max": 1.0, "mean": 0.5}
    assert (wire["groups"]["sent"], wire["groups"]["refused"]) == (2, 1)


def test_a_rollout_of_two_kinds_is_of_none() -> None:
    kinds = ("gold", "gold", "empty", "gold")
    sequences = tuple(SequenceSeen(2, 1, kind=kind) for kind in kinds)  # type: ignore[arg-type]
    answers = tuple(AnswerSeen(str(index), index / 4, 1) for index in range(4))
    group = GroupSeen((1.0, 0.5, 0.25), sequences=sequences, rollouts=(0, 1, 1, 2), answers=answers)
    assert [answer.text for answer in group.answers_of("gold")] == ["0", "3"]
    assert group.answers_of("empty") == []


def test_long_texts_are_cut_for_people_only() -> None:
    answer = AnswerSeen("x" * 1000, 1.0, 5, "gold")
    seen = Observations("mine.py", group_size=1, groups=[seen_group(1.0, prompt='say "x"\n', answers=(answer,))])
    text = as_text(seen, findings(seen))
    assert '  one item: "say \\"x\\"\\n"' in text
    assert max(map(len, text.splitlines())) < 300
    assert json.loads(as_json(seen, findings(seen)))["item"]["answers"][0]["text"] == answer.text


@pytest.mark.parametrize(
    ("verdicts", "verdict"),
    [(["ok", "unknown"], "ok"), (["ok", "warning"], "warning"), (["failed", "warning"], "failed"), ([], "unknown")],
)
def test_the_worst_that_is_known_counts(verdicts: list[str], verdict: str) -> None:
    assert worst(verdicts) == verdict  # type: ignore[arg-type]


LENGTHS = {
    "short": (SequenceSeen(20, 4, sampled=4), 64, 9000, "ok"),
    "nearly too long to be trained": (SequenceSeen(8500, 4000, sampled=4000), 9000, 9000, "warning"),
    "no room for an answer": (SequenceSeen(63, 3, sampled=3), 64, 9000, "warning"),
}


@pytest.mark.parametrize(("sequence", "length", "trained", "verdict"), LENGTHS.values(), ids=LENGTHS)
def test_lengths_are_compared_with_both_limits(sequence: SequenceSeen, length: int, trained: int, verdict: str) -> None:
    group = seen_group(1.0, sequences=(sequence,))
    seen = Observations("mine.py", groups=[group], max_token_length=length, longest_trained=trained)
    assert {each.check: each.verdict for each in findings(seen)}["length"] == verdict


def test_a_rollouts_reward_judges_the_grader_where_nothing_else_does() -> None:
    kinds = ("empty", "random")
    sequences = tuple(SequenceSeen(2, 1, sampled=1, trained_sampled=1, kind=kind) for kind in kinds)  # type: ignore[arg-type]
    answers = (AnswerSeen("", 1.0, 2, "empty"), AnswerSeen("x", 0.25, 2, "random"))
    group = GroupSeen((1.0, 0.25), sequences=sequences, rollouts=(0, 1), answers=answers)
    seen = Observations("mine.py", groups=[group], stage="done")
    grader = {each.check: each for each in findings(seen)}["grader"]
    assert grader.verdict == "warning"
    assert grader.said.startswith("the grader pays 1 for the worthless answer '' (1 of 1 tries)")


pytestmark = pytest.mark.process

DATA = Path(__file__).parents[3] / "data" / "environments"
PROGRAM = Path(sys.executable).with_name("tinker-atropos")
HEAD = """\
import asyncio, os, subprocess, sys, time
from tinker_atropos.environments.bundled.sort_digits import SortDigits


"""

Run = Callable[..., "subprocess.CompletedProcess[str]"]


@pytest.fixture
def surroundings(tmp_path: Path) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "PYTHONPATH")}
    return kept | {"HOME": str(tmp_path)}


@pytest.fixture
def run_check(surroundings: dict[str, str]) -> Run:
    def run(environment: str | Path, *options: str, **env_vars: str) -> "subprocess.CompletedProcess[str]":
        return forking.run(["check", str(environment), *options], surroundings | env_vars)

    return run


def write(folder: Path, body: str) -> Path:
    file = folder / "mine.py"
    file.write_text(f"{HEAD}class Mine(SortDigits):\n{textwrap.indent(textwrap.dedent(body), '    ')}\n")
    return file


def verdicts(ended: "subprocess.CompletedProcess[str]") -> dict[str, str]:
    return {each["check"]: each["verdict"] for each in json.loads(ended.stdout)["checks"]}


def said(ended: "subprocess.CompletedProcess[str]", check: str) -> str:
    sentence: str = next(each["said"] for each in json.loads(ended.stdout)["checks"] if each["check"] == check)
    return sentence


def is_running(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False


def test_real_start_prints_one_report_for_a_good_environment(surroundings: dict[str, str]) -> None:
    ended = subprocess.run(
        [PROGRAM, "check", "sort_digits"], env=surroundings, capture_output=True, text=True, check=False
    )
    assert ended.returncode == 0, ended.stderr
    lines = ended.stdout.splitlines()
    assert lines[0] == "sort_digits: scripted answers, seed 0, 3 groups of 8, tokenizer bundled"
    assert "  ok       spread    rewards differ in 3 of 3 groups" in lines
    assert lines[-1] == "ok: 16 ok"
    assert ended.stderr == ""


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/check")
@pytest.mark.parametrize(("file", "groups"), [("plain_digits.py", 2), ("plain_game.py", 4)])
def test_an_unmodified_file_is_checked_and_its_leftovers_end_with_it(run_check: Run, file: str, groups: int) -> None:
    ended = run_check(DATA / file, "-o", "json", "--groups", "2")
    assert ended.returncode == 0, ended.stderr
    report = json.loads(ended.stdout)
    assert (report["verdict"], report["groups"]["sent"]) == ("ok", groups)
    assert report["tokens"]["trained"] == report["tokens"]["trained_and_sampled"] > 0


@pytest.mark.nightly("tinker-atropos/src/tinker_atropos/check")
def test_a_task_of_a_library_is_checked(run_check: Run) -> None:
    ended = run_check("reasoning-gym/spell_backward", "-o", "json")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert set(verdicts(ended).values()) == {"ok"}
    assert {each["kind"] for each in json.loads(ended.stdout)["item"]["answers"]} == {
        "gold", "wrong", "empty", "random",
    }  # fmt: skip


LEFT = """
async def setup(self):
    await super().setup()
    print("printed by the environment")
    os.write(1, b"and beside Python")
    started = [
        "sleep 600 & echo $! > {folder}/orphan",
        "trap '' TERM; echo $$ > {folder}/stubborn; while :; do sleep 0.1; done",
    ]
    for command in started:
        subprocess.Popen(["/bin/sh", "-c", command], start_new_session=True)
    while not all(os.path.exists(f"{folder}/{{name}}") for name in ("orphan", "stubborn")):
        await asyncio.sleep(0.01)
    {then}
"""
HANGS = {
    "returns": ("pass", 0, "ok"),
    "waits": ("await asyncio.sleep(600)", 1, "failed"),
    "blocks the loop": ("time.sleep(600)", 1, "failed"),
    "leaves from a task": (
        "asyncio.get_running_loop().call_soon(sys.exit, 3)\n    await asyncio.sleep(600)",
        1,
        "failed",
    ),
}


@pytest.mark.parametrize(("then", "code", "verdict"), HANGS.values(), ids=HANGS)
def test_it_ends_in_time_and_leaves_no_process(
    run_check: Run, tmp_path: Path, then: str, code: int, verdict: str
) -> None:
    limit = "60" if code == 0 or "exit" in then else "6"
    ended = run_check(write(tmp_path, LEFT.format(folder=tmp_path, then=then)), "-o", "json", "--limit", limit)
    assert ended.returncode == code, ended.stderr
    assert verdicts(ended)["setup"] == verdict
    if verdict == "failed":
        sentence = "the environment left early: it called sys.exit" if "exit" in then else "not done within 6 s"
        assert said(ended, "setup").startswith(sentence)
    assert "printed by the environment" in ended.stderr
    assert "and beside Python" in ended.stderr
    pids = [int((tmp_path / name).read_text()) for name in ("orphan", "stubborn")]
    assert [pid for pid in pids if is_running(pid)] == []


def test_a_signal_ends_it_with_a_report(tmp_path: Path, surroundings: dict[str, str]) -> None:
    file = write(tmp_path, f"async def setup(self):\n    open('{tmp_path}/begun', 'w')\n    time.sleep(600)")
    with (tmp_path / "out").open("wb") as out, Path(os.devnull).open("rb") as nothing:
        streams = (nothing.fileno(), out.fileno(), out.fileno())
        process = forking.ForkedPopen(["check", str(file), "-o", "json"], surroundings, streams)
    give_up_at = time.monotonic() + 100
    while not (tmp_path / "begun").exists():
        assert time.monotonic() < give_up_at, (tmp_path / "out").read_text()
        time.sleep(0.05)
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 1
    report = (tmp_path / "out").read_text()
    assert '"said": "stopped as asked"' in report


def test_a_file_that_does_not_import_fails(run_check: Run, tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text("import no_such_package\n")
    ended = run_check(file)
    assert ended.returncode == 1
    assert "failed   import    the environment failed while it was imported: ModuleNotFoundError" in ended.stdout
    assert "mine.py, line 1" in ended.stdout
    assert ended.stdout.splitlines()[-1] == "failed: 1 failed, 15 unknown"


REFUSED = {
    "no such environment": (("sort_digit",), {}, "there is no environment 'sort_digit'; did you mean 'sort_digits'?"),
    "no such file": (("./no_such.py",), {}, "there is no environment file"),
    "no such config": (("sort_digits", "--config", "no_such.yaml"), {}, "cannot read the config file no_such.yaml"),
    "no provider": (("sort_digits", "--model", "m"), {}, "RL_INFERENCE_URL is ''"),
    "no groups": (("sort_digits", "--groups", "0"), {}, "--groups"),
}


@pytest.mark.parametrize(("words", "env_vars", "reason"), REFUSED.values(), ids=REFUSED)
def test_a_wrong_command_is_refused_without_a_report(
    run_check: Run, words: tuple[str, ...], env_vars: dict[str, str], reason: str
) -> None:
    ended = run_check(*words, **env_vars)
    assert (ended.returncode, ended.stdout) == (2, "")
    assert reason in ended.stderr


def test_a_providers_model_answers_instead(run_check: Run) -> None:
    with ScriptedProvider() as provider:
        given = {"RL_INFERENCE_URL": provider.url, "RL_INFERENCE_API_KEY": KEY}
        ended = run_check("sort_digits", "--model", "half", "--groups", "2", "-o", "json", **given)
        assert provider.keys == {KEY}
    assert ended.returncode == 0, ended.stderr
    report: dict[str, Any] = json.loads(ended.stdout)
    assert (report["model"], report["rewards"]) == ("half", {"min": 0.0, "max": 1.0, "mean": 0.5})
    assert {name for name, verdict in verdicts(ended).items() if verdict == "unknown"} == {
        "requests", "tokens", "logprobs", "training",
    }  # fmt: skip
    assert KEY not in ended.stdout + ended.stderr
