"""The stages of a check: an environment is imported, built and set up as the runner does it, makes its groups, through
the methods and the patches of a run, is asked for its grader's judgment and its held-out items, and is closed. Imports
atroposlib.
"""

import asyncio
import inspect
import time
import uuid
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from rl_contract.bundled import BUNDLED
from tinker_atropos.chat.tokenizer import Tokenizer
from tinker_atropos.check.group_judge import GroupJudge
from tinker_atropos.check.observations import GradedKind, HeldOutOverlap, Observations
from tinker_atropos.check.scripted_policy import RequestLog, ScriptedPolicy, ScriptedSampler
from tinker_atropos.config.run_config import RunConfig, parse_config
from tinker_atropos.environments.base import SampledEnvironment, draws_items
from tinker_atropos.environments.items.grader_check import ITEMS, grade
from tinker_atropos.environments.items.item_order import LeftOut
from tinker_atropos.environments.items.item_warnings import warnings_about_items
from tinker_atropos.environments.rollout.failures import describe
from tinker_atropos.environments.runner.atropos_patches import AtroposPatches, groups_of
from tinker_atropos.environments.runner.loading.environment_config import Wiring, wired_to_run
from tinker_atropos.environments.runner.loading.environment_files import LocatedEnvironment
from tinker_atropos.environments.runner.loading.environment_loader import LoadedEnvironment, load_environment
from tinker_atropos.environments.runner.policy_requests import kept_connections
from tinker_atropos.environments.trial.provider import Provider, Wishes
from tinker_atropos.environments.trial.provider_server import connect, retry_once
from tinker_atropos.errors import ConfigError, EnvironmentLostError, RunError
from tinker_atropos.settings import Settings

WRONG_ANSWERS: Final = ("this is not the answer",)
"""Of an environment that names none."""


class NoItemError(Exception):
    """The environment has no item to give."""


class GroupCollection:
    """What one environment makes of its items; groups are judged in the place of being sent."""

    def __init__(
        self, env: Any, source: Path, seen: Observations, judge: GroupJudge, sampler: ScriptedSampler | None
    ) -> None:
        self._env, self._source, self._seen, self._judge, self._sampler = env, source, seen, judge, sampler
        self._sent: list[Any] = []
        self._given_up: EnvironmentLostError | None = None
        AtroposPatches(env, source, seen.counters, self, self._give_up)

    async def collect(self, items: int) -> None:
        """The groups of so many items. Stops early if the environment has no more, or gives up."""
        for _ in range(items):
            item = None
            with self._seen.during("items", self.explain):
                item = await self._next_item()
            if item is not None:
                with self._seen.during("rollouts", self.explain):
                    await self._roll_out(item)
            if self._seen.broken:
                return

    async def send(self, _env: Any, scored: Any) -> None:
        """In the place of the trajectory API (see AtroposPatches.send). BaseEnv would log and forget what this raises:
        groups are judged later.
        """
        self._sent += groups_of(scored)

    async def _next_item(self) -> Any:
        item = self._env.get_next_item()
        if inspect.isawaitable(item):
            item = await item
        if item is None:
            raise NoItemError("get_next_item gave None: after the last item it must begin again with the first")
        return item

    async def _roll_out(self, item: Any) -> None:
        """As BaseEnv.add_train_workers starts it."""
        self._expect(item)
        number, begun = uuid.uuid4(), time.monotonic()
        self._env.running_items[number] = {"item": item, "worker": None, "start_time": time.time()}
        await self._env.handle_env(number)
        if self._given_up:
            raise self._given_up
        self._seen.item_seconds.append(time.monotonic() - begun)
        sent, self._sent = self._sent, []
        self._seen.counters.kept += len(sent)
        self._seen.groups += [await self._judge.judge(group) for group in sent]

    def _expect(self, item: Any) -> None:
        """Tell the sampler what would be right."""
        if self._sampler is None:
            return
        if not isinstance(self._env, SampledEnvironment):
            self._sampler.expect(None, WRONG_ANSWERS)
            return
        gold = self._env.gold_answer(item)
        self._seen.knows_gold = self._seen.knows_gold or gold is not None
        self._sampler.expect(gold, self._env.wrong_answers(item))

    def _give_up(self, error: EnvironmentLostError) -> None:
        self._given_up = error

    def explain(self, error: BaseException) -> str:
        """One sentence, with the line in the environment's file."""
        if isinstance(error, EnvironmentLostError | NoItemError):
            return str(error)
        return describe(error, self._source)


COMPARED_ITEMS: Final = 10_000
COMPARED_SECONDS: Final = 5.0
"""How many items, and for how long, training and held-out prompts are compared."""

CLOSE_SECONDS: Final = 10.0
REQUEST_SECONDS: Final = 60.0
"""How long one answer of a provider may take."""

FREELY_WIRED: Final = {"ensure_scores_are_not_same": False, "data_path_to_save_groups": None}
"""Groups of equal rewards are to be judged, too, and nothing is written."""


