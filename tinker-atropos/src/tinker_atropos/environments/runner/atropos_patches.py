"""Where the runner hooks into an environment it did not write: each patch with its reason."""

import contextlib
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextvars import ContextVar
from functools import partial, wraps
from pathlib import Path
from typing import Any, Protocol

import aiohttp
import httpx
from atroposlib.envs.base import BaseEnv
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_random_exponential
from transformers import PreTrainedTokenizerBase

from tinker_atropos.environments.base import SampledEnvironment
from tinker_atropos.environments.items.held_out import PlayedItem
from tinker_atropos.environments.rollout.failures import describe, environment_failed
from tinker_atropos.environments.rollout.rollouts import FailedRollout, scored_group
from tinker_atropos.environments.rollout.sampled_work import SampledWork, current_work, sampling, watch
from tinker_atropos.environments.rollout.working_time import WORKING_TIME
from tinker_atropos.environments.runner.reporting.api_requests import RETRY_SECONDS
from tinker_atropos.environments.runner.reporting.counters import (
    Counters,
    FailureReason,
    FilterReason,
    IsCorrect,
    filter_reason,
    finite_rewards,
    generated_tokens,
    has_full_reward,
    rewards,
)
from tinker_atropos.environments.runner.reporting.items_under_way import ItemsUnderWay
from tinker_atropos.environments.runner.reporting.rollout_reports import WHY_UNSENT, RolloutReports
from tinker_atropos.errors import EnvironmentLostError


def widen_retries() -> None:
    """BaseEnv dies if the trajectory API is unavailable for a second; give the API time to restart."""
    BaseEnv.get_status.retry.stop = stop_after_delay(RETRY_SECONDS)
    BaseEnv.get_status.retry.wait = wait_random_exponential(multiplier=0.1, max=2)
    BaseEnv.get_status.retry.reraise = True
    again = retry(
        stop=stop_after_delay(RETRY_SECONDS),
        wait=wait_random_exponential(multiplier=0.1, max=2),
        retry=retry_if_exception_type((aiohttp.ClientError, TimeoutError)),
        reraise=True,
    )
    BaseEnv.get_server_info = again(BaseEnv.get_server_info)


def list_token_ids() -> None:
    """Have `apply_chat_template` return the list of token ids: transformers 5 returns a mapping by default, which
    breaks atroposlib's `tokenize_for_trainer`, and environments that slice the ids.
    """
    original = PreTrainedTokenizerBase.apply_chat_template

    @wraps(original)
    def apply_chat_template(*args: Any, **kwargs: Any) -> Any:
        return original(*args, **{"return_dict": False, **kwargs})

    PreTrainedTokenizerBase.apply_chat_template = apply_chat_template


def replace_env_manager(serve: Callable[[object], Awaitable[None]]) -> None:
    """Replace the loop, so that both `env.env_manager()` and an author's `super().env_manager()` run ours."""

    async def env_manager(env: Any) -> None:
        await serve(env)

    BaseEnv.env_manager = env_manager


_sent: ContextVar[list[Any] | None] = ContextVar("sent", default=None)
"""The groups that one `handle_send_to_api` sent."""


_handled: ContextVar[list[Any] | None] = ContextVar("handled", default=None)
"""The groups that a `collect_trajectories` passed to `handle_send_to_api` itself."""


class Sender(Protocol):
    """Where groups go: to the trajectory API (`GroupSender`), or to who checks an environment."""

    async def send(self, env: Any, scored: Any) -> None:
        """One group or a list of them, as BaseEnv passes them on. Raises httpx.HTTPError if they cannot be sent."""


