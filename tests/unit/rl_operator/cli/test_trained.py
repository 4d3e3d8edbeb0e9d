"""What `rlctl sample` and `rlctl export` ask `tinker-atropos` for."""

from typing import Any

import pytest
from tests.unit.rl_operator.targets.fakes import MemoryTarget, parsed, run_manifest

from rl_operator.cli.commands.trained_weights import base_model, call_tinker_atropos, chosen_weights
from rl_operator.cli.views.run_lines import best_line
from rl_operator.operator_errors import RefusedError
from rl_operator.targets.runs.run_weights import tokenizer_of

CHECKPOINT = {"step": 20, "statePath": "tinker://r/weights/20"}


def test_a_finished_run_has_its_weights(capsys: pytest.CaptureFixture[str]) -> None:
    weights = {"samplerPath": "tinker://r/sampler_weights/40", "statePath": "tinker://r/weights/40"}
    run = parsed(run_manifest(phase="Succeeded", checkpoint=CHECKPOINT, weights=weights))
    paths = [chosen_weights(run, MemoryTarget(), to_sample=each) for each in (True, False)]
    assert paths == list(weights.values())
    assert not capsys.readouterr().err


@pytest.mark.parametrize("phase", ["Running", "Stopped", "Failed"])
def test_an_unfinished_run_uses_its_newest_checkpoint_and_says_so(
    phase: str, capsys: pytest.CaptureFixture[str]
) -> None:
    run = parsed(run_manifest(phase=phase, checkpoint=CHECKPOINT))
    assert chosen_weights(run, MemoryTarget(), to_sample=True) == "tinker://r/weights/20"
    assert capsys.readouterr().err == f"sorting is {phase}: these are its weights after step 20\n"


@pytest.mark.parametrize(
    ("status", "hint"),
    [
        ({"phase": "Running"}, "it has trained no checkpoint yet; wait for it: rlctl wait sorting --memory"),
        ({"phase": "Failed"}, "it is Failed and has no checkpoint; why: rlctl get sorting --memory"),
    ],
)
def test_a_run_without_weights_explains_what_to_do(status: dict[str, Any], hint: str) -> None:
    with pytest.raises(RefusedError) as refused:
        chosen_weights(parsed(run_manifest(**status)), MemoryTarget(), to_sample=True)
    assert str(refused.value) == f"there are no weights of run sorting in memory: {hint}"


BEST = {
    "step": 20,
    "heldOut": {"value": 0.93, "low": 0.9, "high": 0.95},
    "statePath": "tinker://r/weights/20",
    "samplerPath": "tinker://r/sampler_weights/20",
}


def test_the_best_weights_are_those_of_the_status(capsys: pytest.CaptureFixture[str]) -> None:
    run = parsed(run_manifest(phase="Succeeded", best=BEST))
    paths = [chosen_weights(run, MemoryTarget(), to_sample=each, best=True) for each in (True, False)]
    assert paths == [BEST["samplerPath"], BEST["statePath"]]
    assert capsys.readouterr().err == "the best weights of sorting: step 20, held-out 0.93\n" * 2


def test_a_run_without_best_weights_says_why() -> None:
    with pytest.raises(RefusedError, match=r"^run sorting in memory has no best weights: .*; leave --best out"):
        chosen_weights(parsed(run_manifest(phase="Succeeded")), MemoryTarget(), to_sample=True, best=True)


WORSE = [
    pytest.param(0.6, 0.65, ["--best", "worse by more than noise"], id="worse by more than noise"),
    pytest.param(0.91, 0.94, ["--best"], id="worse, maybe by chance"),
    pytest.param(0.93, 0.96, [], id="as good"),
]


@pytest.mark.parametrize(("last", "high", "said"), WORSE)
def test_a_run_that_ends_lower_than_its_best_says_so(last: float, high: float, said: list[str]) -> None:
    metrics = {"heldOut": {"value": last, "high": high, "step": 40}}
    lines = list(best_line(parsed(run_manifest(phase="Succeeded", best=BEST, metrics=metrics))))
    assert len(lines) == len(said)
    assert all(word in line for word, line in zip(said, lines, strict=True))


def test_a_run_that_stopped_after_its_best_says_so() -> None:
    """Its last evaluation was of the best weights, and its checkpoint is a later one."""
    metrics = {"heldOut": {"value": BEST["heldOut"]["value"], "step": BEST["step"]}}
    checkpoint = {"step": BEST["step"] + 3, "statePath": "tinker://r/weights/3"}
    [line] = best_line(parsed(run_manifest(phase="Stopped", best=BEST, metrics=metrics, checkpoint=checkpoint)))
    assert f"step {BEST['step']}: held-out" in line


@pytest.mark.parametrize(
    ("spec", "option"),
    [
        pytest.param({}, ("--tokenizer", "bundled"), id="locked"),
        pytest.param({"runtime": "default"}, ("--tokenizer", "Qwen/Qwen3-8B"), id="locked by another"),
        pytest.param({"runtime": "gone"}, (), id="the runtime is gone"),
        pytest.param({"environment": "gone"}, (), id="the environment is gone"),
    ],
)
def test_the_runs_own_tokenizer(spec: dict[str, str], option: tuple[str, ...]) -> None:
    assert tokenizer_of(parsed(run_manifest(spec=spec)), MemoryTarget()) == option


@pytest.mark.parametrize(("runtime", "model"), [("tiny", "bundled"), ("default", "Qwen/Qwen3-8B")])
def test_the_base_model_is_what_was_trained(runtime: str, model: str) -> None:
    assert base_model(parsed(run_manifest(spec={"runtime": runtime})), MemoryTarget()) == model


def test_a_base_model_that_is_not_known_is_refused() -> None:
    with pytest.raises(RefusedError, match=r"base model of run sorting in memory is not known.*runtime 'gone'"):
        base_model(parsed(run_manifest(spec={"runtime": "gone"})), MemoryTarget())


def test_a_missing_key_is_named_with_its_secret(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TINKER_API_KEY", raising=False)
    run = parsed(run_manifest(spec={"runtime": "default"}))
    with pytest.raises(RefusedError, match=r"TINKER_API_KEY is not set.*Secret 'tinker', key 'TINKER_API_KEY'"):
        call_tinker_atropos(run, MemoryTarget(), ["sample"])
