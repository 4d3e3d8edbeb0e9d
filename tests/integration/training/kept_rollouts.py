"""What a run kept of its rollouts, against what it reported otherwise."""

import io
import json
from pathlib import Path
from statistics import fmean
from typing import Any

import zstandard

Record = dict[str, Any]


def records(path: Path) -> list[Record]:
    with path.open("rb") as file:
        stream = zstandard.ZstdDecompressor().stream_reader(file, read_across_frames=True)
        return [json.loads(line) for line in io.TextIOWrapper(stream, encoding="utf-8")]


def trained_items(folder: Path, steps: int) -> list[str]:
    """The item of each group that went into the weights after `steps` steps, as JSON: of a step that was trained by
    several attempts, the last one's.
    """
    newest = [max(folder.rglob(f"{step:06d}-*.jsonl.zst")) for step in range(1, steps + 1)]
    kept = (one for file in newest for one in records(file))
    return [json.dumps(one["item"]) for one in kept if one.get("fate") in ("trained", "no_advantage")]


def check_kept_rollouts(folder: Path, steps: int, accuracies: dict[int, float]) -> None:
    """All steps of one attempt are there and agree with their metrics; `accuracies` are those of the evaluations."""
    kept = {step: records(folder / f"{step:06d}-1.jsonl.zst") for step in range(steps + 1)}
    for step in range(1, steps + 1):
        _check_trained(step, kept[step])
    for step, accuracy in accuracies.items():
        evaluated = [one for one in kept[step] if one.get("fate") == "evaluated"]
        assert {(one["step"], one["environment"], *one["sets"]) for one in evaluated} == {(step, 0, "main")}
        assert [one["group"] for one in evaluated] == list(range(len(evaluated)))
        sampled = [one for one in evaluated if "greedy" not in one]
        assert fmean(rewards(sampled)) == accuracy
        assert fmean(each["worth"] for one in sampled for each in one["rollouts"]) == accuracy
        (result,) = (one for one in kept[step] if one["record"] == "evaluation")
        told = result["metrics"]
        assert told["eval/percent_correct"] == accuracy
        assert told["eval/pass_at_2"] == fmean(max(rewards([one])) for one in sampled)
        _check_greedy([one for one in evaluated if "greedy" in one], told.get("eval/greedy_percent_correct"))
    metrics = records(folder / "metrics-1.jsonl.zst")
    assert [one["step"] for one in metrics if one["record"] == "step"] == list(range(1, steps + 1))
    assert [one["step"] for one in metrics if one["record"] == "evaluation"] == sorted(accuracies)


def _check_greedy(greedy: list[Record], accuracy: float | None) -> None:
    """One answer of each item, all of whose probability the sampler gave to it: that is what temperature 0 is."""
    assert [len(one["rollouts"]) for one in greedy] == [1] * len(greedy)
    assert accuracy == (fmean(rewards(greedy)) if greedy else None)
    for sequence in (one for group in greedy for rollout in group["rollouts"] for one in rollout["sequences"]):
        assert {logprob for logprob in sequence["logprobs"] if logprob is not None} == {0.0}


def _check_trained(step: int, kept: list[Record]) -> None:
    (head,) = (one for one in kept if one["record"] == "step")
    groups = [one for one in kept if one.get("fate") in ("trained", "no_advantage")]
    metrics = head["metrics"]
    assert (head["step"], head["attempt"]) == (step, 1)
    assert abs(fmean(rewards(groups)) - metrics["reward/mean"]) < 1e-9
    assert head["tokens"].get("trained", 0) == metrics["batch/trained_tokens"]
    trained = 0
    for sequence in (one for group in groups for rollout in group["rollouts"] for one in rollout["sequences"]):
        assert len(sequence["tokens"]) == len(sequence["pieces"]) == sequence["fates"][-1][1]
        trained += sum(end - start for start, end, fate in sequence["fates"] if fate == "trained")
        assert all(start <= policy_step < step for start, _, policy_step in sequence["policy_steps"] if not start)
    assert trained == metrics["batch/trained_tokens"]
    assert all(group["prompt"]["tokens"] and group["item"] and group["sampling"] for group in groups)


def rewards(groups: list[Record]) -> list[float]:
    return [rollout["reward"] for group in groups for rollout in group["rollouts"]]
