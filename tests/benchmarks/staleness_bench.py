"""How stale rollouts may be: `python -m tests.benchmarks.staleness_bench [--all --out FILE]`.

The demo's model and task, trained in one process for 60 steps of 4 groups of 8. A sampler that is always faster than
training keeps as many batches ahead as it is allowed to, so that each batch is as stale as it may be. For each loss,
guard, staleness, learning rate and seed: held-out accuracy (250 items, 2 samples each, at temperature 1) after the last
step. Each result is a line of FILE; those that are there already are not computed again. A case takes 5 to 20 s of CPU.

Guards: `none`; `min_ess`, as `trainer.min_ess` does it; `shrink`, steps by sqrt(ESS) (VCPO, arXiv:2602.17616); `dppo`
(arXiv:2602.04879) and `icepop` (Ring-1T, arXiv:2510.18855), trust regions that take away the advantage of single
tokens; and pairs of them. The trainer has the first two.

Gaps: `none`; `rounded`, a sampler whose weights have 2 bits of mantissa; `cold`, one at temperature 0.7. Held-out
accuracy is always of the trainer's own weights, at temperature 1.

`time` is by a simulated clock, in which a step takes as long as sampling a batch does in the mean, and a batch begins
when the weights that sample it are there: 1 if both are always busy, 2 if one always waits for the other. `time 8` is
the same of a sampler that is always 8 steps ahead and makes batches as uneven as these.
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import time
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any, get_args

import numpy as np
import torch

from rl_contract.bundled import bundled_model_folder
from rl_contract.policy_losses import POLICY_LOSSES, LossName
from rl_contract.trainer_settings import TrainerSettings
from tinker_atropos.chat.sampling import Bools, Floats
from tinker_atropos.environments.bundled import digits
from tinker_atropos.trainer.data.datums import Datum, build_batch, log_ratios, loss_config, policy_steps, trained_tokens
from tinker_atropos.trainer.data.groups import Group, TokenSequence
from tinker_atropos.trainer.update.ess_steering import AllowedStaleness, effective_sample_size, ess_losses
from tinker_atropos.trainer.update.policy_update import at_rest
from tinker_service.model.adamw import AdamSettings
from tinker_service.model.engine import Engine
from tinker_service.model.lora import LoraAdapter, LoraSpec
from tinker_service.model.sampling.sample_jobs import SampleJob, SamplingRequest
from tinker_service.model.training import Trainee, TrainingDatum, forward_backward, optim_step

STEPS, GROUPS, GROUP_SIZE, RANK, ANSWER_TOKENS = 60, 4, 8, 16, 16
HELD_OUT, SAMPLES = 250, 2
TRIES = 12  # at a group of mixed rewards, per batch
BOUNDS = (0, 1, 2, 4, 8)
BARREN = 4  # batches without one in a row: the policy has collapsed, or is perfect

Scored = tuple[tuple[int, ...], Sequence[int], Sequence[float], float]
"""A sample: prompt, tokens, logprobs, reward."""


@dataclass(frozen=True)
class Guard:
    region: str | None = None
    min_ess: float = 0.0
    shrink: bool = False


MIN_ESS = TrainerSettings().min_ess
GUARDS = {
    "none": Guard(),
    "min_ess": Guard(min_ess=MIN_ESS),
    "min_ess 0.9": Guard(min_ess=0.9),
    "shrink": Guard(shrink=True),
    "min_ess+shrink": Guard(min_ess=MIN_ESS, shrink=True),
    "dppo": Guard("dppo"),
    "icepop": Guard("icepop"),
    "min_ess+dppo": Guard("dppo", min_ess=MIN_ESS),
}


@dataclass(frozen=True)
class Case:
    loss: LossName
    guard: str
    stale: int
    learning_rate: float
    seed: int
    gap: str = "none"


@cache
def engine(bits: int = 0) -> Engine:
    """`bits` of mantissa of the base model's weights; 0: all."""
    torch.set_num_threads(1)
    loaded = Engine("bundled", bundled_model_folder(), "cpu")
    loaded.use_threads(1)
    for weight in loaded.model.model.parameters() if bits else ():
        weight.data.copy_(rounded(weight.data, bits))
    return loaded


def rounded(weights: torch.Tensor, bits: int) -> torch.Tensor:
    mantissa, exponent = torch.frexp(weights)
    return torch.ldexp(torch.round(mantissa * 2**bits) / 2**bits, exponent)


@dataclass(frozen=True)
class Gap:
    """How the sampler is another policy than the trainer, of the same weights."""

    bits: int = 0
    temperature: float = 1.0


