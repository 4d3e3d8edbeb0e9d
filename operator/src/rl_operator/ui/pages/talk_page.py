"""Talk to a run's weights: a prompt for what was trained and, beside it, for the model as it was before."""

import asyncio
import math
import shlex
import threading
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from threading import BoundedSemaphore
from typing import Any, Final
from urllib.parse import parse_qsl

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from rl_operator.api.training_run import TrainingRun
from rl_operator.operator_errors import BusyError, InvalidError, OperatorError
from rl_operator.targets.runs.run_lookup import existing_run
from rl_operator.targets.runs.run_text import flags_for
from rl_operator.targets.runs.run_weights import asking_env_vars, completions, tokenizer_of
from rl_operator.targets.runs.trained_settings import TrainedSettings
from rl_operator.targets.target import Target
from rl_operator.ui.ui_context import asked as answer_of
from rl_operator.ui.ui_context import context_of, run_key, visitor_of
from rl_operator.ui.views.page_text import ShownText, figure_text, shown_lines
from rl_operator.ui.views.rollout_address import whole

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
        words = f"best, after step {best.step} (held-out {figure_text(best.held_out.value)})"
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
        """Options of `tinker-atropos sample`."""
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


def _temperature(given: str) -> float:
    value = float(given)
    if not (math.isfinite(value) and 0 <= value <= 2):
        raise ValueError
    return value


_FIELDS: Final[Mapping[str, tuple[Callable[[str], Any], str]]] = {
    "count": (whole(MOST_ANSWERS, least=1), f"an integer from 1 to {MOST_ANSWERS}"),
    "max_tokens": (whole(MOST_TOKENS, least=1), f"an integer from 1 to {MOST_TOKENS}"),
    "temperature": (_temperature, "a number from 0 to 2"),
    "seed": (whole(2**31 - 1), f"an integer from 0 to {2**31 - 1}"),
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


def answer_card(completion: Mapping[str, Any]) -> AnswerCard:
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


SECONDS: Final = 120.0
"""For an answer. The backend may have to load the weights first."""

TALKS: Final = BoundedSemaphore(2)
"""Prompts that are answered at once, each by two processes at most."""

MOST_BYTES: Final = 16 * LONGEST_PROMPT
"""Of a form: a character may take twelve in its encoding."""

LOOK_SECONDS: Final = 0.5
"""How soon it is seen that the visitor has left."""


@dataclass(frozen=True)
class TalkPartners:
    """Who answers for a run. `model`: the base model's name; empty: it is not known."""

    run: TrainingRun
    weights: tuple[KeptWeights, ...]
    model: str
    tokenizer: tuple[str, ...]


async def show_talk(request: Request) -> Response:
    partners = await answer_of(_partners, visitor_of(request).target, *run_key(request))
    first = partners.weights[0].name if partners.weights else ""
    return _page(request, partners, TalkForm(TalkAsked(weights=first, base=bool(partners.model))))


async def talk(request: Request) -> Response:
    """Answers are part of the page that is answered with: nothing of them is kept."""
    visitor = visitor_of(request)
    fields = await _fields(request)
    partners = await answer_of(_partners, visitor.target, *run_key(request))
    form = read_form(fields, [each.name for each in partners.weights])
    if form.asked.base and not partners.model:
        form.faults.append("the base model of this run is not known, so it cannot be asked")
    if form.faults or visitor.variables is None:
        return _page(request, partners, form, status=400 if form.faults else 200)
    if not TALKS.acquire(blocking=False):
        raise BusyError("other prompts are being answered: send it again in a few seconds")
    try:
        async with _until_left(request) as given_up:
            columns = await _columns(partners, visitor.target, visitor.variables, form.asked, given_up)
    finally:
        TALKS.release()
    return _page(request, partners, form, columns)


def _partners(target: Target, namespace: str, name: str) -> TalkPartners:
    run = TrainingRun.model_validate(existing_run(target, namespace, name))
    model = str(TrainedSettings(target).of(run).get("model", ""))
    return TalkPartners(run, kept_weights(run), model, tokenizer_of(run, target))


async def _fields(request: Request) -> dict[str, str]:
    """The fields of a form as browsers send it. Raises InvalidError if it is too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BYTES:
            raise InvalidError(f"the form has more than {MOST_BYTES:,} bytes: write a shorter prompt")
    return dict(parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True, max_num_fields=20))


@asynccontextmanager
async def _until_left(request: Request) -> AsyncIterator[Callable[[], bool]]:
    """Whether the visitor does not wait any more."""
    left = threading.Event()

    async def look() -> None:
        while not await request.is_disconnected():
            await asyncio.sleep(LOOK_SECONDS)
        left.set()

    looking = asyncio.create_task(look(), name="whether the visitor waits")
    try:
        yield left.is_set
    finally:
        left.set()  # also when this request is canceled: its thread must not go on
        looking.cancel()


async def _columns(
    partners: TalkPartners, target: Target, variables: Mapping[str, str], asked: TalkAsked, given_up: Callable[[], bool]
) -> list[TalkColumn]:
    """All are asked at once."""
    try:
        env_vars = await answer_of(asking_env_vars, partners.run, target, variables)
    except OperatorError as error:
        return [TalkColumn("Nobody could be asked", fault=str(error))]

    async def ask(who: str, options: Sequence[str]) -> TalkColumn:
        everything = (*options, *partners.tokenizer, *asked.options())
        try:
            found = await answer_of(completions, everything, asked.prompt, env_vars, SECONDS, given_up)
        except OperatorError as error:
            return TalkColumn(who, fault=str(error))
        return TalkColumn(who, tuple(map(answer_card, found)))

    of_weights = (each for each in partners.weights if each.name == asked.weights)
    calls = [ask(f"Weights: {each.words}", ("--model-path", each.path)) for each in of_weights]
    if asked.base:
        calls.append(ask(f"Base model: {partners.model}", ("--base-model", partners.model)))
    return list(await asyncio.gather(*calls))


def _page(
    request: Request, partners: TalkPartners, form: TalkForm, columns: Sequence[TalkColumn] = (), status: int = 200
) -> Response:
    visitor = visitor_of(request)
    flags = flags_for(visitor.target, partners.run.metadata.namespace)
    values: dict[str, Any] = {
        "title": f"Talk to {partners.run.metadata.name}",
        "run": partners.run,
        "weights": partners.weights,
        "model": partners.model,
        "asked": form.asked,
        "faults": form.faults,
        "columns": columns,
        "can_ask": visitor.variables is not None,
        "commands": commands(form.asked, partners.run, partners.weights, partners.model, flags),
        "longest_prompt": LONGEST_PROMPT,
        "most_answers": MOST_ANSWERS,
        "most_tokens": MOST_TOKENS,
    }
    return context_of(request).page(request, "talk.html", values, status)


_PATH: Final = "/runs/{namespace}/{name}/talk"
ROUTES: Final = [Route(_PATH, show_talk), Route(_PATH, talk, methods=["POST"])]
