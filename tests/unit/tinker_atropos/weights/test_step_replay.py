"""`tinker-atropos replay` as a process: steps that a Tinker service has trained, computed again there."""

import asyncio
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import tinker
import yaml
from tests import forking
from tests.conftest import TinkerServiceProcess
from tests.unit.tinker_atropos.run_configs import run_config
from tests.unit.tinker_atropos.trainer.test_loop import Surroundings

from tinker_atropos.config.run_config import RunConfig
from tinker_atropos.trainer.backend.backend import TinkerBackend
from tinker_atropos.trainer.backend.checkpoints import checkpoint_metadata, checkpoint_name
from tinker_atropos.trainer.backend.lora_weights import Training
from tinker_atropos.trainer.backend.policy import CurrentPolicy, Policy
from tinker_atropos.trainer.loop import train
from tinker_atropos.trainer.rollouts.rollout_lines import KeptRun, RolloutLines, TrainedStep, encoded

SCORES = [[1.0, 0.0, 0.0, 1.0], [0.0, 1.0, 1.0, 1.0], [1.0, 0.0, 1.0, 0.0], [1.0] * 4, [0.0, 0.0, 0.0, 1.0]]
SAVED, EQUAL_SCORES, LAST = 2, 4, 5
PLAIN: dict[str, Any] = {"learning_rate": 1e-3, "lora_rank": 4}
ADJUSTED = {
    **PLAIN, "loss": "ppo", "num_substeps": 2, "kl_penalty_coef": 0.05,
    "advantage": "group_normalized", "learning_rate_schedule": "linear", "weight_decay": 0.1, "grad_clip_norm": 1.0,
}  # fmt: skip
"""All that changes a step: kept advantages have it, or it is applied again."""


class Keeping(Surroundings):
    """Keeps each step's lines as `rlctl replay` hands them over, and saves the state after step SAVED."""

    def __init__(self, policy: CurrentPolicy, training: Training, config: RunConfig, folder: Path, **options: Any):
        super().__init__(policy, SCORES, groups=2, **options)
        self.training, self.folder, self.run = (
            training,
            folder,
            KeptRun("sorting", "default", folder.name, 1, "bundled"),
        )
        self.lines = RolloutLines(self.run, config.tinker, lambda tokens: [str(token) for token in tokens])

    async def step_trained(self, step: int, seconds: float, metrics: Mapping[str, float], trained: TrainedStep) -> None:
        await super().step_trained(step, seconds, metrics, trained)
        lines = self.lines.of_step(step, trained, metrics, 0.0)
        (self.folder / f"{step}.jsonl").write_bytes(b"".join(map(encoded, lines)))

    def saves_at(self, step: int) -> bool:
        return step == SAVED

    async def save(self, step: int) -> None:
        metadata = checkpoint_metadata(self.folder.name, 1, step)
        await self.training.save_state(checkpoint_name(1, step), metadata, None)


async def keep_steps(folder: Path, service: TinkerServiceProcess, settings: dict[str, Any], **sampled: Any) -> None:
    config = run_config({"total_steps": 8, "group_size": 4, "batch_size": 8}, **settings)
    (folder / "config.yaml").write_text(yaml.safe_dump(config.model_dump(mode="json")))
    client = tinker.ServiceClient(base_url=service.url, api_key=service.key)
    training = await TinkerBackend(client, config.tinker).create("bundled", {})
    policy = CurrentPolicy()
    policy.swap(Policy(0, await training.snapshot()))
    keeping = Keeping(policy, training, config, folder, **sampled)
    await train(keeping, training=training, policy=policy, config=config, steps=range(LAST))
    await client.close("success")


@dataclass(frozen=True)
class ReplayProgram:
    folder: Path
    service: TinkerServiceProcess

    def __call__(self, step: int, folder: Path | None = None, *more: str) -> subprocess.CompletedProcess[str]:
        rollouts = folder or self.folder
        files = ("--config", str(self.folder / "config.yaml"), "--rollouts", str(rollouts), "--step", str(step))
        return forking.run(["replay", *files, *more], {**os.environ, **self.service.env_vars}, self.folder)


@pytest.fixture(scope="module")
def programs(
    tinker_service: TinkerServiceProcess, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, ReplayProgram]:
    """By the name of the settings of what was trained."""
    plain, adjusted = tmp_path_factory.mktemp("plain"), tmp_path_factory.mktemp("adjusted")
    asyncio.run(keep_steps(plain, tinker_service, PLAIN))
    asyncio.run(keep_steps(adjusted, tinker_service, ADJUSTED, off=-0.3, behind=1))
    assert "masked" in (adjusted / "1.jsonl").read_text()
    return {folder.name.strip("0"): ReplayProgram(folder, tinker_service) for folder in (plain, adjusted)}


@pytest.fixture
def replay_program(programs: dict[str, ReplayProgram]) -> ReplayProgram:
    return programs["plain"]


