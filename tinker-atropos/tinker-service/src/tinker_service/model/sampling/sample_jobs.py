"""A sample request on its way: who asked, whether the answer is still wanted, and what has been sampled so far."""

from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from tinker_service.model.lora import LoraAdapter
from tinker_service.model.sampling.continuations import Continuation, SamplingRequest, new_continuations
from tinker_service.model.sampling.scoring import PromptScores, PromptScoring
from tinker_service.service_errors import CANCELLED, DroppedError, RequestError


@dataclass(frozen=True, slots=True)
class SampleAnswer:
    """The answer to one sample request."""

    continuations: list[Continuation]
    prompt: PromptScores


class SampleFuture(Future[SampleAnswer]):
    """A future that can be canceled while it runs: sampling then stops at the next token."""

    def __init__(self) -> None:
        super().__init__()
        self.given_up = False

    def cancel(self) -> bool:
        self.given_up = True
        return super().cancel()


@dataclass(slots=True, eq=False)
class SampleJob:
    """One sample request. `adapter` None: the base model; `has_client` returns whether its client is still there."""

    adapter: LoraAdapter | None
    request: SamplingRequest
    scoring: PromptScoring | None = None
    has_client: Callable[[], bool] = lambda: True
    future: SampleFuture = field(default_factory=SampleFuture)
    continuations: list[Continuation] = field(init=False)
    unfinished: int = field(init=False)

    def __post_init__(self) -> None:
        self.restart()

    def restart(self) -> None:
        """Forget what was sampled."""
        self.continuations = new_continuations(self.request)
        self.unfinished = len(self.continuations)

    def refusal(self) -> RequestError | None:
        """Why nobody waits for the answer (any more)."""
        if self.future.given_up:
            return RequestError(CANCELLED)
        return None if self.has_client() else DroppedError()


@dataclass(frozen=True, slots=True, eq=False)
class Row:
    """One sequence of a job."""

    job: SampleJob
    continuation: Continuation

    @property
    def context(self) -> tuple[int, ...]:
        """The tokens so far, of prompt and answer."""
        prompt, tokens = self.continuation.request.prompt, self.continuation.tokens
        return (*prompt, *tokens) if tokens else prompt  # all samples of a request have this one in common