class AtroposPatches:
    """Counts what one environment does, and sends its groups.

    The methods are replaced on the instance, so an author's overrides and their `super()` stay as written.
    """

    def __init__(
        self,
        env: Any,
        source: Path,
        counters: Counters,
        sender: Sender,
        give_up: Callable[[EnvironmentLostError], None],
        *,
        reports: RolloutReports | None = None,
        max_all_right_replaced: int | None = None,
        seed: int | None = None,
        items: ItemsUnderWay | None = None,
    ) -> None:
        """`reports`: where rollouts that are not trained are kept for people to read. `max_all_right_replaced`: as in
        EqualGroups. `seed`: the run's, of samples. `items`: those that a run has dealt.
        """
        self._env, self._source, self._counters, self._sender = env, source, counters, sender
        self._drops_equal, env.config.ensure_scores_are_not_same = env.config.ensure_scores_are_not_same, False
        self._equal_groups = EqualGroups(max_all_right_replaced, counters)
        self._reports = RolloutReports() if reports is None else reports
        self._give_up, self._seed = give_up, seed
        self._items = items or ItemsUnderWay()
        self._work = env.handle_env
        self._collect, self._handle = env.collect_trajectories, env.handle_send_to_api
        self._postprocess = env.postprocess_histories
        env.handle_env = self.work
        env.collect_trajectories = self.collect
        env.postprocess_histories = self.postprocess
        env.handle_send_to_api = self.handle
        env._send_scored_data_to_api = self.send  # noqa: SLF001 -- the only method that sends groups
        if isinstance(env, SampledEnvironment):
            env.report_failed = self.rollout_failed  # type: ignore[method-assign]  # as above
            env.report_evaluated = self.rollouts_evaluated  # type: ignore[method-assign]  # as above
        for server in env.server.servers:
            watch(server)

    async def work(self, item_uuid: Any) -> Any:
        """All that BaseEnv does with one item."""
        with self._items.worked_on(self._env.running_items[item_uuid]):
            return await self._work(item_uuid)

    async def collect(self, item: Any) -> Any:
        """BaseEnv logs and ignores what a rollout raises: record it, and end if nothing else happens."""
        handled: list[Any] = []
        with sampling("training", seed=self._seed) as sampled, _kept_in(_handled, handled):
            try:
                group, backlog = checked_pair(await WORKING_TIME.with_room(partial(self._collect, item)))
            except SystemExit as error:
                self._give_up(environment_failed("in a rollout", error, self._source))
                return None, []
            except Exception as error:  # noqa: BLE001 -- the author's code, and BaseEnv would swallow it
                self._raised(error, sampled.tokens)
                return None, []
        self._counters.tokens_failed += sampled.tokens_failed
        if not group and not handled:
            self._nothing_collected(sampled)
            if backlog:
                self._items.comes_back_as(backlog[0])
        return group, backlog

    def rollout_failed(self, rollout: FailedRollout) -> None:
        """Its tokens are lost with it, if not with its whole group."""
        self._counters.rollout_failed(rollout)
        self._reports.lost("rollout", rollout.kind, rollout.message, rollout.tokens)
        if (work := current_work()) is not None:
            work.tokens_failed += rollout.tokens

    def rollouts_evaluated(self, played: Sequence[PlayedItem[object]]) -> None:
        """The rollouts of an evaluation: its work knows the step of the weights."""
        work = current_work()
        if work is not None and work.step is not None:
            for each in played:
                for rollouts, greedy in ((each.rollouts, False), (each.greedy, True)):
                    if rollouts:
                        group = scored_group(rollouts, item=each.item)
                        worth = [self._env.worth(rollout.score) for rollout in rollouts if rollout.sequences]
                        self._reports.evaluated(work.step, group, each.sets, worth, greedy=greedy)

    def _nothing_collected(self, sampled: SampledWork) -> None:
        """An environment that sampled but returns nothing has filtered its group itself; otherwise it made none."""
        if sampled.completions:
            self._counters.scored([])
            self._was_filtered("by_environment", sampled.tokens)
            self._reports.lost("group", "by_environment", WHY_UNSENT["by_environment"], sampled.tokens)
            return
        nothing = "collect_trajectories returned no group"
        self._note_failure("empty", nothing, EnvironmentLostError(f"the environment makes no groups: {nothing}"))

    async def postprocess(self, collected: Any) -> Any:
        """BaseEnv swallows what this raises, too."""
        try:
            return await WORKING_TIME.with_room(partial(self._postprocess, collected))
        except Exception as error:  # noqa: BLE001 -- the author's code, and BaseEnv would swallow it
            self._raised(error, sum(map(generated_tokens, groups_of(collected))))
            return None

    async def handle(self, scored: Any, *args: Any, **kwargs: Any) -> Any:
        """Look at groups before BaseEnv drops some, and report afterward which ones it dropped, and why."""
        groups = groups_of(scored)
        sent: list[Any] = []
        if (handled := _handled.get()) is not None:
            handled += groups
        for group in groups:
            self._counters.scored(rewards(group), self._is_correct)
        try:
            with _kept_in(_sent, sent):
                answer = await self._handle(scored, *args, **kwargs)
        except Exception as error:  # noqa: BLE001 -- an author's override or a malformed group; BaseEnv swallows both
            self._raised(error, sum(map(generated_tokens, groups)))
            return None
        self._account(groups, sent)
        return answer

    @property
    def _is_correct(self) -> IsCorrect:
        return getattr(self._env, "is_correct", has_full_reward)

    def _account(self, groups: list[Any], sent: list[Any]) -> None:
        for _ in sent:
            self._counters.was_kept()
        unsent = [group for group in groups if not any(group is each for each in sent)]
        missing = max(0, len(groups) - len(sent))  # an override may send copies
        dropped = [(reason, group) for group in unsent if (reason := self._filter_reason(group))][:missing]
        unexplained = missing - len(dropped)
        for reason, group in dropped:
            self._was_filtered(reason, generated_tokens(group))
            self._reports.dropped(self._env.curr_step + 1, reason, WHY_UNSENT[reason], group)
        for _ in range(unexplained):
            self._was_filtered("by_environment", 0)
            self._reports.lost("group", "by_environment", WHY_UNSENT["by_environment"])

    def _was_filtered(self, reason: FilterReason, tokens: int) -> None:
        self._counters.was_filtered(reason, tokens)
        self._items.lost(reason)

    def _filter_reason(self, group: Any) -> FilterReason | None:
        config = self._env.config
        return filter_reason(group, config.group_size, self._env.max_token_len, drops_equal=self._drops_equal)

    async def send(self, scored: Any) -> None:
        """Equal groups are dropped here: BaseEnv would drop all of them, by a field of the config that groups in the
        making share. So an author's overrides see them, as ever.
        """
        await self._items.turn()
        groups = [group for group in groups_of(scored) if not self._is_dropped(group)]
        if (sent := _sent.get()) is not None:
            sent += groups
        if not groups:
            return
        try:
            await self._sender.send(self._env, groups if isinstance(scored, list) else groups[0])
        except httpx.HTTPError as error:
            unreachable = f"the trajectory API is not reachable: {error!r}"
            self._counters.has_failed("undelivered", unreachable)
            self._reports.lost("group", "undelivered", unreachable)
            raise

    def _is_dropped(self, group: Any) -> bool:
        scores = list(group.get("scores") or [])
        return self._drops_equal and self._equal_groups.drops(scores, self._is_correct)

    def _raised(self, error: Exception, tokens: int) -> None:
        self._note_failure(
            "raised",
            describe(error, self._source),
            environment_failed("in every rollout", error, self._source),
            tokens,
        )

    def _note_failure(
        self, reason: FailureReason, description: str, error: EnvironmentLostError, tokens: int = 0
    ) -> None:
        self._counters.has_failed(reason, description, tokens)
        self._items.lost(reason)
        self._reports.lost("group", reason, description, tokens)
        if self._counters.hopeless:
            self._give_up(error)