GAPS = {"none": Gap(), "rounded": Gap(bits=2), "cold": Gap(temperature=0.7)}


@cache
def prompt_tokens(item: Any) -> tuple[int, ...]:
    tokenizer: Any = engine().tokenizer
    message = [{"role": "user", "content": digits.prompt(item)}]
    text = tokenizer.apply_chat_template(message, tokenize=False, add_generation_prompt=True)
    return tuple(tokenizer.encode(text, add_special_tokens=False))


def sampled(
    adapter: LoraAdapter, items: Sequence[Any], n: int, seed: int, gap: Gap = GAPS["none"]
) -> list[list[Scored]]:
    """Of each item n samples."""
    tokenizer: Any = engine().tokenizer
    batch = engine(gap.bits).new_batch()
    stops = engine().stop_tokens
    jobs = [
        SampleJob(
            adapter,
            SamplingRequest(
                prompt_tokens(item), n, ANSWER_TOKENS, gap.temperature, seed=seed * 100_003 + at, stop_tokens=stops
            ),
        )
        for at, item in enumerate(items)
    ]
    for job in jobs:
        batch.add(job)
    while batch.jobs:
        batch.step()
    found: list[list[Scored]] = []
    for item, job in zip(items, jobs, strict=True):
        texts = [tokenizer.decode(each.tokens, skip_special_tokens=True) for each in job.continuations]
        rewards = [float(text == digits.answer(item)) for text in texts]
        found.append(
            [(prompt_tokens(item), each.tokens, each.logprobs, reward)
             for each, reward in zip(job.continuations, rewards, strict=True)]
        )  # fmt: skip
    return found


def accuracy(adapter: LoraAdapter, seed: int) -> float:
    items = digits.split().held_out[:HELD_OUT]
    return float(np.mean([row[3] for rows in sampled(adapter, items, SAMPLES, seed) for row in rows]))


def group_of(rows: Sequence[Scored], step: int) -> Group:
    sequences = []
    for prompt, tokens, logprobs, reward in rows:
        ahead = len(prompt)
        generated = np.arange(ahead + len(tokens)) >= ahead
        sequences.append(
            TokenSequence(
                tokens_T=np.array([*prompt, *tokens], np.int64),
                generated_T=generated,
                logprobs_T=np.array([*[np.nan] * ahead, *logprobs]),
                policy_step_T=np.where(generated, step, -1),
                score=reward,
            )
        )
    return Group(tuple(sequences), np.arange(len(rows)))


class Sampler:
    """Keeps `allowed + 1` batches ahead, each sampled by the newest weights."""

    def __init__(self, seed: int, gap: Gap) -> None:
        self.made: list[tuple[int, int, bool]] = []
        """Of each batch: the steps before it was sampled, its tokens, and whether it has groups."""
        self._seed, self._gap, self._barren = seed, gap, 0
        self._tries = 1
        self._queue: list[list[Group]] = []

    def next_batch(self, adapter: LoraAdapter, step: int, allowed: int) -> list[Group] | None:
        """None: no group of mixed rewards comes any more."""
        while len(self._queue) <= allowed and self._barren < BARREN:
            groups = self._groups(adapter, step)
            self._barren = 0 if groups else self._barren + 1
            if groups:
                self._queue.append(groups)
        return self._queue.pop(0) if self._queue else None

    @property
    def tokens(self) -> int:
        return sum(tokens for _, tokens, _ in self.made)

    def _groups(self, adapter: LoraAdapter, step: int) -> list[Group]:
        found: list[Group] = []
        self.made.append((step, 0, False))
        tries = self._tried(adapter)
        for used, rows_of_items in enumerate(tries, 1):
            self._tries = used
            found += [group_of(rows, step) for rows in rows_of_items if len({row[3] for row in rows}) > 1]
            tokens = sum(len(row[1]) for rows in rows_of_items for row in rows)
            self.made[-1] = (step, self.made[-1][1] + tokens, bool(found))
            if len(found) >= GROUPS:
                break
        return found[:GROUPS]

    def _tried(self, adapter: LoraAdapter) -> Iterator[list[list[Scored]]]:
        """The items of each try. As many as the batch before needed are sampled at once, which is faster; what is not
        needed of them is as if it had not been.
        """
        training = digits.split().training
        rng = np.random.default_rng([self._seed, len(self.made)])
        drawn = rng.integers(0, len(training), (TRIES, GROUPS))
        ahead = self._tries
        for start in range(0, TRIES, ahead):
            items = [training[at] for at in drawn[start : start + ahead].flat]
            seed = (self._seed * 1_000 + len(self.made)) * 64 + start
            rows = sampled(adapter, items, GROUP_SIZE, seed, self._gap)
            yield from (rows[at : at + GROUPS] for at in range(0, len(rows), GROUPS))


