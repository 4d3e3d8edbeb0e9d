"""What is in force for a run: as it was started, else as it would be."""

import json
from typing import Any

import pytest
from tests.unit.rl_operator.samples import frozen, make_run, own_inputs
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.api.runtime import Runtime
from rl_operator.documents.source_files import source_hash
from rl_operator.operator_errors import ForbiddenError
from rl_operator.render.environment_pod import environment_template
from rl_operator.targets.inputs.file_inputs import render_file
from rl_operator.targets.inputs.run_file import RunFile, with_uid
from rl_operator.targets.runs.trained_settings import TrainedSettings

SPEC = {"config": {"group_size": 4}, "trainer": {"learning_rate": 1e-4, "seed": 3}}


def settings(target: MemoryTarget, spec: dict[str, Any] = SPEC, **status: Any) -> dict[str, Any]:
    return TrainedSettings(target).of(parsed(run_manifest(spec=spec, **status)))


def started(target: MemoryTarget, texts: dict[str, str], **status: Any) -> dict[str, Any]:
    """The settings of a run of SPEC that was started with these texts."""
    manifest = run_manifest(spec=SPEC, startTime="2026-01-01T00:00:00Z")
    target.apply(frozen(manifest, texts))
    manifest["status"] |= status
    return TrainedSettings(target).of(parsed(manifest))


def texts_of(target: MemoryTarget, spec: dict[str, Any] = SPEC) -> dict[str, str]:
    return render_file(with_uid(RunFile(parsed(run_manifest(spec=spec))), "0a1b2c3d"), target).config_map["data"]


def test_before_the_start_it_is_what_would_be_in_force() -> None:
    found = settings(MemoryTarget())
    assert (found["environment"], found["runtime"], found["model"]) == ("sort_digits", "tiny", "bundled")
    assert (found["config.group_size"], found["trainer.learning_rate"], found["trainer.seed"]) == (4, 1e-4, 3)
    assert found["config.eval_items"] == 250, "the environment's own default"
    assert found["trainer.lora_rank"] == 16, "the runtime's"
    assert found["trainer.loss"] == "importance_sampling", "the trainer's"
    assert not {"config.api_key", "config.rollout_server_url", "trainer.wandb_run_name"} & found.keys()


def test_after_the_start_it_is_what_was_rendered() -> None:
    target = MemoryTarget()
    found = started(target, texts_of(target, SPEC | {"config": {"group_size": 16}}))
    assert found["config.group_size"] == 16, "the spec was edited since: the config was not"
    assert found["config.eval_items"] == 250


def test_what_was_exchanged_since_is_not_shown() -> None:
    target = MemoryTarget()
    texts = texts_of(target, SPEC | {"config": {"group_size": 16}})
    assert started(target, texts, configHash="0" * 64)["config.group_size"] == 4, "the spec's"


def test_started_and_unstarted_runs_of_the_same_spec_do_not_differ() -> None:
    target = MemoryTarget()
    assert started(target, texts_of(target)) == settings(target)


@pytest.mark.parametrize("text", ["", "[1]", "a: [", "a: 1\n---\nb: 1\n"])
def test_a_config_that_is_not_readable_gives_what_the_spec_says(text: str) -> None:
    target = MemoryTarget()
    assert started(target, {"config.yaml": text})["trainer.lora_rank"] == 16


def test_what_may_not_be_read_is_left_out() -> None:
    class Closed(MemoryTarget):
        def read(self, kind: str, namespace: str, name: str) -> dict[str, Any] | None:
            raise ForbiddenError(f"you may not get {kind} {namespace}/{name}")

        def runtimes(self) -> dict[str, Runtime]:
            raise ForbiddenError("no")

    found = settings(Closed(), configMapName="any")
    assert (found["config.group_size"], found["trainer.learning_rate"]) == (4, 1e-4)
    assert "config.eval_items" not in found


def test_the_files_of_an_own_environment_are_told_apart() -> None:
    target = MemoryTarget()
    run, source = make_run(environment="own/digits"), {"metadata": {"name": "s"}, "data": {"mine.py": "x = 1"}}
    apart = {"pod": environment_template(run, own_inputs(run), source), "network": []}
    texts = {"config.yaml": "env: {}", "environments.json": json.dumps(apart)}
    assert started(target, texts)["files"] == source_hash({"mine.py": "x = 1"})
    assert "files" not in settings(target)


def test_a_key_is_not_shown() -> None:
    found = settings(MemoryTarget(), {"config": {"own": "tml-0123456789abcdef"}, "startFrom": {"run": "first"}})
    assert found["config.own"] == "(not shown)"
    assert found["startFrom.run"] == "first"
