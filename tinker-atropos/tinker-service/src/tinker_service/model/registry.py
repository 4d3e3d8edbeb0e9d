"""What is in memory: sessions, models in training, samplers. All of it is lost on restart."""

import time
from collections.abc import Iterable
from dataclasses import dataclass

from tinker_service.model.lora import LoraAdapter
from tinker_service.model.recordings import Recordings
from tinker_service.model.training import Trainee
from tinker_service.service_errors import MissingError, RequestError

SILENT_SESSION_SECONDS = 3_600.0  # the SDK's heartbeat comes every 10 s
UNHEARD_CLIENT_SECONDS = 30.0  # three heartbeats: nobody waits for this session's samples any more
BRIEF_SILENCE_SECONDS = 300.0  # a network or a node may be away for so long: nobody loses a model in training for it
SAMPLERS_PER_SESSION = 32
SAMPLERS_OF_SILENT_SESSION = 4
SILENT_BYTES = 2**28
"""What sessions may keep together whose silence is not brief: one client can be killed every few seconds, and each may
come back.
"""


@dataclass(frozen=True, slots=True)
class ServedSampler:
    """A policy that does not change. `adapter` None: the base model."""

    sampler_id: str
    session_id: str
    adapter: LoraAdapter | None
    model_path: str | None = None


class Registry:
    """Models, samplers and recorded samples by id. Added on the worker's thread and read on the event loop."""

    def __init__(self) -> None:
        self.recordings = Recordings()
        self._last_seen: dict[str, float] = {}
        self._models: dict[str, Trainee] = {}
        self._last_seq_ids: dict[str, int] = {}  # by model
        self._samplers: dict[str, ServedSampler] = {}  # least recently used first

    @property
    def sessions(self) -> list[str]:
        """Session ids, newest last."""
        return list(self._last_seen)

    @property
    def model_ids(self) -> list[str]:
        return list(self._models)

    @property
    def sampler_ids(self) -> list[str]:
        return list(self._samplers)

    def touch(self, session_id: str) -> None:
        self._last_seen[session_id] = time.monotonic()

    def touch_living(self, session_id: str) -> None:
        """As `touch`, but a session that has ended stays so."""
        if session_id in self._last_seen:
            self.touch(session_id)

    def has_client(self, session_id: str, now: float) -> bool:
        """Whether the session's client has been heard lately. Called on the worker's thread; `now` is from
        time.monotonic().
        """
        last_seen = self._last_seen.get(session_id)
        return last_seen is not None and now < last_seen + UNHEARD_CLIENT_SECONDS

    def add_model(self, model_id: str, trainee: Trainee) -> None:
        self._models[model_id] = trainee

    def model(self, model_id: str) -> Trainee:
        try:
            return self._models[model_id]
        except KeyError:
            raise MissingError(
                f"there is no model {model_id!r} in training (any more): its session ended or was silent for "
                f"long, or the service was restarted; create a training client from its last saved state"
            ) from None

    def has_model(self, model_id: str) -> bool:
        return model_id in self._models

    def check_order(self, model_id: str, seq_id: int | None) -> None:
        """Record a request's number. Raises RequestError if it is not above the last: a repeat would train twice."""
        last = self._last_seq_ids.get(model_id, 0)
        if seq_id is None:
            return
        if seq_id <= last:
            raise RequestError(
                f"request {seq_id} of model {model_id!r} comes after request {last}: it has run already and its result "
                f"has expired, or another client trains the same model; create a training client from the last "
                f"saved state"
            )
        self._last_seq_ids[model_id] = seq_id

    def add_sampler(self, sampler: ServedSampler) -> None:
        """Add a sampler; a session keeps its most recently used ones."""
        self._samplers[sampler.sampler_id] = sampler
        self._remove_samplers(self._samplers_of(sampler.session_id)[:-SAMPLERS_PER_SESSION])

    def sampler(self, sampler_id: str) -> ServedSampler:
        sampler = self._samplers.pop(sampler_id, None)
        if sampler is None:
            raise MissingError(
                f"there is no sampler {sampler_id!r} (any more): its session ended or was silent for long, "
                f"{SAMPLERS_PER_SESSION} newer ones replaced it, or the service was restarted; create a new "
                f"sampling client"
            )
        self._samplers[sampler_id] = sampler
        return sampler

    def end_session(self, session_id: str) -> None:
        self._last_seen.pop(session_id, None)
        self.recordings.end_session(session_id)
        for model_id in [model_id for model_id in self._models if session_of(model_id) == session_id]:
            del self._models[model_id]
            self._last_seq_ids.pop(model_id, None)
        self._remove_samplers(self._samplers_of(session_id))

    def tidy(self, now: float) -> None:
        """Let go of what sessions keep whose client is gone, the longest gone first. `now` is from time.monotonic().

        A client that comes back soon finds everything. Later it finds its model, and the samplers that it used last,
        unless many others have gone.
        """
        kept = 0
        silent = [(seen, key) for key, seen in self._last_seen.items() if not self.has_client(key, now)]
        for last_seen, session_id in sorted(silent, reverse=True):
            is_brief = now < last_seen + BRIEF_SILENCE_SECONDS
            if not is_brief:
                self._remove_samplers(self._samplers_of(session_id)[:-SAMPLERS_OF_SILENT_SESSION])
            size = self._size(session_id)
            is_too_much = kept > 0 and kept + size > SILENT_BYTES  # one stays, however large its model is
            if (is_too_much and not is_brief) or last_seen + SILENT_SESSION_SECONDS <= now:
                self.end_session(session_id)
            else:
                kept += size

    def _size(self, session_id: str) -> int:
        """Bytes of a session's models and samplers."""
        models = [trainee for key, trainee in list(self._models.items()) if session_of(key) == session_id]
        adapters = [self._samplers[key].adapter for key in self._samplers_of(session_id)]
        return sum(trainee.size for trainee in models) + sum(adapter.size for adapter in adapters if adapter)

    def _samplers_of(self, session_id: str) -> list[str]:
        return [key for key, sampler in list(self._samplers.items()) if sampler.session_id == session_id]

    def _remove_samplers(self, sampler_ids: Iterable[str]) -> None:
        for sampler_id in sampler_ids:
            self._samplers.pop(sampler_id, None)


def model_id_of(session_id: str, model_seq_id: int) -> str:
    """The SDK derives the same id from the same numbers."""
    return f"{session_id}:train:{model_seq_id}"


def session_of(model_id: str) -> str:
    return model_id.partition(":")[0]
