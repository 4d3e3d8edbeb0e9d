"""One step: an item, a group of completions, their scores. The environment's own code does all of it."""

import math
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import openai

from rl_contract.scored_group import PROMPT_MASK
from tinker_atropos.environments.base import SampledEnvironment
from tinker_atropos.environments.rollout.failures import IncompleteGroupError, describe, innermost
from tinker_atropos.environments.rollout.rollouts import FailedRollout, Rollout
from tinker_atropos.environments.rollout.sampled_work import sampling, watch
from tinker_atropos.environments.runner.atropos_patches import checked_pair, groups_of
from tinker_atropos.environments.runner.reporting.counters import rewards
from tinker_atropos.environments.session_environment import SessionEnvironment
from tinker_atropos.environments.trial.provider_server import ProviderError, ProviderServer, Traffic, message_of
from tinker_atropos.environments.trial.trial_report import Agent, Response, Step
from tinker_atropos.errors import ConfigError, CredentialsError

SHOWN_CHARACTERS = 500
"""Characters shown of a response to a prompt."""


WITH_TOOLS = "the request had tools: if that is what it refuses, choose a model that can call them"
TRIED_AGAIN = frozenset({408, 409, 429, *range(500, 600)})
"""Statuses that say nothing about the request."""


class Trying:
    """Tries items of one environment. Groups are not sent: `handle_send_to_api` is replaced on the instance."""

    def __init__(self, env: Any, source: Path) -> None:
        self._env, self._source = env, source
        self._groups: list[Any] = []
        self._tool_errors: int | None = None
        env.handle_send_to_api = self._take
        if isinstance(env, SessionEnvironment):
            env.note = self._note  # type: ignore[method-assign]  # of this environment only
        for server in env.server.servers:
            watch(server)

    async def item(self, number: int) -> Step | None:
        """The environment's next item; None if there is none.

        Raises CredentialsError if the provider refuses the key.
        """
        begun = self._begin()
        with sampling("training") as sampled:
            try:
                if not await self._collect():
                    return None
                scores = finite(score for group in self._groups for score in rewards(group))
            except (Exception, SystemExit) as error:  # noqa: BLE001 -- the author's code
                return self._failed(number, error, begun)
        unscored = 0 if scores else sampled.completions
        dropped = "the environment dropped its group and reported no scores" if unscored else "it made no completions"
        reason = None if scores else dropped
        return Step(number, scores, time.monotonic() - begun, reason, unscored, agent=self._agent())

    async def prompt(self, number: int, prompt: str) -> Step:
        """One of the caller's prompts, which must be one of the environment's own: otherwise it could not be scored."""
        begun = self._begin()
        try:
            item = self._env.item_of_prompt(prompt)
            if item is None:
                return Step(number, [], time.monotonic() - begun, self._unknown(), prompt=prompt)
            rollouts = _whole(await self._env.roll_out(item, self._env.config.group_size, split="train"))
            scores = finite(rollout.score for rollout in rollouts)
            texts = [self._said(rollout)[:SHOWN_CHARACTERS] for rollout in rollouts]
        except (Exception, SystemExit) as error:  # noqa: BLE001 -- the author's code
            return self._failed(number, error, begun, prompt)
        responses = [Response(text, score) for text, score in zip(texts, scores, strict=True)]
        seconds = time.monotonic() - begun
        return Step(number, scores, seconds, prompt=prompt, responses=responses, agent=self._agent())

    def _begin(self) -> float:
        self._groups, self._tool_errors = [], None
        self._provider.traffic = Traffic()
        return time.monotonic()

    @property
    def _provider(self) -> ProviderServer:
        """The first server, where `connect` has put it."""
        server: ProviderServer = self._env.server.servers[0]
        return server

    def _note(self, figures: Mapping[str, float]) -> None:
        """An environment's figures of one of its rollouts; those of a trial are logged nowhere."""
        if (errors := figures.get("agent/tool_errors")) is not None:
            self._tool_errors = (self._tool_errors or 0) + int(errors)

    def _agent(self) -> Agent | None:
        """None for environments of plain answers."""
        traffic = self._provider.traffic
        if not (traffic.offers or isinstance(self._env, SessionEnvironment)):
            return None
        return Agent(traffic.answers, traffic.tool_calls, self._tool_errors, traffic.offers)

    async def _collect(self) -> bool:
        """Like BaseEnv.process_manager. False: there is no item."""
        item = await self._env.get_next_item()
        if item is None:
            return False
        collected, _ = checked_pair(await self._env.collect_trajectories(item))
        if collected:
            await self._take(await self._env.postprocess_histories(collected))
        return True

    async def _take(self, scored: Any, *_args: Any, **_kwargs: Any) -> None:
        """Environments may also pass their groups on themselves."""
        self._groups += groups_of(scored)

    def _failed(self, number: int, error: BaseException, begun: float, prompt: str | None = None) -> Step:
        """Programs and rollouts hide the provider's error behind their own, so that the server has kept it: until it
        answers again, because what fails after that has another cause. It refuses some requests as it does a key.
        """
        cause, traffic = innermost(error), self._provider.traffic
        if isinstance(cause, IncompleteGroupError) and traffic.error is not None:
            cause = traffic.error
        reason = explain(cause, self._source)
        if isinstance(cause, openai.AuthenticationError | openai.PermissionDeniedError) and not traffic.answers:
            raise CredentialsError(reason) from error
        if isinstance(cause, openai.APIStatusError) and traffic.offers and cause.status_code not in TRIED_AGAIN:
            reason += f" ({WITH_TOOLS})"
        return Step(number, [], time.monotonic() - begun, reason, prompt=prompt, agent=self._agent())

    def _unknown(self) -> str:
        asked = self._env.prompt(self._env.training_items()[0])[-1]["content"]
        return (
            f"no item of the environment asks this, so nothing says what a right answer is; an item of its own is "
            f"{str(asked)[:SHOWN_CHARACTERS]!r}"
        )

    def _said(self, rollout: Rollout) -> str:
        sequence = rollout.sequences[-1]
        sampled = [token for token, mask in zip(sequence.tokens, sequence.masks, strict=True) if mask != PROMPT_MASK]
        return str(self._env.tokenizer.decode(sampled, skip_special_tokens=True))


