"""The CRDs' own rules on whole objects, in CEL.

The API server evaluates each rule of a CRD at each write, also of the status, and that costs it about as much for a
simple rule as for a long one. So what a run must fulfill is two rules, and each has a message for each of its parts.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from generate.cel import Cel, literal
from generate.structural import Schema
from rl_operator.api.hints import FROZEN
from rl_operator.api.names import MAX_RUN_NAME_LENGTH, RUN_NAME_PATTERN
from rl_operator.api.refusal import Refusal
from rl_operator.api.training_run import TYPED_FROZEN_FIELDS

_STARTED: Final = "has(oldSelf.status) && has(oldSelf.status.startTime)"
_OVER: Final = "has(oldSelf.status) && has(oldSelf.status.completionTime)"
_SAME_PHASE: Final = "has(self.status.phase) && self.status.phase == oldSelf.status.phase"


@dataclass(frozen=True)
class Part:
    """What must hold, and what to say if it does not."""

    holds: Cel
    message: str


@dataclass(frozen=True)
class Rule:
    """All of its parts must hold `when` that is so."""

    parts: tuple[Part, ...]
    when: Cel = "true"

    def to_wire(self) -> Schema:
        """The message is put together only when a part does not hold."""
        guard = "" if self.when == "true" else f"!({self.when}) || "
        rule = " && ".join(f"({part.holds})" for part in self.parts)
        if len(self.parts) == 1:
            return {"rule": f"{guard}{self.parts[0].holds}", "message": self.parts[0].message}
        said = " + ".join(f"({part.holds} ? '' : {literal(part.message + '. ')})" for part in self.parts)
        return {"rule": f"{guard}({rule})", "messageExpression": said}


def sentences(rules: Sequence[Rule]) -> list[str]:
    return [part.message for rule in rules for part in rule.parts]


def _frozen(field: str) -> Part:
    # Not `self.spec.?field == oldSelf.spec.?field`: its estimated cost exceeds the API server's budget.
    new, old = f"self.spec.{field}", f"oldSelf.spec.{field}"
    sentence = Refusal(code="FrozenField", field=f"spec.{field}", hint=FROZEN).sentence
    return Part(f"has({new}) == has({old}) && (!has({new}) || {new} == {old})", sentence)


_NAME: Final = Rule(
    (
        Part(
            f"self.metadata.name.size() <= {MAX_RUN_NAME_LENGTH}",
            f"the name may have at most {MAX_RUN_NAME_LENGTH} characters: it becomes part of pod names",
        ),
        Part(
            f"self.metadata.name.matches('{RUN_NAME_PATTERN}')",
            "the name may hold a-z, 0-9 and '-', must begin with a letter and must not end with '-'",
        ),
    )
)
_SINCE_START: Final = Rule(
    (
        *map(_frozen, TYPED_FROZEN_FIELDS),
        Part(
            "has(self.status.startTime) && self.status.startTime == oldSelf.status.startTime",
            "status.startTime is set once and stays",
        ),
    ),
    when=_STARTED,
)
_AT_END: Final = Rule(
    (Part(f"has(self.status.completionTime) && {_SAME_PHASE}", "status.phase: a run that is over stays over"),),
    when=_OVER,
)

RUN_RULES: Final = (_NAME, _SINCE_START, _AT_END)

RUNTIME_RULES: Final = (
    Rule(
        (
            Part(
                "self.metadata.name.size() <= 63",
                "the name may have at most 63 characters: it becomes a label of the catalog",
            ),
        )
    ),
)