@dataclass
class EnvironmentCheck:
    """`run` None: the environment's own config, with the bundled tokenizer. `provider` None: scripted answers."""

    located: LocatedEnvironment
    run: RunConfig | None
    provider: Provider | None
    seen: Observations

    async def check(self) -> None:
        """Raises BrokenOffError if it cannot go on, ConfigError if the config file is wrong."""
        with self.seen.during("import", self._explain, fatal=True):
            loaded = load_environment(self.located)
        self.seen.class_name = loaded.environment_class.__name__
        run = self.run or self._own_config(loaded)
        tokenizer = Tokenizer(run.env.tokenizer_name)
        retry_once()
        if self.provider is not None:
            judge = GroupJudge(tokenizer, run.tinker, None)
            await self._stages(loaded, run, Wiring(FREELY_WIRED, self.provider.server_fields()), judge, None)
            return
        policy = ScriptedPolicy(tokenizer, self.seen.seed)
        app = RequestLog(
            policy.app(tokenizer, run.env.max_token_length, run.base_model),
            self.seen.requests,
            self.seen.requests_refused,
        )
        with policy.served(app):
            wiring = wired_to_run(run, Settings(inference_url=policy.url))
            wiring = Wiring(FREELY_WIRED, {**wiring.server, "health_check": False})  # it is up, and a check costs 1 s
            await self._stages(loaded, run, wiring, GroupJudge(tokenizer, run.tinker, policy), policy)

    async def _stages(
        self,
        loaded: LoadedEnvironment,
        run: RunConfig,
        wiring: Wiring,
        judge: GroupJudge,
        policy: ScriptedPolicy | None,
    ) -> None:
        env = self._build(loaded, run, wiring)
        async with kept_connections(env.server.servers):
            if self.provider is not None:
                connect(env, Wishes(), REQUEST_SECONDS)
            with self.seen.during("setup", self._explain, fatal=True):
                await env.setup()
                if isinstance(env, SampledEnvironment):
                    env.check_config()
                self._look_at_items(env, run.env.batch_size // env.config.group_size)
            try:
                collection = GroupCollection(
                    env, self.located.file, self.seen, judge, None if policy is None else policy.sampler
                )
                await collection.collect(self.seen.groups_asked)
                if isinstance(env, SampledEnvironment):
                    await self._grade(env)
                    with self.seen.during("held_out", self._explain):
                        self.seen.held_out = await held_out_overlap(env)
            finally:
                await self._close(env)
        self.seen.stage = "done"

    def _own_config(self, loaded: LoadedEnvironment) -> RunConfig:
        """The author's values of what the run's processes must agree on."""
        with self.seen.during("setup", self._explain, fatal=True):
            own, _ = loaded.config_init()
            whole_groups = own.batch_size > 0 < own.group_size and own.batch_size % own.group_size == 0
            shared = {
                "total_steps": own.total_steps,
                "group_size": own.group_size,
                "batch_size": own.batch_size if whole_groups else own.group_size,
                "max_token_length": own.max_token_length,
                "tokenizer_name": BUNDLED,
            }
            return parse_config({"env": shared})
        raise AssertionError("a fatal stage raises")

    def _build(self, loaded: LoadedEnvironment, run: RunConfig, wiring: Wiring) -> Any:
        of_file = () if self.run is None else (ConfigError,)  # without a file the values are the author's own
        with self.seen.during("setup", self._explain, fatal=True, through=of_file):
            env = loaded.build(run, wiring)
        env.max_token_len = run.tinker.max_token_trainer_length  # what the trainer registers with
        self.seen.group_size, self.seen.max_token_length = env.config.group_size, env.config.max_token_length
        self.seen.knows_answers = isinstance(env, SampledEnvironment)
        self.seen.longest_trained, self.seen.tokenizer = env.max_token_len, run.env.tokenizer_name
        return env

    def _look_at_items(self, env: Any, groups: int) -> None:
        self.seen.draws_items = draws = draws_items(type(env))
        epoch_size = None if draws else env.order.epoch_size
        self.seen.item_warnings = warnings_about_items(draws_items=draws, epoch_size=epoch_size, groups=groups)

    async def _grade(self, env: SampledEnvironment[Any]) -> None:
        self.seen.is_correct = env.is_correct
        with self.seen.during("grader", self._explain):
            graded = await grade(env, env.held_out_items()[:ITEMS])
            self.seen.graded += [GradedKind(each.kind, each.answer, each.reward, certain=True) for each in graded]

    async def _close(self, env: Any) -> None:
        if not isinstance(env, SampledEnvironment):
            return
        with self.seen.during("close", self._explain):
            async with asyncio.timeout(CLOSE_SECONDS):
                await env.close()

    def _explain(self, error: BaseException) -> str:
        return str(error) if isinstance(error, RunError) else describe(error, self.located.file)


async def held_out_overlap(env: SampledEnvironment[Any]) -> dict[str, HeldOutOverlap]:
    """The comparison of each held-out set with what a run would train: the first items of the order, or the items of an
    environment that draws them itself. What is asked decides: two items with the same prompt are one to the policy.
    """
    until, left_out = time.monotonic() + COMPARED_SECONDS, 0
    training, trained = env.training_items(), set[str]()
    draws = draws_items(type(env))
    size = len(training) if draws else env.order.epoch_size
    for position in range(min(COMPARED_ITEMS, size)):
        item = env.unless_held_out(training[position]) if draws else await env.item_at(position)
        if isinstance(item, LeftOut):
            left_out += item.reason == "held_out"
        else:
            trained.add(env.question(item))
        if time.monotonic() > until:
            break
    found: dict[str, HeldOutOverlap] = {}
    for name, held_out in env.all_held_out().items():
        counted = HeldOutOverlap(len(held_out), size, left_out=left_out)
        for item in held_out[:COMPARED_ITEMS]:
            if time.monotonic() > until + COMPARED_SECONDS:
                break
            counted = replace(
                counted, overlap=counted.overlap + (env.question(item) in trained), compared=counted.compared + 1
            )
        found[name] = counted
    return found