def _whole(outcomes: Iterable[Rollout | FailedRollout]) -> list[Rollout]:
    """Raises IncompleteGroupError for the first that failed."""
    rollouts: list[Rollout] = []
    for outcome in outcomes:
        if isinstance(outcome, FailedRollout):
            raise IncompleteGroupError(outcome.message)
        rollouts.append(outcome)
    return rollouts


def refuse_unless_prompts_are_scored(env: Any, name: str) -> None:
    """Raises ConfigError for environments that can score only their own items."""
    if not isinstance(env, SampledEnvironment):
        raise ConfigError(
            f"{name} cannot score a prompt: only environments that derive from tinker_atropos.environments.base know "
            f"the item behind one; leave the prompts out, and it is tried with its own items"
        )


def finite(scores: Iterable[Any]) -> list[float]:
    """Scores as numbers. Raises TypeError or ValueError if one is not a number."""
    numbers = [float(score) for score in scores]
    if wrong := [number for number in numbers if not math.isfinite(number)]:
        raise ValueError(f"a completion was scored {wrong[0]}")
    return numbers


def explain(error: BaseException, source: Path) -> str:
    """One sentence: a provider's error by its answer, an environment's by its line."""
    match error:
        case openai.APIStatusError():
            return f"the provider answered {error.status_code}{message_of(error.body)}"
        case openai.APITimeoutError():
            return "the provider did not answer in time"
        case openai.APIConnectionError():
            return f"the provider cannot be reached: {error.__cause__ or error}"
        case ProviderError():
            return str(error)
    return describe(error, source)