def replayed(ended: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    assert ended.returncode == 0, ended.stderr
    wire: dict[str, Any] = json.loads(ended.stdout)
    return wire


FROM = {1: 0, SAVED: 0, SAVED + 1: SAVED, LAST: SAVED}
"""By step: the steps of the state that it is computed from; 0 is the run's beginning."""


@pytest.mark.parametrize("settings", ["plain", "adjusted"])
@pytest.mark.parametrize(("step", "since"), FROM.items())
def test_a_step_is_what_it_was(settings: str, step: int, since: int, programs: dict[str, ReplayProgram]) -> None:
    found = replayed(programs[settings](step, None, "-o", "json"))
    assert (found["step"], found["attempt"], found["since"]) == (step, 1, since)
    assert found["equal"], found
    assert found["again"] == step - 1 - since
    assert found["figures"].keys() >= {"train/loss", "train/grad_norm"}
    for name, figure in found["figures"].items():
        assert figure["now"] == pytest.approx(figure["recorded"], rel=1e-3, abs=1e-5), name


def test_it_is_printed_for_people_and_saves_nothing(replay_program: ReplayProgram) -> None:
    def stored() -> list[str]:
        service = replay_program.service
        rest = tinker.RestClient(base_url=service.url, api_key=service.key)
        return [each.tinker_path for each in rest.list_user_checkpoints().result().checkpoints]

    before = stored()
    ended = replay_program(LAST)
    assert stored() == before
    head, names, loss, norm, *_, verdict = ended.stdout.splitlines()
    assert head.startswith(f"step {LAST} of attempt 1, from the state after step {SAVED} (tinker://")
    assert head.endswith(", and 2 steps trained again")
    assert names.split() == ["recorded", "now"]
    assert (loss[:16].strip(), norm[:16].strip()) == ("loss per token", "gradient norm")
    assert verdict == "Equal: no logprob differs by more than training again on rounded files explains."
    assert ended.stderr == f"training step {SAVED + 1} again\n"  # the other one had no gradient


def changed(folder: Path, source: Path, step: int, change: Callable[[dict[str, Any]], None]) -> Path:
    """A folder with the step alone, whose records are changed."""
    folder.mkdir()
    records = [json.loads(line) for line in (source / f"{step}.jsonl").read_text().splitlines()]
    for record in records:
        change(record)
    (folder / f"{step}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    return folder


def other_tokens(record: dict[str, Any]) -> None:
    if record["record"] == "group":
        record["prompt"]["tokens"][0] += 1


def test_what_differs_is_told(replay_program: ReplayProgram, tmp_path: Path) -> None:
    folder = changed(tmp_path / "changed", replay_program.folder, SAVED + 1, other_tokens)
    found = replayed(replay_program(SAVED + 1, folder, "-o", "json"))
    assert not found["equal"]
    assert found["largest"] > 0.001
    assert found["verdict"].startswith("Differs by more than the rounding of the files; sampler and trainer were ")


def of_another_run(record: dict[str, Any]) -> None:
    record["uid"] = "another"


def with_a_teacher(record: dict[str, Any]) -> None:
    record.get("metrics", {})["distil/forward_kl"] = 0.5


def only_evaluated(record: dict[str, Any]) -> None:
    record["record"] = "of a later format"


REFUSED = [
    (EQUAL_SCORES, lambda _: None, "step 4 changed no weights: none of its groups had an advantage"),
    (
        LAST,
        lambda _: None,
        f"the state after step 4, and of this run the backend has those after: {SAVED}. Steps",
    ),
    (SAVED + 1, of_another_run, "and of this run the backend has those after: none."),
    (1, with_a_teacher, "it was trained on a teacher's likeliest tokens (env.teacher_top_k)"),
    (1, only_evaluated, "step 1 was not trained"),
]


@pytest.mark.parametrize(("step", "change", "said"), REFUSED)
def test_a_step_that_cannot_be_computed_again_says_why(
    step: int, change: Callable[[dict[str, Any]], None], said: str, replay_program: ReplayProgram, tmp_path: Path
) -> None:
    ended = replay_program(step, changed(tmp_path / "changed", replay_program.folder, step, change))
    assert (ended.returncode, len(ended.stderr.splitlines())) == (2, 1), ended.stderr
    assert said in ended.stderr


def test_states_of_later_attempts_are_not_before_it(replay_program: ReplayProgram, tmp_path: Path) -> None:
    """Attempt 0 is one before the attempt that saved."""

    def earlier(record: dict[str, Any]) -> None:
        record["attempt"] = 0

    folder = changed(tmp_path / "changed", replay_program.folder, SAVED + 1, earlier)
    assert "those after: none." in replay_program(SAVED + 1, folder).stderr
    for step in range(1, SAVED + 1):
        shutil.copy(replay_program.folder / f"{step}.jsonl", folder)
    assert "from the run's beginning, and 2 steps trained again" in replay_program(SAVED + 1, folder).stdout
