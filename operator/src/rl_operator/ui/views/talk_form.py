"""What is asked of a run's weights, as a form sends it, and what there is to ask. Pure."""

import math
import shlex
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from rl_operator.api.training_run import TrainingRun
from rl_operator.ui.views.page_text import ShownText, figure_text, shown_lines

LONGEST_PROMPT: Final = 8_000
MOST_TOKENS: Final = 1_024
MOST_ANSWERS: Final = 4
LONGEST_ANSWER: Final = 20_000
"""Characters that are shown."""


@dataclass(frozen=True, slots=True)
class KeptWeights:
    """`name`: in the form. `option`: of `rlctl sample`, if it has one for them."""

    name: str
    words: str
    path: str
    expires: str | None
    option: str | None


def kept_weights(run: TrainingRun) -> tuple[KeptWeights, ...]:
    """Those that the run's status lists: the final ones first."""
    status, found = run.status, []
    if status.weights is not None:
        found.append(KeptWeights("final", "final", status.weights.sampler_path, status.weights.expires_at, ""))
    if (best := status.best) is not None:
        words = f"best, after step {best.step} (held-out {figure_text(best.eval_accuracy)})"
        found.append(KeptWeights("best", words, best.sampler_path, best.expires_at, "--best"))
    if (checkpoint := status.checkpoint) is not None:
        option = None if status.weights is not None else ""
        words = f"newest checkpoint, after step {checkpoint.step}"
        found.append(KeptWeights("checkpoint", words, checkpoint.state_path, checkpoint.expires_at, option))
    return tuple(found)


@dataclass(frozen=True, slots=True)
class TalkAsked:
    """`weights`: the name of KeptWeights; empty: only the base model."""

    prompt: str = ""
    weights: str = ""
    base: bool = True
    count: int = 1
    max_tokens: int = 256
    temperature: float = 1.0
    seed: int = 0
    raw: bool = False

    def options(self) -> tuple[str, ...]:
        """Of `tinker-atropos sample`."""
        sampling = ("--max-tokens", str(self.max_tokens), "--temperature", f"{self.temperature:g}")
        return ("-n", str(self.count), *sampling, "--seed", str(self.seed), *(("--raw",) if self.raw else ()))


@dataclass
class TalkForm:
    """`faults`: what cannot be done as it was asked, in sentences."""

    asked: TalkAsked
    faults: list[str] = field(default_factory=list)


def read_form(form: Mapping[str, str], names: Sequence[str]) -> TalkForm:
    """`names`: of the weights that there are."""
    values: dict[str, Any] = {}
    faults = []
    for name, (read, allowed) in _FIELDS.items():
        given = form.get(name, "")
        try:
            values[name] = read(given)
        except ValueError:
            faults.append(f"{name} is {given[:40]!r}: it must be {allowed}")
    weights = form.get("weights", "")
    if weights and weights not in names:
        faults.append(f"weights is {weights[:40]!r}: it must be one of {', '.join(names) or 'none, as there are none'}")
    base = "base" in form
    if not weights and not base:
        faults.append("nobody was asked: choose weights, the base model, or both")
    prompt = form.get("prompt", "").replace("\r\n", "\n")
    if not prompt.strip() or len(prompt) > LONGEST_PROMPT:
        faults.append(f"prompt has {len(prompt):,} characters: it must have 1 to {LONGEST_PROMPT:,}, not all blank")
    asked = TalkAsked(prompt=prompt[:LONGEST_PROMPT], weights=weights, base=base, raw="raw" in form, **values)
    return TalkForm(asked, faults)


def _whole(least: int, most: int) -> Callable[[str], int]:
    def read(given: str) -> int:
        if not (given.isascii() and given.isdecimal() and len(given) <= 10 and least <= int(given) <= most):
            raise ValueError
        return int(given)

    return read


def _temperature(given: str) -> float:
    value = float(given)
    if not (math.isfinite(value) and 0 <= value <= 2):
        raise ValueError
    return value


_FIELDS: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "count": (_whole(1, MOST_ANSWERS), f"an integer from 1 to {MOST_ANSWERS}"),
    "max_tokens": (_whole(1, MOST_TOKENS), f"an integer from 1 to {MOST_TOKENS}"),
    "temperature": (_temperature, "a number from 0 to 2"),
    "seed": (_whole(0, 2**31 - 1), f"an integer from 0 to {2**31 - 1}"),
}


@dataclass(frozen=True, slots=True)
class AnswerCard:
    text: ShownText
    tokens: int
    logprob: str
    stop_reason: str


@dataclass(frozen=True, slots=True)
class TalkColumn:
    """`who`: weights, or the base model. `fault`: why there are no answers."""

    who: str
    answers: tuple[AnswerCard, ...] = ()
    fault: str = ""


def column(who: str, completions: Sequence[Mapping[str, Any]]) -> TalkColumn:
    return TalkColumn(who, tuple(_card(each) for each in completions))


def _card(completion: Mapping[str, Any]) -> AnswerCard:
    return AnswerCard(
        text=shown_lines(str(completion["text"]), LONGEST_ANSWER),
        tokens=int(completion["tokens"]),
        logprob=figure_text(float(completion["logprob"])),
        stop_reason="its own end" if completion["stop_reason"] == "stop" else "the limit of tokens",
    )


def commands(asked: TalkAsked, run: TrainingRun, weights: Sequence[KeptWeights], model: str, flags: str) -> list[str]:
    """What does the same on a command line where TINKER_API_KEY is set."""
    prompt = shlex.quote(asked.prompt or "PROMPT")
    sampling = f"--max-tokens {asked.max_tokens} --temperature {asked.temperature:g} --seed {asked.seed}"
    raw = " --raw" if asked.raw else ""
    count = f" --count {asked.count}" if asked.count > 1 else ""
    options = [each.option for each in weights if asked.weights in ("", each.name) and each.option is not None]
    options += ["--base"] if asked.base and model else []
    return [
        f"rlctl sample {run.metadata.name}{flags} {option}{' ' if option else ''}{sampling}{count}{raw} -- {prompt}"
        for option in options
    ]