def time_taken(made: Sequence[tuple[int, int, bool]], steps: int) -> float:
    """By the simulated clock. A batch without groups is sampled, and not trained."""
    training = sum(tokens for _, tokens, _ in made) / max(steps, 1)
    sampled_at, trained_at = 0.0, [0.0]
    for step, tokens, trainable in made:
        sampled_at = max(sampled_at, trained_at[min(step, len(trained_at) - 1)]) + tokens
        if trainable and len(trained_at) <= steps:
            trained_at.append(max(trained_at[-1], sampled_at) + training)
    return trained_at[-1] / (training * max(steps, 1))


def within_bound(made: Sequence[tuple[int, int, bool]], bound: int) -> list[tuple[int, int, bool]]:
    """The same batches, each sampled `bound` steps ahead. One without groups belongs to the next."""
    found, waiting = list[tuple[int, int, bool]](), 0
    for _, tokens, trainable in made:
        waiting += tokens
        if trainable:
            found.append((max(len(found) - bound, 0), waiting, True))
            waiting = 0
    return found[:STEPS]


def outside(datum: Datum, logprobs: Floats, region: str | None) -> Bools:
    """The tokens that a region masks, with q as sampled and p now. dppo: A > 0 and p - q > 0.2, or A < 0 and
    q - p > 0.2; icepop: p / q is not in [0.5, 5].
    """
    p, q = np.exp(logprobs), np.exp(datum.logprobs_T)
    moved = np.sign(datum.advantages_T) * (p - q) > 0.2
    apart = (p / q < 0.5) | (p / q > 5.0)
    found: Bools = datum.trained_T & (datum.advantages_T != 0) & {None: False, "dppo": moved, "icepop": apart}[region]
    return found


def sent(datum: Datum, loss: LossName) -> TrainingDatum:
    inputs = {"target_tokens": datum.target_T, "logprobs": datum.logprobs_T, "advantages": datum.advantages_T}
    if POLICY_LOSSES[loss].marks_sequence:
        inputs["sequence_ratio_mask"] = datum.trained_T.astype(np.float64)
    return TrainingDatum(datum.input_T, inputs)


class Trainer:
    def __init__(self, case: Case) -> None:
        self.case, self.guard = case, GUARDS[case.guard]
        self.config = TrainerSettings(loss=case.loss, max_staleness=case.stale)
        self.trainee = Trainee(engine().model.new_adapter(LoraSpec(RANK, case.seed)))
        self.allowed = AllowedStaleness(case.stale, self.guard.min_ess)
        self.ess: list[float] = []
        self.ages: list[float] = []
        self.masked: list[float] = []
        self.fresh: list[float] = []

    def train(self, groups: list[Group], step: int) -> None:
        """As `update_policy` does it, which needs a service."""
        batch = build_batch(groups, self.config)
        datums, region = batch.datums, self.guard.region
        anchored = POLICY_LOSSES[self.case.loss].pulls_back
        if region or anchored:
            before = self._pass(datums, backward=False, loss="importance_sampling")
            masks = [outside(datum, row, region) for datum, row in zip(datums, before, strict=True)]
            self.masked.append(float(sum(mask.sum() for mask in masks) / trained_tokens(datums)))
            datums = [
                replace(datum, advantages_T=np.where(mask, 0.0, datum.advantages_T))
                for datum, mask in zip(datums, masks, strict=True)
            ]
            datums = at_rest(datums, before) if anchored else datums
        before = self._pass(datums, backward=True, loss=self.case.loss)
        ratios, fresh = log_ratios(datums, before), policy_steps(datums) == step
        ess = 1.0 if fresh.all() else effective_sample_size(ratios[~fresh])
        scale = math.sqrt(ess) if self.guard.shrink else 1.0
        optim_step(self.trainee, AdamSettings(self.case.learning_rate * scale, 0.9, 0.95, 1e-8, 0.0, 0.0))
        losses = ess_losses(batch, before, step)
        self.allowed.trained(losses)
        self.ess.append(ess)
        self.ages.append(losses.age)
        if fresh.any():
            self.fresh.append(effective_sample_size(ratios[fresh]))

    def _pass(self, datums: Sequence[Datum], *, backward: bool, loss: LossName) -> list[Floats]:
        config = loss_config(self.config) or {} if backward else {}
        answer = forward_backward(
            engine().model, self.trainee, [sent(datum, loss) for datum in datums],
            loss_name=loss, loss_config=config, backward=backward,
        )  # fmt: skip
        return [np.asarray(row, np.float64) for row in answer.logprobs]


