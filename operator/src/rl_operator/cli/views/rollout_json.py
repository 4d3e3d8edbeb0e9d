"""A step's rollouts for programs: the records as they are in the files, and what rlctl made of them."""

import json
from typing import Any

from rl_operator.rollouts.rollout_query import RankedGroup, StepAnswer
from rl_operator.rollouts.step_reading import Reasons
from rl_operator.rollouts.step_table import StepRow


def answer_object(answer: StepAnswer) -> dict[str, Any]:
    summary = answer.summary
    ledger = summary.ledger
    return {
        "step": summary.step,
        "attempt": summary.attempt,
        "trained": summary.record is not None,
        "alsoTrainedBy": sorted(summary.older),
        "reward": summary.reward,
        "evaluation": _plain(summary.evaluation).get("metrics", {}) if summary.evaluation else {},
        "evaluatedReward": summary.evaluated.value,
        "metrics": _plain(summary.record).get("metrics", {}) if summary.record else {},
        "tokens": dict(ledger.tokens),
        "balances": ledger.balances,
        "groupsByFate": dict(summary.groups),
        "dropped": _reasons(summary.dropped),
        "lost": _reasons(summary.lost),
        "notes": list(summary.notes()),
        "found": answer.found,
        "groups": [_group(chosen) for chosen in answer.groups],
        "lostRecords": [_plain(record) for _, record in answer.lost],
    }


def _group(chosen: RankedGroup) -> dict[str, Any]:
    """With the rollouts that match, in their order."""
    group = _plain(chosen.record)
    return group | {"rollouts": [group["rollouts"][number] for number in chosen.rollouts]}


def _plain(record: Any) -> dict[str, Any]:
    """As JSON: no NaN and no infinity."""
    found: dict[str, Any] = json.loads(record.model_dump_json(exclude_unset=True))
    return found


def _reasons(reasons: Reasons) -> list[dict[str, Any]]:
    return [{**why._asdict(), "count": count, "tokens": reasons.tokens[why]} for why, count in reasons.counts.items()]


def row_object(row: StepRow) -> dict[str, Any]:
    return {
        "step": row.step,
        "attempts": list(row.attempts),
        "reward": row.reward,
        "counts": dict(row.counts),
        "bytes": row.bytes,
        "faults": row.faults,
    }