@contextlib.contextmanager
def _kept_in(variable: ContextVar[list[object] | None], groups: list[object]) -> Iterator[None]:
    token = variable.set(groups)
    try:
        yield
    finally:
        variable.reset(token)


def groups_of(scored: object) -> list[object]:
    return [group for group in (scored if isinstance(scored, list) else [scored]) if group is not None]


def checked_pair(collected: Any) -> tuple[Any, Any]:
    if not (isinstance(collected, tuple | list) and len(collected) == 2):
        raise TypeError(
            f"collect_trajectories returned {type(collected).__name__}; it must return a group (or None) and a list of "
            f"items to come back to"
        )
    return collected[0], collected[1]


class EqualGroups:
    """The equal groups of one environment. A group that is not all right is always dropped. Those that are all right
    say that the task may be solved, and then the next group to learn from costs ever more: at most `max_all_right` in
    a row are dropped, and further ones sent until there is one to learn from. None: all are dropped.
    """

    def __init__(self, max_all_right: int | None, counters: Counters) -> None:
        self._max_all_right, self._counters = max_all_right, counters
        self._dropped_in_row = 0

    def drops(self, rewards: Sequence[object], is_correct: IsCorrect) -> bool:
        """Whether the next group, of these rewards, is dropped. Otherwise it is sent."""
        if len(set(rewards)) != 1:
            self._dropped_in_row = 0
            return False
        if not all(map(is_correct, finite_rewards(rewards) or [0.0])):
            return True
        if self._dropped_in_row == self._max_all_right:
            self._counters.kept_all_right += 1
            return False
        self._dropped_in_row += 1
        return True