def run(case: Case) -> dict[str, Any]:
    began = time.process_time()
    trainer, sampler = Trainer(case), Sampler(case.seed, GAPS[case.gap])
    for step in range(STEPS):
        groups = sampler.next_batch(trainer.trainee.adapter.snapshot(), step, trainer.allowed.steps)
        if groups is None:
            break
        trainer.train(groups, step)
    return {
        **asdict(case),
        "held_out": round(accuracy(trainer.trainee.adapter, case.seed + 99_991), 4),
        "ess": round(float(np.mean(trainer.ess)), 3),
        "fresh": round(float(np.mean(trainer.fresh)), 3),
        "time": round(time_taken(sampler.made, len(trainer.ess)), 3),
        **{
            f"time {bound}": round(time_taken(made, len(made)), 3)
            for bound in BOUNDS
            if (made := within_bound(sampler.made, bound))
        },
        "age": round(float(np.mean(trainer.ages)), 2),
        "masked": round(float(np.mean(trainer.masked or [0.0])), 4),
        "sampled": sampler.tokens,
        "cpu": round(time.process_time() - began, 1),
    }


MEANS = ("age", "time", *(f"time {bound}" for bound in BOUNDS), "fresh", "masked")
"""What the table has the mean of, over losses and seeds."""


def results(path: Path | None) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path and path.exists() else []


def table(rows: Sequence[dict[str, Any]]) -> Iterator[str]:
    """Markdown: the mean and the lowest of the seeds, and how many they are, by guard and loss."""
    found: dict[tuple[str, float, int, str], dict[str, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        found[row["gap"], row["learning_rate"], row["stale"], row["guard"]][row["loss"]].append(row)
    losses = [loss for loss in POLICY_LOSSES if any(loss in by_loss for by_loss in found.values())]
    yield f"| gap | learning rate | staleness | guard | {' | '.join(losses)} | {' | '.join(MEANS)} |"
    yield "|" + "---|" * (4 + len(losses) + len(MEANS))
    for case, by_loss in sorted(found.items(), key=lambda each: (*each[0][:3], list(GUARDS).index(each[0][3]))):
        ends = {loss: [row["held_out"] for row in by_loss[loss]] for loss in losses}
        cells = [f"{np.mean(end):.3f} ({min(end):.3f}, n {len(end)})" if end else "" for end in ends.values()]
        means = [f"{np.mean([row[name] for each in by_loss.values() for row in each]):.3g}" for name in MEANS]
        yield f"| {' | '.join(map(str, case))} | {' | '.join(cells + means)} |"


def compute(cases: Sequence[Case], workers: int, path: Path | None) -> Iterator[dict[str, Any]]:
    with multiprocessing.get_context("spawn").Pool(workers) as pool:
        for row in pool.imap_unordered(run, cases):
            if path:
                with path.open("a") as out:
                    out.write(json.dumps(row) + "\n")
            yield row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="a file with results, those of earlier calls included")
    parser.add_argument("--all", action="store_true", help="the whole table: 5 seeds of 170 cases")
    parser.add_argument("--losses", nargs="+", choices=get_args(LossName), default=get_args(LossName))
    parser.add_argument("--guards", nargs="+", choices=list(GUARDS), default=["none", "min_ess"])
    parser.add_argument("--gaps", nargs="+", choices=list(GAPS), default=["none"])
    parser.add_argument("--stale", nargs="+", type=int, default=[8])
    parser.add_argument("--learning-rates", nargs="+", type=float, default=[3e-3])
    parser.add_argument("--seeds", nargs="+", type=int, default=[0])
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    parser.add_argument("--show", action="store_true", help="only print the table of what is in FILE")
    options = parser.parse_args()
    if options.all:
        options.guards, options.seeds = ["none", "dppo", "icepop", "min_ess"], range(5)
        options.stale, options.learning_rates = [0, 2, 4, 8, 16], [1e-3, 3e-3]
    axes = itertools.product(
        options.seeds, options.stale, options.learning_rates, options.guards, options.losses, options.gaps
    )
    wanted = [
        Case(loss, guard, stale, rate, seed, gap)
        for seed, stale, rate, guard, loss, gap in axes
        if stale or gap != "none" or guard == "none"
    ]  # on policy, a guard does nothing
    rows = results(options.out)
    known = {Case(**{name: row[name] for name in Case.__dataclass_fields__}) for row in rows}
    missing = [] if options.show else [case for case in wanted if case not in known]
    rows += compute(missing, options.workers, options.out)
    print("\n".join(table(rows)))


if __name__ == "__main__":
    main()
